"""Write a store: check every case, fill shards, split by patient, and let the store appear whole at the end."""

import dataclasses
import glob
import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from math import isnan, nan, prod
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import ZstdCodec

from berdiff import __version__, schema
from berdiff.data import manifest as manifests
from berdiff.data import table as tables
from berdiff.data.case import Case, Progress, Reading
from berdiff.data.describe import check, expect, refusing
from berdiff.data.input_spec import InputSpec
from berdiff.data.limits import check_size
from berdiff.data.manifest import Manifest
from berdiff.data.numbers import MAX_MM
from berdiff.data.shards import LEVEL, cases_per_shard, packed, shard_path, write_shard
from berdiff.data.sources import find_source
from berdiff.data.split import check_own_split, split_patients
from berdiff.data.store import embedded_path
from berdiff.data.table import CaseRow
from berdiff.errors import InputError
from berdiff.files import lock, settle, whole_folder
from berdiff.remote import new_folder, place
from berdiff.targets.targets import Targets


def prepare(
    source: str,
    path: Path | None,
    out: Path | str,
    options: Any = None,
    *,
    seed: int = 0,
    val: float = 0.1,
    test: float = 0.2,
    resplit: bool = False,
    progress: Progress = lambda done, total: None,
) -> Manifest:
    """Read `path` as the layout `source` and write the store `out`, a folder or address that must not exist. A split
    that the source brings is kept, unless `resplit`; otherwise patients are split by `seed`, `val` and `test`."""
    module = find_source(source)
    options = schema.check(options or module.Options(), module.Options, lambda option: f"--{option.replace('_', '-')}")
    with refusing((UnicodeEncodeError,), path, "a name in UTF-8", "other bytes", "name"):
        f"{path}{out}".encode()  # the manifest keeps the name
    split_patients([], seed, val, test)  # refuse bad fractions before the work, not after it
    out = place(out)
    if isinstance(out, str):
        how = {"seed": seed, "val": val, "test": test, "resplit": resplit, "progress": progress}
        with new_folder(out, last=manifests.NAME) as folder:
            return prepare(source, path, folder, options, **how)
    with one_writer(out):
        expect(not out.exists(), out, "a new store", "something there already; remove it first", "changed")
        reading: Reading = module.read(path, options)
        named = reading.patients_known or not resplit
        expect(named, "--resplit", "a source that names patients", f"none in {path}", "conflict")
        with whole_folder(out) as folder:
            rows, by_source, shard = _write_arrays(folder, reading, str(path or source), progress)
            if resplit or not by_source:
                splits = split_patients((row.patient for row in rows), seed, val, test)
                rows = [row._replace(split=splits[row.patient]) for row in rows]
                split: dict[str, Any] = {"by": "patient", "seed": seed, "val": val, "test": test}
            else:
                check_own_split([row.patient for row in rows], [row.split for row in rows], str(path))
                split = {"by": "source"}
            text = tables.table_text(rows, len(reading.size))
            (folder / tables.NAME).write_text(text, encoding="utf-8", newline="")
            files = {file.relative_to(folder).as_posix(): file for file in folder.rglob("*") if file.is_file()}
            about = reading.intensity, source, reading.notes, Targets(reading.targets, reading.kind).kind
            seen: dict[str, Any] = {"modality": reading.modality, "crops": reading.crops, "spacing": reading.spacing}
            spec = InputSpec(reading.size, reading.channels, reading.targets, *about, **seen)
            manifest = Manifest(
                input_spec=spec,
                # Of a path only the name is kept: the rest is about the machine, not the data.
                options=json.loads(json.dumps(_given(options), default=lambda path: path.name)),
                path=path.resolve().name if path else "",
                raters=reading.raters,
                dtype=reading.dtype,
                shard=shard,
                split=split,
                counts=tables.parse_table(text, tables.NAME).counts(),
                files={name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items()},
                berdiff=__version__,
            )
            (folder / manifests.NAME).write_text(manifest.text(), encoding="utf-8", newline="")
            settle(folder)  # a store that appears survives a power cut
    return manifest


def prepare_embedded(cache: Path, progress: Progress) -> Path:
    """The embedded data set in `cache`, made if it is not there yet."""
    out = embedded_path(cache)
    if not out.exists():
        try:
            prepare("lidc-readers", None, out, progress=progress)
        except InputError:
            if not out.exists():  # otherwise another process has just made it while this one waited
                raise
    return out


def _given(options: Any) -> dict[str, Any]:
    """Without the options that 0.2.0 did not know and nobody asked for: its stores keep their bytes."""
    new = getattr(options, "SINCE_0_3", ())
    return {name: value for name, value in dataclasses.asdict(options).items() if value is not None or name not in new}


