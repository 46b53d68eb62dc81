"""Results that `berdiff segment` wrote, read back: the source image with the masks that were saved of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from berdiff import schema
from berdiff.data.apply import Prepared
from berdiff.data.describe import expect
from berdiff.data.images import read_labels
from berdiff.data.paths import fault_of
from berdiff.data.reading import read_image
from berdiff.data.volumes import stored_shape
from berdiff.errors import InputError
from berdiff.inference.inputs import Input, find_inputs
from berdiff.inference.result import Result
from berdiff.jobs.done_file import read_done
from berdiff.jobs.store import DONE
from berdiff.output.result_file import ResultFile
from berdiff.remote import typed_only
from berdiff.targets.kinds import Kind
from berdiff.targets.targets import of_labels


@dataclass(frozen=True, eq=False)
class SavedResult:
    """A folder with done.json and result.json, and the input that it is of."""

    folder: Path
    source: Input
    facts: ResultFile | None = None  # None: it cannot be shown, and the source's error says why

    @property
    def disagreement(self) -> float | None:
        """Of the target in which the samples disagree most; None where it was not measured."""
        return most_disagreement(self.facts.measurements if self.facts else {})

    def result(self, opened: Prepared) -> Result:
        """The samples on the image they were made of; InputError where they were not written or do not fit."""
        facts, grid = self.facts, opened.grid
        assert facts is not None  # else the source has an error, and is not opened
        targets, kind = tuple(facts.targets), facts.kind
        pool = _samples(self.folder, opened, len(targets), kind)
        now = f"masks of {grid.shape}, as the image is now"
        expect(pool.shape[2:] == grid.shape, self.folder.name, now, pool.shape[2:])
        if facts.region is not None:
            grid = grid.part(facts.region)
        return Result(
            name=opened.name,
            image=opened.image[(..., *grid.box)],
            grid=grid,
            pool=pool[(..., *grid.box)],
            targets=targets,
            kind=kind,
            settings=facts.settings,
            scan=opened.image,
            raters=opened.raters,
            notes=tuple(facts.notes),
            warnings=tuple(facts.warnings),
            title=opened.title,
            details=opened.details,
            channels=opened.channels,
        )


def most_disagreement(measurements: Mapping[str, Mapping[str, Any]]) -> float | None:
    values = [measured.get("disagreement") for measured in measurements.values()]
    return max((value for value in values if value is not None), default=None)


def saved_results(folder: Path) -> list[SavedResult]:
    """Those in a folder that `berdiff segment --out` filled; none where it is another kind of folder."""
    written = any((folder / name).is_file() for name in ("settings.json", DONE))
    return [_saved_result(done.parent) for done in sorted(folder.rglob(DONE))] if written else []


def _saved_result(folder: Path) -> SavedResult:
    """Of what its files say, only a path of this machine is opened."""
    name = folder.name
    try:
        done = read_done(folder)
        name = done.name or name
        facts = schema.read(folder / "result.json", ResultFile, "a result (--write json)")
        paths = [str(one.get("path", "")) for one in done.sources]
        expect(done.name and paths and all(paths), name, "the files that it was made of")
        for path in paths:
            typed_only(path, name, "PATH")
        if "case" in done.sources[0]:
            by_name = [one for one in find_inputs([paths[0]], split="all") if one.name == name]
            expect(len(by_name) == 1, name, "its case in the store")
            return SavedResult(folder, by_name[0], facts)
        gone = next((found for path in paths if (found := fault_of(Path(path)))), None)
        expect(gone is None, name, "the image that it was made of", gone)
        return SavedResult(folder, Input(name, tuple(map(Path, paths))), facts)
    except InputError as error:
        return SavedResult(folder, Input(name, (Path("."),), error=str(error)))


def _samples(folder: Path, opened: Prepared, targets: int, kind: Kind) -> np.ndarray:
    """(n, K, [Z,] H, W) uint8 of what `--write samples` or `nifti` left: masks of one target, or label maps."""
    file, pictures = folder / "samples.nii.gz", sorted((folder / "samples").glob("sample-*.png"))
    one = targets == 1 or kind != "independent"
    expect(one, folder.name, "masks of one target, or targets that fit into a label map", "several independent ones")
    if opened.image.ndim == 3 and pictures:
        labels = np.stack([read_labels(picture) for picture in pictures])
    else:
        expect(file.is_file(), folder.name, "samples in it (--write samples)")
        shape = stored_shape(file)
        labels = read_image(file, shape[3] if len(shape) > 3 else 1).values
        labels = labels if opened.image.ndim == 4 else labels[:, 0]
    if targets == 1:
        return (labels > 0)[:, None].astype(np.uint8)
    return of_labels(labels, targets, kind)
