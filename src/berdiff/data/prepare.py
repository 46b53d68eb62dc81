"""Write a store: check every case, fill shards, split by patient, and let the store appear whole at the end."""

import dataclasses
import fcntl
import glob
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import zarr
from zarr.codecs import ZstdCodec

from berdiff import __version__
from berdiff.data import manifest as manifests
from berdiff.data import table as tables
from berdiff.data.case import Case, Progress, Reading
from berdiff.data.manifest import Manifest
from berdiff.data.shards import LEVEL, shard_path, write_shard
from berdiff.data.sources import source as find_source
from berdiff.data.split import check_own_split, split_patients
from berdiff.data.table import Row
from berdiff.errors import InputError
from berdiff.files import whole_folder

SHARD = 256  # cases in one file: 54 files an array for all of LIDC, and 16 MB of masks in memory while it is written


def prepare(
    source: str,
    path: Path | None,
    out: Path,
    options: Any = None,
    *,
    seed: int = 0,
    val: float = 0.1,
    test: float = 0.2,
    resplit: bool = False,
    progress: Progress = lambda done, total: None,
) -> Manifest:
    """Read `path` as the layout `source` and write the store `out`, which must not exist yet.

    A split the source brings is kept, unless `resplit`; otherwise patients are split by `seed`, `val` and `test`.
    """
    module = find_source(source)
    options = module.Options() if options is None else options
    split_patients([], seed, val, test)  # refuse bad fractions before the work, not after it
    with alone(out):
        if out.exists():
            raise InputError(f"{out}: expected a new store, found something there already; remove it first")
        reading: Reading = module.read(path, options)
        if resplit and not reading.patients_known:
            raise InputError(f"--resplit: expected a source that names patients, found none in {path}")
        with whole_folder(out) as folder:
            rows, by_source = _write_arrays(folder, reading, str(path or source), progress)
            if resplit or not by_source:
                splits = split_patients((row.patient for row in rows), seed, val, test)
                rows = [dataclasses.replace(row, split=splits[row.patient]) for row in rows]
                split: dict[str, Any] = {"by": "patient", "seed": seed, "val": val, "test": test}
            else:
                check_own_split([row.patient for row in rows], [row.split for row in rows], str(path))
                split = {"by": "source"}
            text = tables.table_text(rows)
            (folder / tables.NAME).write_text(text, encoding="utf-8", newline="")
            manifest = Manifest(
                source=source,
                options=_plain(dataclasses.asdict(options)),
                path=path.resolve().name if path else "",
                channels=list(reading.channels),
                targets=list(reading.targets),
                raters=reading.raters,
                size=list(reading.size),
                dtype=reading.dtype,
                shard=SHARD,
                notes=list(reading.notes),
                split=split,
                counts=tables.parse_table(text, tables.NAME).counts(),
                files=_checksums(folder),
                berdiff=__version__,
            )
            (folder / manifests.NAME).write_text(manifest.text(), encoding="utf-8", newline="")
    return manifest


def prepare_embedded(cache: Path, progress: Progress = lambda done, total: None) -> Path:
    """The embedded data set in `cache`, made if it is not there yet."""
    out = cache / f"lidc-readers-{__version__}-{manifests.FORMAT_VERSION}.zarr"
    if not out.exists():
        try:
            prepare("lidc-readers", None, out, progress=progress)
        except InputError:
            if not out.exists():  # otherwise another process has just made it while this one waited
                raise
    return out


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """One writer of `out` at a time; what a killed one has left behind is removed.

    The lock goes with the process that holds it, so whoever gets it knows that no other writer is alive.
    """
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        lock = _locked(out.with_name(f".{out.name}.lock"))
    except OSError as error:
        raise InputError(f"{out}: expected a place to write a store, found none ({error.strerror})") from error
    with lock:
        for left in out.parent.glob(f".{glob.escape(out.name)}.????????.part"):
            shutil.rmtree(left, ignore_errors=True)
        try:
            yield
        finally:
            Path(lock.name).unlink()


def _locked(path: Path) -> IO[str]:
    """The lock file, opened and locked; taken again if its last holder removed it while this process waited."""
    while True:
        lock = path.open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists() and os.path.samestat(path.stat(), os.fstat(lock.fileno())):
            return lock
        lock.close()


