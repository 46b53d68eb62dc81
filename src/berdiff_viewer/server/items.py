"""What can be looked at: images of the command line, which all sessions share, and uploads, which belong to one."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from berdiff.data import dicom, manifest
from berdiff.data.held_out import open_held_out
from berdiff.data.reading import Kind, kind_of, outline
from berdiff.data.store import open_store
from berdiff.data.subset import choose_cases
from berdiff.errors import InputError
from berdiff.inference.inputs import Input, case_input, find_inputs
from berdiff_viewer.server.results import SavedResult, saved_results


@dataclass(eq=False)
class Item:
    """One image, volume, case of a store, or result of `berdiff segment`. Pixels are read when they are asked for."""

    id: str
    input: Input
    kind: Kind
    group: str  # the argument or the upload that it came with
    own: bool = False  # of one session alone
    shape: tuple[int, ...] = ()  # ([Z,] H, W) upright; empty: known after opening
    channels: int | None = None
    saved: SavedResult | None = None  # where it is a result
    title: str = ""  # what people call it, where that is not its name
    series: str = field(default="", repr=False)  # the DICOM series, by which other programs name it
    disagreement: float | None = None  # of the samples last drawn of it, or saved with it (0 to 1)

    @property
    def name(self) -> str:
        return self.input.name

    @property
    def paths(self) -> tuple[Path, ...]:
        return self.input.paths

    @property
    def volume(self) -> bool:
        return len(self.shape) == 3

    def shown(self) -> dict[str, Any]:
        kind = "result" if self.saved else "volume" if self.volume else "image"
        named = {"id": self.id, "name": self.name, "title": self.title, "kind": kind, "shape": list(self.shape)}
        return {**named, "channels": self.channels, "group": self.group, "own": self.own, "error": self.input.error}


def item_of(one: Input, id: str, group: str, own: bool = False, saved: SavedResult | None = None) -> Item:
    """With what its header says, if it says it cheaply."""
    if one.store is not None:
        shape, channels = one.store.size, len(one.store.channels)
        return Item(id, one, "store", group, own, shape, channels, saved, disagreement=saved and saved.disagreement)
    item = Item(id, one, "png", group, own, saved=saved, disagreement=saved and saved.disagreement)
    if one.error:
        return item
    first = one.paths[0]
    try:
        item.kind = kind_of(first) or "png"
        item.channels = len(one.paths) if len(one.paths) > 1 and item.kind != "dicom" else None
        if item.kind == "dicom":
            header = one.headers[0] if one.headers else dicom.read_header(first)
            item.series, item.title = header.series_uid, header.title
        found = outline(one.paths, several=True, headers=one.headers)
        item.shape = found.size if found.slices is None else (found.slices, *found.size)
        item.channels = item.channels or found.channels
    except InputError as error:
        item.input = Input(one.name, one.paths, error=str(error))
    return item


def shared_items(
    paths: Sequence[str], channels: Sequence[str], split: str = "test", limit: int = 200, seed: int = 0
) -> list[Item]:
    """Those of the command line; without any, cases of the embedded data, which is made on first use."""
    numbers = count()
    if not paths:
        store = open_held_out() if split == "test" else open_store()
        cases = [case_input(store, int(i)) for i in choose_cases(store, split, limit, seed, spread=True)]
        return [item_of(one, f"s{next(numbers)}", "embedded data") for one in cases]
    items: list[Item] = []
    for path in paths:
        group = Path(path).name or path
        if found := saved_results(Path(path)) if _is_local_folder(path) else []:
            items += [item_of(one.source, f"s{next(numbers)}", group, saved=one) for one in found[:limit]]
        else:
            inputs = find_inputs([path], channels, split, limit, seed)
            items += [item_of(one, f"s{next(numbers)}", group) for one in inputs]
    if not any(item.input.error == "" for item in items):
        raise InputError(items[0].input.error if items else f"{paths[0]}: expected images, found none")
    return items


def uploaded_items(folder: Path, channels: Sequence[str], group: str) -> list[Item]:
    """The images of an upload that lies in `folder`; each was chosen, so none is left out."""
    found = find_inputs([folder], channels, labels=True)
    return [item_of(one, secrets.token_urlsafe(9), group, own=True) for one in found]


def _is_local_folder(path: str) -> bool:
    return "://" not in path and Path(path).is_dir() and not (Path(path) / manifest.NAME).is_file()
