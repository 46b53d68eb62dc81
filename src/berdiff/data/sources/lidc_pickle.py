"""LIDC v1 as a pickle: name -> {"image": floats (128, 128) in [0, 1], "masks": 4 of (128, 128), "series_uid": str}.

A pickle is a program. This one is read by an unpickler that knows arrays, numbers, text and containers, and nothing
else: any other name in the file is refused before anything of it runs.
"""

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from berdiff.data.case import Case, Reading
from berdiff.data.images import binary
from berdiff.errors import InputError

# what a damaged pickle can raise while its plain opcodes are carried out
_BROKEN = (
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    MemoryError,
    RecursionError,
    ImportError,
    OSError,
)


@dataclass(frozen=True)
class Options:
    """`data_lidc.pickle` needs none: everything is in the file."""


def read(path: Path, options: Options) -> Reading:
    slices = load(path)
    if not isinstance(slices, dict) or not slices:
        found = "an empty one" if slices == {} else type(slices).__name__
        raise InputError(f"{path}: expected a dict from slice names to slices, found {found}")
    first = next(iter(slices))
    image, masks, _ = _slice(first, slices[first], path)
    height, width = image.shape
    return Reading(
        channels=("ct",),
        targets=("nodule",),
        raters=len(masks),
        size=(height, width),
        dtype="float32",
        total=len(slices),
        cases=_cases(slices, path),
        notes=("patients are told apart by series",),
    )


def load(path: Path) -> Any:
    """The content of a pickle of plain types and numeric numpy arrays; anything else is refused, not run."""
    if not path.is_file():
        raise InputError(f"{path}: expected a pickle, found {'a folder' if path.is_dir() else 'nothing'}")
    try:
        with path.open("rb") as file:
            return _PlainUnpickler(file).load()
    except InputError:
        raise
    except _BROKEN as error:
        raise InputError(f"{path}: expected a whole pickle, found a damaged or foreign file ({error})") from error


def _cases(slices: dict[Any, Any], path: Path) -> Iterator[Case]:
    for name in list(slices):
        image, masks, patient = _slice(name, slices.pop(name), path)  # pop: its memory is not needed any more
        yield Case(
            name=str(name),
            patient=patient,
            image=image[None],
            masks=masks[:, None],
            volume=patient,
            source=str(name),
        )


def _slice(name: object, entry: object, path: Path) -> tuple[np.ndarray, np.ndarray, str]:
    """image (H, W) float32, masks (R, H, W) uint8, series."""
    where = f"{path}: slice {name!r}"
    if not isinstance(entry, dict) or not {"image", "masks", "series_uid"} <= set(entry):
        found = ", ".join(map(str, entry)) if isinstance(entry, dict) else type(entry).__name__
        raise InputError(f"{where}: expected image, masks and series_uid, found {found}")
    image = _array(entry["image"], f"{where}: image")
    if image.ndim != 2 or not image.size:
        raise InputError(f"{where}: expected an image (H, W), found the shape {image.shape}")
    image = image.astype(np.float32)
    if not (image.min() >= 0 and image.max() <= 1):  # false for NaN too
        raise InputError(f"{where}: expected an image in [0, 1], found {image.min():g} to {image.max():g}")
    readers = entry["masks"] if isinstance(entry["masks"], list | tuple) else [*_array(entry["masks"], where)]
    masks = [_array(mask, f"{where}: mask {k}") for k, mask in enumerate(readers)]
    if not masks:
        raise InputError(f"{where}: expected masks, found none")
    for k, mask in enumerate(masks):
        if mask.shape != image.shape:
            raise InputError(f"{where}: mask {k}: expected the image's size {image.shape}, found {mask.shape}")
    stacked = np.stack([binary(mask, f"{where}: mask {k}") for k, mask in enumerate(masks)])
    return image, stacked, str(entry["series_uid"])


def _array(value: object, what: str) -> np.ndarray:
    if isinstance(value, _Array) and value.array is not None:
        return value.array
    if isinstance(value, np.ndarray):
        return value
    raise InputError(f"{what}: expected a numeric array, found {type(value).__name__}")


class _Dtype:
    """Stands for numpy.dtype: a kind of number and its byte order. Nothing of numpy's own unpickling code is used."""

    def __init__(self, code: str, *_: object):
        self.dtype = np.dtype(str(code))
        if self.dtype.kind not in "biuf":
            raise pickle.UnpicklingError(f"arrays must hold numbers, not {code!r}")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    """Stands for numpy.ndarray while a pickle is read. Floats of 64 bits are kept in 32: v1 holds 15,096 slices."""

    array: np.ndarray | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, content = state
        if isinstance(content, str):  # as Python 2 wrote bytes
            content = content.encode("latin1")
        self.fill(content, dtype, shape, "F" if fortran else "C")

    def fill(self, content: Any, dtype: _Dtype, shape: tuple[int, ...], order: Any) -> "_Array":
        array = np.frombuffer(content, dtype.dtype).reshape(shape, order=order)
        if array.dtype.kind == "f" and array.dtype.itemsize == 8:
            with np.errstate(over="ignore"):  # a value too large for an image is found by who asked for one
                array = array.astype(np.float32)
        self.array = array
        return self


def _reconstruct(*_: object) -> _Array:
    return _Array()


def _from_buffer(content: Any, dtype: _Dtype, shape: tuple[int, ...], order: str, *_: object) -> _Array:
    return _Array().fill(content, dtype, shape, order)


def _scalar(dtype: _Dtype, content: Any) -> Any:
    content = content.encode("latin1") if isinstance(content, str) else content
    return np.frombuffer(content, dtype.dtype)[0].item()


def _latin1(text: str, encoding: str) -> bytes:
    """How protocols 0 to 2 write bytes. The encoding is not the file's to choose."""
    return text.encode("latin1")


_KNOWN: dict[str, Any] = {
    "numpy.ndarray": _Array,
    "numpy.dtype": _Dtype,
    "_codecs.encode": _latin1,
    **{f"numpy.{core}.multiarray._reconstruct": _reconstruct for core in ("core", "_core")},
    **{f"numpy.{core}.multiarray.scalar": _scalar for core in ("core", "_core")},
    **{f"numpy.{core}.numeric._frombuffer": _from_buffer for core in ("core", "_core")},
}


class _PlainUnpickler(pickle.Unpickler):
    def __init__(self, file: Any):
        super().__init__(file, encoding="latin1")  # for files of Python 2
        self._path = file.name

    def find_class(self, module: str, name: str) -> Any:
        known = _KNOWN.get(f"{module}.{name}")
        if known is None:
            raise InputError(f"{self._path}: expected numpy arrays and plain types, found {module}.{name}; not loaded")
        return known
