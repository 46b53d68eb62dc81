"""Check a store against its own manifest: every byte, every count, every value, and no patient in two splits."""

import hashlib
import json
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from berdiff.data import manifest as manifests
from berdiff.data.case import SPLITS, Progress
from berdiff.data.paths import expect_file, inside
from berdiff.data.shards import cases_per_shard, shard_path
from berdiff.data.split import leak
from berdiff.data.store import Store
from berdiff.errors import InputError
from berdiff.remote import filesystem, is_remote, speaking
from berdiff.targets.targets import Targets

PIECE = 2**24  # bytes of a file that are read at a time


def verify(address: str | Path, progress: Progress = lambda done, total: None) -> list[str]:
    """The faults of a store, one sentence each; none means that it is whole. What cannot be opened raises."""
    store = Store.open(address)
    with speaking(address, "a prepared store"):
        faults = [*_file_faults(store), *_table_faults(store)]
    return faults or list(_value_faults(store, progress))  # values behind a wrong checksum or count add nothing new


def _file_faults(store: Store) -> Iterator[str]:
    manifest, address = store.manifest, store.address
    fs, root = filesystem(address)
    text = fs.cat_file(f"{root}/{manifests.NAME}").decode()
    if text != manifests.canonical(json.loads(text)):
        yield f"{address}/{manifests.NAME}: expected the text berdiff writes, found it altered"
    base = root.rstrip("/") + "/"
    found = {path.removeprefix(base) for path in fs.find(root)} - {manifests.NAME}
    shards = range(-(-len(store) // manifest.shard))
    axes = {"images": 2 + len(store.size), "masks": 3 + len(store.size)}
    needed = {shard_path(name, i, count) for name, count in axes.items() for i in shards}
    for name in sorted((set(manifest.files) | needed) - found):
        yield f"{address}/{name}: expected a file of the store, found none"
    for name in sorted(found - set(manifest.files)):
        yield f"{address}/{name}: expected only files of the manifest, found one more"
    local = Path(root) if not is_remote(address) else None
    for name in sorted(found & set(manifest.files)):
        if local is not None and (fault := _file_fault(local, local / name)):
            yield fault
            continue
        digest = _digest(fs, f"{root}/{name}")
        if digest != manifest.files[name]:
            yield f"{address}/{name}: expected SHA-256 {manifest.files[name]}, found {digest}"


def _file_fault(root: Path, path: Path) -> str:
    """A link that leads out of the store brings bytes that are not its own, and a FIFO none at all."""
    try:
        expect_file(inside(root, path), "a file of the store")
    except InputError as error:
        return str(error)
    return ""


def _digest(fs: Any, path: str) -> str:
    """Piece by piece: a shard may be larger than the memory."""
    digest = hashlib.sha256()
    with fs.open(path, "rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
    return digest.hexdigest()


def _table_faults(store: Store) -> Iterator[str]:
    cases, counts, what = store.cases, store.manifest.counts, f"{store.address}/cases.csv"
    if again := len(cases) - len(set(cases.case)):
        yield f"{what}: expected every case once, found {again} again"
    if unknown := sorted(set(cases.split) - set(SPLITS)):
        yield f"{what}: expected the splits {', '.join(SPLITS)}, found {', '.join(map(repr, unknown))}"
    if shared := leak(cases.patient, cases.split):
        yield f"{what}: expected every patient in one split, found {shared}"
    if (found := cases.counts()) != counts:
        yield f"{what}: expected the counts {counts}, found {found}"
    if ((cases.raters < 1) | (cases.raters > store.raters)).any():
        found = f"{cases.raters.min()} to {cases.raters.max()}"
        yield f"{what}: expected 1 to {store.raters} raters per case, found {found}"


def _value_faults(store: Store, progress: Progress) -> Iterator[str]:
    """Block by block, so that memory does not grow with the store."""
    one = prod(store.size) * (4 * len(store.channels) + store.raters * len(store.targets))
    step, targets = cases_per_shard(one), Targets(store.targets, store.input_spec.kind)
    for first in range(0, len(store), step):
        indices = np.arange(first, min(first + step, len(store)))
        try:
            images, masks = store.read_stored(indices)
        except InputError as error:
            yield str(error)
            return
        where = f"{store.address}: cases {indices[0]} to {indices[-1]}"
        if masks.max(initial=0) > 1:
            yield f"{where}: expected masks of 0 and 1, found {masks.max()}"
        padding = np.arange(store.raters) >= store.cases.raters[indices, None]
        if masks[padding].any():
            yield f"{where}: expected zeros beyond a case's own raters, found others"
        if images.dtype.kind == "f" and not (images.min() >= 0 and images.max() <= 1):
            yield f"{where}: expected images in [0, 1], found {images.min():g} to {images.max():g}"
        if wrong := next((found for case in masks if (found := targets.violation(case))), ""):
            yield f"{where}: expected {targets.kind} targets ({targets.rule}), found {wrong}"
        progress(int(indices[-1]) + 1, len(store))
