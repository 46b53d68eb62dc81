"""Check a store against its own manifest: every byte, every count, every value, and no patient in two splits."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from berdiff.data import manifest as manifests
from berdiff.data.case import SPLITS, Progress
from berdiff.data.shards import shard_path
from berdiff.data.split import leak
from berdiff.data.store import Store, filesystem
from berdiff.errors import InputError


def verify(address: str | Path, progress: Progress = lambda done, total: None) -> list[str]:
    """The faults of a store, one sentence each; none means that it is whole. What cannot be opened raises."""
    store = Store.open(address)
    fs, root = filesystem(store.address)
    faults = _file_faults(store, fs, root) + _table_faults(store)
    if not faults:  # values behind a wrong checksum or count tell nothing new
        faults = _value_faults(store, progress)
    return faults


def _file_faults(store: Store, fs: Any, root: str) -> list[str]:
    manifest, address = store.manifest, store.address
    faults = []
    if fs.cat_file(f"{root}/{manifests.NAME}") != manifest.text().encode():
        faults.append(f"{address}/{manifests.NAME}: expected the text berdiff writes, found it altered")
    base = root.rstrip("/") + "/"
    found = {path.removeprefix(base) for path in fs.find(root)} - {manifests.NAME}
    shards = range(-(-len(store) // manifest.shard))
    needed = {shard_path("images", i, 4) for i in shards} | {shard_path("masks", i, 5) for i in shards}
    for name in sorted((set(manifest.files) | needed) - found):
        faults.append(f"{address}/{name}: expected a file of the store, found none")
    for name in sorted(found - set(manifest.files)):
        faults.append(f"{address}/{name}: expected only files of the manifest, found one more")
    for name in sorted(found & set(manifest.files)):
        digest = hashlib.sha256(fs.cat_file(f"{root}/{name}")).hexdigest()
        if digest != manifest.files[name]:
            faults.append(f"{address}/{name}: expected SHA-256 {manifest.files[name]}, found {digest}")
    return faults


def _table_faults(store: Store) -> list[str]:
    cases, what, faults = store.cases, f"{store.address}/cases.csv", []
    if len(set(cases.case)) != len(cases):
        faults.append(f"{what}: expected every case once, found {len(cases) - len(set(cases.case))} again")
    unknown = sorted(set(cases.split) - set(SPLITS))
    if unknown:
        faults.append(f"{what}: expected the splits {', '.join(SPLITS)}, found {', '.join(map(repr, unknown))}")
    shared = leak(cases.patient, cases.split)
    if shared:
        faults.append(f"{what}: expected every patient in one split, found {shared}")
    if cases.counts() != store.manifest.counts:
        faults.append(f"{what}: expected the counts {store.manifest.counts}, found {cases.counts()}")
    if len(cases) and not (cases.raters.min() >= 1 and cases.raters.max() <= store.raters):
        low, high = cases.raters.min(), cases.raters.max()
        faults.append(f"{what}: expected 1 to {store.raters} readers a case, found {low} to {high}")
    return faults


def _value_faults(store: Store, progress: Progress) -> list[str]:
    """Block by block, so that memory does not grow with the store."""
    faults = []
    for first in range(0, len(store), store.manifest.shard):
        indices = np.arange(first, min(first + store.manifest.shard, len(store)))
        try:
            images, masks = store.read_stored(indices)
        except InputError as error:
            return [*faults, str(error)]
        where = f"{store.address}: cases {indices[0]} to {indices[-1]}"
        if masks.max(initial=0) > 1:
            faults.append(f"{where}: expected masks of 0 and 1, found {masks.max()}")
        padding = np.arange(store.raters) >= store.cases.raters[indices, None]
        if masks[padding].any():
            faults.append(f"{where}: expected zeros beyond a case's own readers, found others")
        if images.dtype.kind == "f" and not (images.min() >= 0 and images.max() <= 1):
            faults.append(f"{where}: expected images in [0, 1], found {images.min():g} to {images.max():g}")
        progress(int(indices[-1]) + 1, len(store))
    return faults
