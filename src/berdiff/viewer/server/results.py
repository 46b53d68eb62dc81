"""Results that `berdiff segment` wrote, read back: the source image with the masks that were saved of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from berdiff import schema
from berdiff.data.describe import expect
from berdiff.data.images import read_labels
from berdiff.data.reading import read_image_file
from berdiff.data.volumes import stored_shape
from berdiff.errors import InputError
from berdiff.inference.inputs import Input, find_inputs
from berdiff.inference.opening import OpenedImage
from berdiff.inference.result import Result
from berdiff.remote import typed_only


@dataclass(frozen=True, eq=False)
class SavedResult:
    """A folder with done.json and result.json, and the input that it is of."""

    folder: Path
    source: Input
    facts: dict[str, Any]

    def result(self, opened: OpenedImage) -> Result:
        """The samples on the image they were made of; InputError where they were not written or do not fit."""
        facts, shape = self.facts, opened.image.shape[1:]
        targets, kind = tuple(facts["targets"]), facts["kind"]
        pool = _samples(self.folder, opened, len(targets), kind)
        expect(pool.shape[2:] == shape, self.folder.name, f"masks of {shape}, as the image is now", pool.shape[2:])
        roi = None if facts["region"] is None else tuple((int(a), int(b)) for a, b in facts["region"])
        new = {"pool": pool, "targets": targets, "kind": kind, "roi": roi, "settings": facts["settings"]}
        return Result(**{**vars(opened), **new, "notes": tuple(facts["notes"])})


def saved_results(folder: Path) -> list[SavedResult]:
    """Those in a folder that `berdiff segment --out` filled; none where it is another kind of folder."""
    if not (folder / "settings.json").is_file() and not (folder / "done.json").is_file():
        return []
    found: list[SavedResult] = []
    for done in sorted(folder.rglob("done.json")):
        content = schema.read_json(done, "a list of files")
        facts_file = done.with_name("result.json")
        facts = schema.read_json(facts_file, "a result") if facts_file.is_file() else {}
        found.append(SavedResult(done.parent, _source(content, facts, done), facts))
    return found


def _source(done: Any, facts: dict[str, Any], done_file: Path) -> Input:
    name = str(done.get("name", "")) if isinstance(done, dict) else ""
    try:
        expect(name and facts.get("targets"), name or "result", "a result.json (--write json)")
        sources = done["sources"]
        if "case" in sources[0]:
            store = typed_only(str(sources[0]["path"]), done_file, "PATH")  # a folder of results may be anybody's
            by_name = [one for one in find_inputs([str(store)], split="all") if one.name == name]
            expect(len(by_name) == 1, name, "its case in the store")
            return by_name[0]
        paths = tuple(Path(one["path"]) for one in sources)
        gone = next((path for path in paths if not path.is_file()), None)
        expect(gone is None, name, "the image that it was made of", "it is no longer there")
        return Input(name, paths)
    except (InputError, KeyError, TypeError) as error:
        return Input(name or "result", (Path("."),), error=str(error))


def _samples(folder: Path, opened: OpenedImage, targets: int, kind: str) -> np.ndarray:
    """(n, K, [Z,] H, W) uint8 of what `--write samples` or `nifti` left: masks of one target, or label maps."""
    file, pictures = folder / "samples.nii.gz", sorted((folder / "samples").glob("sample-*.png"))
    one = targets == 1 or kind != "independent"
    expect(one, folder.name, "masks of one target, or targets that fit into a label map", "several independent ones")
    if opened.image.ndim == 3 and pictures:
        labels = np.stack([read_labels(picture) for picture in pictures])
    else:
        expect(file.is_file(), folder.name, "samples in it (--write samples)")
        shape = stored_shape(file)
        labels = read_image_file(file, shape[3] if len(shape) > 3 else 1).values
        labels = labels if opened.image.ndim == 4 else labels[:, 0]
    if targets == 1:
        return (labels > 0)[:, None].astype(np.uint8)
    values = np.arange(1, targets + 1).reshape(-1, *[1] * (labels.ndim - 1))
    return (labels[:, None] >= values if kind == "nested" else labels[:, None] == values).astype(np.uint8)
