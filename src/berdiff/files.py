"""Files that appear whole or not at all."""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def _beside(path: Path) -> Path:
    """A temporary name in the folder of `path`, so that the final rename stays on one file system."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path to write to; rename it to `path` on success, remove it on failure.

    The data is on the disk before the rename, so a power cut leaves the old file or the new one.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = _beside(path)
    try:
        yield part
        with part.open("rb+") as written:
            os.fsync(written.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file whole."""
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")


@contextmanager
def whole_folder(path: str | Path) -> Iterator[Path]:
    """Yield a temporary folder to fill; rename it to `path` on success, remove it on failure.

    `path` itself must not exist: what to do with an older one is the caller's decision.
    """
    path = Path(path)
    if path.exists():
        raise FileExistsError(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = _beside(path)
    part.mkdir()
    try:
        yield part
        os.replace(part, path)
    finally:
        shutil.rmtree(part, ignore_errors=True)