@contextmanager
def one_writer(out: Path) -> Iterator[None]:
    """One writer of `out` at a time; what a killed one has left behind is removed."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        held = lock(out.with_name(f".{out.name}.lock"))
    except OSError as error:
        raise InputError(f"{out}: no store can be written there ({error.strerror})", "access") from error
    assert held is not None  # it waits until it has it
    with held:
        for left in out.parent.glob(f".{glob.escape(out.name)}.????????.part"):
            shutil.rmtree(left, ignore_errors=True)
        try:
            yield
        finally:
            Path(held.name).unlink()


def _write_arrays(folder: Path, reading: Reading, what: str, progress: Progress) -> tuple[list[CaseRow], bool, int]:
    """Fill images and masks shard by shard; the rows of the table, whether the source brought a split, and how many
    cases a shard has. Cases are packed as they come, so no more than one is held as it is."""
    shapes: dict[str, tuple[int, ...]] = {"images": (len(reading.channels), *reading.size)}
    shapes["masks"] = (reading.raters, len(reading.targets), *reading.size)
    dtypes = {"images": reading.dtype, "masks": "uint8"}
    for name, shape in shapes.items():
        check_size(f"{what}: {name}", shape, np.dtype(dtypes[name]).itemsize)
    shard = cases_per_shard(sum(prod(shapes[name]) * np.dtype(dtypes[name]).itemsize for name in shapes))
    chunks: dict[str, list[bytes]] = {"images": [], "masks": []}
    masks = np.zeros(shapes["masks"], np.uint8)
    rows: list[CaseRow] = []
    names: set[str] = set()

    def flush() -> None:
        """Write the shard that holds the last row."""
        for name, packs in chunks.items():
            write_shard(folder / shard_path(name, (len(rows) - 1) // shard, 1 + len(shapes[name])), packs, shard)
            packs.clear()

    for case in reading.cases:
        _check(case, reading, names, what)
        masks[: len(case.masks)], masks[len(case.masks) :] = case.masks, 0
        chunks["images"].append(packed(case.image))
        chunks["masks"].append(packed(masks))
        spacing = case.spacing or (nan,) * len(reading.size)
        about = (case.name, case.patient, case.volume, spacing, case.source, case.split)
        rows.append(CaseRow(*about, raters=len(case.masks)))
        if len(rows) % shard == 0:
            flush()
        progress(len(rows), reading.total)
    expect(rows, what, "at least one case")
    if len(rows) % shard:
        flush()
    group = zarr.open_group(folder, mode="a", zarr_format=3)
    layout: Any = {"compressors": ZstdCodec(level=LEVEL), "fill_value": 0, "overwrite": False}
    for name, one in shapes.items():  # zarr.json, which describes the shards beside it
        cut = {"shape": (len(rows), *one), "chunks": (1, *one), "shards": (shard, *one)}
        group.create_array(name, dtype=dtypes[name], **cut, **layout)
    with_split = sum(row.split != "" for row in rows)
    check(with_split in (0, len(rows)), f"{what}: only {with_split} of {len(rows)} cases have a split", "missing")
    return rows, bool(with_split), shard


def _check(case: Case, reading: Reading, names: set[str], what: str) -> None:
    """What every case must keep, whatever source it came from; the sources check what only they can know."""
    where = f"{what}: case {case.name!r}" + (f" ({case.source})" if case.source else "")
    image, masks = case.image, case.masks
    expect(case.name and case.patient, where, "a name and a patient", f"{case.name!r} and {case.patient!r}", "missing")
    with refusing((UnicodeEncodeError,), where, "names in Unicode", "other bytes", "name"):
        f"{case.name}{case.patient}{case.volume}{case.source}".encode()
    expect(case.name not in names, where, "every case once", "a second one of that name", "name")
    names.add(case.name)
    shape = (len(reading.channels), *reading.size)
    expect(image.shape == shape, where, f"an image of shape {shape}", image.shape, "shape")
    expect(image.dtype == reading.dtype, where, f"an image of {reading.dtype}", image.dtype, "kind")
    if image.dtype.kind == "f":
        low, high = image.min(), image.max()  # NaN is in no range either
        expect(low >= 0 and high <= 1, where, "an image in [0, 1]", f"values from {low:g} to {high:g}")
    rest = (len(reading.targets), *reading.size)
    fits = masks.ndim == 1 + len(rest) and masks.shape[1:] == rest and 1 <= len(masks) <= reading.raters
    expect(fits, where, f"masks of shape (1 to {reading.raters}, {', '.join(map(str, rest))})", masks.shape, "shape")
    top = masks.max(initial=0)
    expect(masks.dtype == np.uint8 and top <= 1, where, "masks of 0 and 1", f"values up to {top:g}")
    targets = Targets(reading.targets, reading.kind)
    wrong = targets.violation(masks)
    expect(not wrong, where, f"{targets.kind} targets ({targets.rule})", wrong)
    if case.spacing is not None:
        known = all(0 < mm < MAX_MM or isnan(mm) for mm in case.spacing) and len(case.spacing) == len(reading.size)
        expect(known, where, "a spacing in mm along each axis, or none", case.spacing)
