"""What can be looked at: images of the command line, which all sessions share, and uploads, which belong to one."""

import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from berdiff.data import dicom, manifest
from berdiff.data.held_out import open_held_out
from berdiff.data.reading import Kind, kind_of, outline
from berdiff.data.store import open_store
from berdiff.data.subset import choose_cases
from berdiff.errors import InputError
from berdiff.inference.inputs import Input, case_input, find_inputs
from berdiff_viewer.server.results import SavedResult, most_disagreement, saved_results
from berdiff_viewer.server.schemas import ItemAnswer


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
        named = {"id": self.id, "name": self.name, "title": self.title, "group": self.group, "own": self.own}
        return ItemAnswer(kind=kind, shape=list(self.shape), channels=self.channels, error=error, **named)


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
