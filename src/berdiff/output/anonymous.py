"""Results without the name of their input and where it lay: both are the user's words, and often the patient's name."""

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from berdiff.data.describe import refusing
from berdiff.inference.inputs import Input
from berdiff.inference.result import Result

UID_DIGITS = 8  # the last ones
DIGITS = 12  # of the name: one in 10^14 for two images to share one


def input_name(item: Input) -> str:
    """What an input is called instead of its own name."""
    if item.store is None:
        return _of_files(item.paths)
    return _of_image(item.store.read([item.index])[0][0])


def without_identity(result: Result) -> Result:
    """The result under the name that its input has in `input_name`; masks and grid stay."""
    source = result.grid.source
    files = source.paths if source.kind != "store" else ()
    name = _of_files(files) if files else _of_image(result.image if result.scan is None else result.scan)
    return replace(result, name=name, title=anonymous_title(result), details={}, anonymous=True)


def anonymous_title(result: Result) -> str:
    """The last digits of a DICOM series' UID, enough to find it in its archive."""
    uid = result.details.get("series UID", "")
    return f"series ...{uid[-UID_DIGITS:]}" if uid else ""


def _of_files(paths: Iterable[Path]) -> str:
    """By their content, in any order: the same under every name, and not to be guessed."""
    each = []
    for path in paths:
        with refusing((OSError,), path, "a readable file", "another"), path.open("rb") as file:
            each.append(hashlib.file_digest(file, "sha256").digest())
    return _named(b"".join(sorted(each)))


def _of_image(image: np.ndarray) -> str:
    return _named(np.ascontiguousarray(image, np.float32).tobytes())


def _named(content: bytes) -> str:
    return f"case-{hashlib.sha256(content).hexdigest()[:DIGITS]}"
