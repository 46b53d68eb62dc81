"""LIDC v1 as a pickle: name -> {"image": floats (128, 128) in [0, 1], "masks": 4 of (128, 128), "series_uid": str}.

A pickle is a program. This one is read by an unpickler that knows arrays, numbers, text and containers, and nothing
else: any other name in the file is refused before anything of it runs.
"""

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from berdiff.data.case import Case, Reading
from berdiff.data.describe import expect, refusing
from berdiff.data.images import binary
from berdiff.data.paths import expect_file
from berdiff.data.sources.lidc import LidcReading
from berdiff.errors import InputError


@dataclass(frozen=True)
class Options:
    """`data_lidc.pickle` needs none: everything is in the file."""


def read(path: Path, options: Options) -> Reading:
    slices = load(path)
    found = "an empty one" if slices == {} else type(slices).__name__
    expect(isinstance(slices, dict) and slices, path, "a dict from slice names to slices", found)
    names = list(slices)
    first = _case(names[0], slices[names[0]], path)
    return LidcReading(
        raters=len(first.masks),
        size=first.image.shape[1:],
        dtype="float32",
        total=len(slices),
        cases=(_case(name, slices.pop(name), path) for name in names),  # pop: its memory is not needed any more
        notes=("patients are told apart by series",),
    )


def load(path: Path) -> Any:
    """The content of a pickle of plain types and numeric numpy arrays; anything else is refused, not run."""
    expect_file(path, "a pickle")
    broken = (Exception,)  # while the plain opcodes of a damaged pickle are carried out, anything can go wrong
    with refusing(broken, path, "a whole pickle", "a damaged or foreign file"), path.open("rb") as file:
        unpickler = _PlainUnpickler(file, encoding="latin1")  # for files of Python 2
        unpickler.path = path
        return unpickler.load()


def _case(name: object, entry: Any, path: Path) -> Case:
    where = f"{path}: slice {name!r}"
    found = ", ".join(map(str, entry)) if isinstance(entry, dict) else type(entry).__name__
    fits = isinstance(entry, dict) and {"image", "masks", "series_uid"} <= set(entry)
    expect(fits, where, "image, masks and series_uid", found)
    image = _array(entry["image"], f"{where}: image")
    expect(image.ndim == 2 and image.size, where, "an image (H, W)", f"the shape {image.shape}")
    image = image.astype(np.float32)
    low, high = image.min(), image.max()
    expect(low >= 0 and high <= 1, where, "an image in [0, 1]", f"{low:g} to {high:g}")  # false for NaN too
    readers = entry["masks"] if isinstance(entry["masks"], list | tuple) else _array(entry["masks"], where)
    expect(len(readers), where, "masks")
    masks = []
    for k, mask in enumerate(readers):
        which = f"{where}: mask {k}"
        mask = _array(mask, which)
        expect(mask.shape == image.shape, which, f"the image's size {image.shape}", mask.shape)
        masks.append(binary(mask, which))
    patient = str(entry["series_uid"])
    return Case(str(name), patient, image[None], np.stack(masks)[:, None], volume=patient, source=str(name))


def _array(value: object, what: str) -> np.ndarray:
    array = value.array if isinstance(value, _Array) else value
    if not isinstance(array, np.ndarray):
        raise InputError(f"{what}: expected a numeric array, found {type(value).__name__}")
    return array


class _Dtype:
    """Stands for numpy.dtype: a kind of number and its byte order. Nothing of numpy's own unpickling code is used."""

    def __init__(self, code: str, *_: object):
        self.dtype = np.dtype(str(code))
        if self.dtype.kind not in "biuf":
            raise pickle.UnpicklingError(f"arrays must hold numbers, not {code!r}")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])

    def numbers(self, content: Any) -> np.ndarray:
        # Python 2 wrote bytes as text
        return np.frombuffer(content.encode("latin1") if isinstance(content, str) else content, self.dtype)


class _Array:
    """Stands for numpy.ndarray while a pickle is read. Floats of 64 bits are kept in 32: v1 holds 15,096 slices."""

    array: np.ndarray | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, content = state
        self.fill(content, dtype, shape, "F" if fortran else "C")

    def fill(self, content: Any, dtype: _Dtype, shape: tuple[int, ...], order: Any, *_: object) -> "_Array":
        array = dtype.numbers(content).reshape(shape, order=order)
        if array.dtype.kind == "f" and array.dtype.itemsize == 8:
            with np.errstate(over="ignore"):  # a value too large for an image is found by who asked for one
                array = array.astype(np.float32)
        self.array = array
        return self


_KNOWN: dict[str, Any] = {
    "numpy.ndarray": _Array,
    "numpy.dtype": _Dtype,
    # how protocols 0 to 2 write bytes; the encoding is not the file's to choose
    "_codecs.encode": lambda text, encoding: text.encode("latin1"),
    "numpy.core.multiarray._reconstruct": lambda *_: _Array(),
    "numpy.core.multiarray.scalar": lambda dtype, content: dtype.numbers(content)[0].item(),
    "numpy.core.numeric._frombuffer": lambda *filling: _Array().fill(*filling),
}


class _PlainUnpickler(pickle.Unpickler):
    path: Path

    def find_class(self, module: str, name: str) -> Any:
        known = _KNOWN.get(f"{module}.{name}".replace("numpy._core.", "numpy.core."))  # numpy 2's name for it
        if known is None:
            raise InputError(f"{self.path}: expected numpy arrays and plain types, found {module}.{name}; not loaded")
        return known