def _write_arrays(folder: Path, reading: Reading, what: str, progress: Progress) -> tuple[list[Row], bool]:
    """Fill images and masks shard by shard; the rows of the table, and whether the source brought a split."""
    images = np.zeros((SHARD, len(reading.channels), *reading.size), reading.dtype)
    masks = np.zeros((SHARD, reading.raters, len(reading.targets), *reading.size), np.uint8)
    arrays = {"images": images, "masks": masks}
    rows: list[Row] = []
    names: set[str] = set()

    def flush() -> None:
        """Write the shard that holds the last row."""
        number, last = divmod(len(rows) - 1, SHARD)
        for name, buffer in arrays.items():
            write_shard(folder / shard_path(name, number, buffer.ndim), buffer[: last + 1], SHARD)

    for case in reading.cases:
        _check(case, reading, names, what)
        place = len(rows) % SHARD
        images[place] = case.image
        masks[place] = 0
        masks[place, : len(case.masks)] = case.masks
        rows.append(Row(case.name, case.patient, case.volume, *case.spacing, case.source, case.split, len(case.masks)))
        if place == SHARD - 1:
            flush()
        progress(len(rows), reading.total)
    if not rows:
        raise InputError(f"{what}: expected at least one case, found none")
    if len(rows) % SHARD:
        flush()
    group = zarr.open_group(folder, mode="a", zarr_format=3)
    for name, buffer in arrays.items():
        _describe(group, name, (len(rows), *buffer.shape[1:]), buffer.dtype)
    with_split = sum(bool(row.split) for row in rows)
    if with_split not in (0, len(rows)):
        raise InputError(f"{what}: expected a split for every case or for none, found {with_split} of {len(rows)}")
    return rows, bool(with_split)


def _describe(group: zarr.Group, name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Write the array's zarr.json, which tells zarr what the shards beside it are."""
    group.create_array(
        name,
        shape=shape,
        chunks=(1, *shape[1:]),
        shards=(SHARD, *shape[1:]),
        dtype=dtype,
        compressors=ZstdCodec(level=LEVEL),
        fill_value=0,
        overwrite=False,
    )


def _check(case: Case, reading: Reading, names: set[str], what: str) -> None:
    """What every case must keep, whatever source it came from; the sources check what only they can know."""
    where = f"{what}: case {case.name!r}" + (f" ({case.source})" if case.source else "")
    if not case.name or not case.patient:
        raise InputError(f"{where}: expected a name and a patient, found {case.name!r} and {case.patient!r}")
    try:
        f"{case.name}{case.patient}{case.volume}{case.source}".encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{where}: expected names in Unicode, found other bytes in them") from error
    if case.name in names:
        raise InputError(f"{where}: expected every case once, found a second one of that name")
    names.add(case.name)
    image_shape = (len(reading.channels), *reading.size)
    if case.image.shape != image_shape:
        raise InputError(f"{where}: expected an image of shape {image_shape}, found {case.image.shape}")
    if case.image.dtype != reading.dtype:
        raise InputError(f"{where}: expected an image of {reading.dtype}, found {case.image.dtype}")
    if case.image.dtype.kind == "f":
        low, high = float(case.image.min()), float(case.image.max())
        if not (low >= 0 and high <= 1):  # false for NaN too
            raise InputError(f"{where}: expected an image in [0, 1], found values from {low:g} to {high:g}")
    rest = (len(reading.targets), *reading.size)
    if case.masks.ndim != 4 or case.masks.shape[1:] != rest or not 1 <= len(case.masks) <= reading.raters:
        expected = f"masks of shape (1 to {reading.raters}, {', '.join(map(str, rest))})"
        raise InputError(f"{where}: expected {expected}, found {case.masks.shape}")
    if case.masks.dtype != np.uint8 or case.masks.max(initial=0) > 1:
        raise InputError(f"{where}: expected masks of 0 and 1, found values up to {case.masks.max():g}")


def _checksums(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): sha256(path.read_bytes()) for path in files}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _plain(value: Any) -> Any:
    """Options as JSON types. Of a path only the name is kept: the rest is about the machine, not the data."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return value.name
    return value
