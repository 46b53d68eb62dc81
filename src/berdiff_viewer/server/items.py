"""What can be looked at: images and results of the command line, which all sessions share, and uploads of one."""

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from berdiff import schema
from berdiff.data import dicom, manifest
from berdiff.data.apply import Prepared
from berdiff.data.describe import check, expect
from berdiff.data.held_out import open_held_out
from berdiff.data.images import read_labels
from berdiff.data.paths import fault_of
from berdiff.data.reading import Kind, kind_of, outline, read_image
from berdiff.data.store import open_store
from berdiff.data.subset import choose_cases
from berdiff.data.volumes import stored_shape
from berdiff.errors import InputError
from berdiff.inference.inputs import Input, case_input, find_inputs
from berdiff.inference.result import Result
from berdiff.jobs.done_file import read_done
from berdiff.jobs.store import DONE
from berdiff.output.result_file import ResultFile
from berdiff.remote import typed_only
from berdiff.targets.kinds import Kind as TargetKind
from berdiff.targets.targets import of_labels
from berdiff_viewer.server.schemas import ItemAnswer


@dataclass(frozen=True, eq=False)
class SavedResult:
    """A folder with done.json and result.json, and the input that it is of."""

    folder: Path
    source: Input
    facts: ResultFile | None = None  # None: it cannot be shown, and the source's error says why

    def result(self, opened: Prepared) -> Result:
        """The samples on the image they were made of; InputError where they were not written or do not fit."""
        facts, grid = self.facts, opened.grid
        assert facts is not None  # else the source has an error, and is not opened
        targets, kind = tuple(facts.targets), facts.kind
        pool = _samples(self.folder, opened, len(targets), kind)
        now = f"masks of {grid.shape}, as the image is now"
        expect(pool.shape[2:] == grid.shape, self.folder.name, now, pool.shape[2:], "changed")
        grid = grid if facts.region is None else grid.part(facts.region)
        same = ("name", "raters", "title", "details", "channels")
        return Result(
            **{name: getattr(opened, name) for name in same},
            image=opened.image[(..., *grid.box)],
            grid=grid,
            pool=pool[(..., *grid.box)],
            targets=targets,
            kind=kind,
            settings=facts.settings,
            scan=opened.image,
            notes=tuple(facts.notes),
            warnings=tuple(facts.warnings),
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
        check(done.name and paths and all(paths), f"{name}: done.json names no files that it was made of", "missing")
        for path in paths:
            typed_only(path, name, "PATH")
        if "case" in done.sources[0]:
            by_name = [one for one in find_inputs([paths[0]], split="all") if one.name == name]
            check(len(by_name) == 1, f"{name}: the store has no case of this name", "missing")
            return SavedResult(folder, by_name[0], facts)
        gone = [fault for path in paths if (fault := fault_of(Path(path)))]
        expect(not gone, name, "the image that it was made of", *gone[:1], code="missing")
        return SavedResult(folder, Input(name, tuple(map(Path, paths))), facts)
    except InputError as error:
        return SavedResult(folder, Input(name, (Path("."),), error=str(error)))


def _samples(folder: Path, opened: Prepared, targets: int, kind: TargetKind) -> np.ndarray:
    """(n, K, [Z,] H, W) uint8 of what `--write samples` or `nifti` left: masks of one target, or label maps."""
    file, pictures = folder / "samples.nii.gz", sorted((folder / "samples").glob("sample-*.png"))
    one_map = targets == 1 or kind != "independent"
    check(one_map, f"{folder.name}: files of several independent targets cannot be shown", "unsupported")
    if opened.image.ndim == 3 and pictures:
        labels = np.stack([read_labels(picture) for picture in pictures])
    else:
        check(file.is_file(), f"{folder.name}: it has no samples (--write samples)", "missing")
        shape = stored_shape(file)
        labels = read_image(file, shape[3] if len(shape) > 3 else 1).values
        labels = labels if opened.image.ndim == 4 else labels[:, 0]
    if targets == 1:
        return (labels > 0)[:, None].astype(np.uint8)
    return of_labels(labels, targets, kind)


@dataclass(eq=False)
class Item:
    """One image, volume, case of a store, or result of `berdiff segment`. Pixels are read when they are asked for."""

    id: str
    input: Input
    group: str  # the argument or the upload that it came with
    own: bool = False  # of one session alone
    saved: SavedResult | None = None  # where it is a result
    kind: Kind = "png"
    shape: tuple[int, ...] = ()  # ([Z,] H, W) upright; empty: not known, as of what cannot be read
    channels: int | None = None
    title: str = ""  # what people call it, where that is not its name
    series: str = field(default="", repr=False)  # the DICOM series, by which other programs name it
    disagreement: float | None = None  # of the samples last drawn of it, or saved with it (0 to 1)

    def __post_init__(self) -> None:
        if self.saved is not None and self.saved.facts is not None:
            self.disagreement = most_disagreement(self.saved.facts.measurements)
        try:
            self._read_header()
        except InputError as error:
            self.input = Input(self.name, self.paths, error=str(error))

    def _read_header(self) -> None:
        store, first, several = self.input.store, self.paths[0], len(self.paths) > 1
        if store is not None:
            self.kind, self.shape, self.channels = "store", store.size, len(store.channels)
        elif not self.input.error:
            self.kind = kind_of(first) or "png"
            if self.kind == "dicom":
                slice_ = self.input.headers[0] if self.input.headers else dicom.read_header(first)
                self.series, self.title = slice_.series_uid, slice_.title
            header = outline(self.paths, several=True, headers=self.input.headers)
            self.shape = header.size if header.slices is None else (header.slices, *header.size)
            self.channels = len(self.paths) if several and self.kind != "dicom" else header.channels

    @property
    def name(self) -> str:
        return self.input.name

    @property
    def paths(self) -> tuple[Path, ...]:
        return self.input.paths

    def check(self) -> None:
        if self.input.error:
            raise InputError(self.input.error)

    def shown(self, error: str) -> ItemAnswer:
        kind = "result" if self.saved else "volume" if len(self.shape) == 3 else "image"
        names = ("id", "name", "title", "shape", "channels", "group", "own")
        told = {name: getattr(self, name) for name in names}
        return ItemAnswer.model_validate({**told, "kind": kind, "error": error})


def shared_items(
    paths: Sequence[str], channels: Sequence[str], split: str = "test", limit: int = 200, seed: int = 0
) -> list[Item]:
    """Those of the command line; without any, cases of the embedded data, which is made on first use."""
    numbers = count()
    if not paths:
        store = open_held_out() if split == "test" else open_store()
        cases = [case_input(store, int(i)) for i in choose_cases(store, split, limit, seed, spread=True)]
        return [Item(f"s{next(numbers)}", one, "embedded data") for one in cases]
    items: list[Item] = []
    for path in paths:
        group = Path(path).name or path
        local = "://" not in path and Path(path).is_dir() and not (Path(path) / manifest.NAME).is_file()
        if results := saved_results(Path(path)) if local else []:
            items += [Item(f"s{next(numbers)}", one.source, group, saved=one) for one in results[:limit]]
        else:
            inputs = find_inputs([path], channels, split, limit, seed)
            items += [Item(f"s{next(numbers)}", one, group) for one in inputs]
    if not any(item.input.error == "" for item in items):
        raise InputError(items[0].input.error if items else f"{paths[0]}: there are no images", "missing")
    return _told_apart(items)


def uploaded_items(folder: Path, channels: Sequence[str], group: str) -> list[Item]:
    """The images of an upload that lies in `folder`; each was chosen, so none is left out."""
    inputs = find_inputs([folder], channels, labels=True)
    return _told_apart([Item(secrets.token_urlsafe(9), one, group, own=True) for one in inputs])


def _told_apart(items: list[Item]) -> list[Item]:
    """Series that are called alike, as those of one number and date are, get the last digits of their UIDs."""
    times = Counter((item.group, item.title) for item in items)
    for item in items:
        if item.title and times[item.group, item.title] > 1:
            item.title += f", UID ...{item.series[-8:]}"
    return items
