"""Results that `berdiff segment` wrote, read back: the source image with the masks that were saved of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, MinLen

from berdiff import schema
from berdiff.data.describe import expect
from berdiff.data.images import read_labels
from berdiff.data.input_spec import Kind
from berdiff.data.paths import fault_of
from berdiff.data.reading import read_image_file
from berdiff.data.volumes import stored_shape
from berdiff.errors import InputError
from berdiff.inference.inputs import Input, find_inputs
from berdiff.inference.opening import OpenedImage
from berdiff.inference.result import Result
from berdiff.jobs.done_file import DoneFile, read_done
from berdiff.jobs.store import DONE
from berdiff.remote import typed_only


@dataclass(frozen=True)
class ResultFacts(schema.Content):
    """result.json, as far as it is read again."""

    targets: Annotated[list[str], MinLen(1)]
    kind: Kind
    region: list[tuple[Annotated[int, Ge(0)], Annotated[int, Ge(0)]]] | None
    settings: dict[str, Any]
    notes: list[str]
    measurements: dict[str, dict[str, Any]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class SavedResult:
    """A folder with done.json and result.json, and the input that it is of."""

    folder: Path
    source: Input
    facts: ResultFacts | None  # None: it has none

    @property
    def disagreement(self) -> float | None:
        """Of the target in which the samples disagree most; None where it was not measured."""
        return most_disagreement(self.facts.measurements if self.facts else {})

    def result(self, opened: OpenedImage) -> Result:
        """The samples on the image they were made of; InputError where they were not written or do not fit."""
        facts, shape = self.facts, opened.image.shape[1:]
        assert facts is not None  # else the source has an error, and is not opened
        targets, kind = tuple(facts.targets), facts.kind
        pool = _samples(self.folder, opened, len(targets), kind)
        expect(pool.shape[2:] == shape, self.folder.name, f"masks of {shape}, as the image is now", pool.shape[2:])
        roi = None if facts.region is None else tuple(facts.region)
        new = {"pool": pool, "targets": targets, "kind": kind, "roi": roi, "settings": facts.settings}
        return Result(**{**vars(opened), **new, "notes": tuple(facts.notes), "warnings": tuple(facts.warnings)})


def most_disagreement(measurements: Mapping[str, Mapping[str, Any]]) -> float | None:
    values = [measured.get("disagreement") for measured in measurements.values()]
    return max((value for value in values if value is not None), default=None)


def saved_results(folder: Path) -> list[SavedResult]:
    """Those in a folder that `berdiff segment --out` filled; none where it is another kind of folder."""
    if not (folder / "settings.json").is_file() and not (folder / "done.json").is_file():
        return []
    found: list[SavedResult] = []
    for done in sorted(folder.rglob(DONE)):
        try:
            facts_file = done.with_name("result.json")
            facts = schema.read(facts_file, ResultFacts, "a result") if facts_file.is_file() else None
            found.append(SavedResult(done.parent, _source(read_done(done.parent), facts), facts))
        except InputError as error:
            found.append(SavedResult(done.parent, _failed(done.parent.name, error), None))
    return found


def _source(done: DoneFile, facts: ResultFacts | None) -> Input:
    """The input that a result was made of; of what a file says, only a path of this machine is opened."""
    name = done.name or "result"
    try:
        expect(done.name and facts, name, "a result.json (--write json)")
        paths = [str(one.get("path", "")) for one in done.sources]
        expect(all(paths) and paths, name, "the files that it was made of")
        for path in paths:
            typed_only(path, name, "PATH")
        if "case" in done.sources[0]:
            by_name = [one for one in find_inputs([paths[0]], split="all") if one.name == name]
            expect(len(by_name) == 1, name, "its case in the store")
            return by_name[0]
        gone = next((found for path in paths if (found := fault_of(Path(path)))), None)
        expect(gone is None, name, "the image that it was made of", gone)
        return Input(name, tuple(map(Path, paths)))
    except InputError as error:
        return _failed(name, error)


def _failed(name: str, error: InputError) -> Input:
    return Input(name, (Path("."),), error=str(error))


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
