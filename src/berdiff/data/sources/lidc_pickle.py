"""LIDC v1 as a pickle: name -> {"image": floats (128, 128) in [0, 1], "masks": 4 of (128, 128), "series_uid": str}.

A pickle is a program; `plain_pickle.py` reads it without running it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from berdiff.data.case import Case, Reading
from berdiff.data.describe import expect
from berdiff.data.images import binary
from berdiff.data.sources.lidc import LidcReading
from berdiff.data.sources.plain_pickle import StoredArray, load_plain
from berdiff.errors import InputError


@dataclass(frozen=True)
class Options:
    """`data_lidc.pickle` needs none: everything is in the file."""


def read(path: Path, options: Options) -> Reading:
    slices = load_plain(path)
    found = "an empty one" if slices == {} else type(slices).__name__
    expect(isinstance(slices, dict) and slices, path, "a dict from slice names to slices", found, "kind")
    names = list(slices)
    for name in names:
        fits = isinstance(name, str) or (isinstance(name, int) and abs(name) < 2**63)
        expect(fits, path, "texts or numbers as the names of slices", type(name).__name__, "kind")
    first = _case(names[0], slices[names[0]], path)
    return LidcReading(
        raters=len(first.masks),
        size=first.image.shape[1:],
        dtype="float32",
        total=len(slices),
        cases=(_case(name, slices.pop(name), path) for name in names),  # pop: its memory is not needed any more
        notes=("patients are told apart by series",),
    )


def _case(name: object, entry: Any, path: Path) -> Case:
    where = f"{path}: slice {name!r}"
    found = ", ".join(map(str, list(entry)[:8])) if isinstance(entry, dict) else type(entry).__name__
    fits = isinstance(entry, dict) and {"image", "masks", "series_uid"} <= set(entry)
    expect(fits, where, "image, masks and series_uid", found, "missing")
    image = _array(entry["image"], f"{where}: image")
    expect(image.ndim == 2 and image.size, where, "an image (H, W)", f"the shape {image.shape}", "shape")
    image = image.astype(np.float32)
    low, high = image.min(), image.max()
    expect(low >= 0 and high <= 1, where, "an image in [0, 1]", f"{low:g} to {high:g}")  # false for NaN too
    readers = entry["masks"] if isinstance(entry["masks"], list | tuple) else _array(entry["masks"], where)
    expect(len(readers), where, "masks")
    masks = []
    for k, mask in enumerate(readers):
        which = f"{where}: mask {k}"
        mask = _array(mask, which)
        expect(mask.shape == image.shape, which, f"the image's size {image.shape}", mask.shape, "shape")
        masks.append(binary(mask, which))
    patient = entry["series_uid"]
    expect(isinstance(patient, str), where, "a text as series_uid", type(patient).__name__, "kind")
    return Case(str(name), patient, image[None], np.stack(masks)[:, None], volume=patient, source=str(name))


def _array(value: object, what: str) -> np.ndarray:
    array = value.array if isinstance(value, StoredArray) else value
    if not isinstance(array, np.ndarray):
        raise InputError(f"{what}: expected a numeric array, found {type(value).__name__}", "kind")
    return array
