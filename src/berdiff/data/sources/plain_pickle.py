"""Pickles as data: arrays, numbers, text, lists and dicts. Steps are looked through before any is carried out, and what
would make a small file large is refused; then an unpickler that knows a few names of numpy runs it."""

import mmap
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from berdiff.data.describe import decoding, expect
from berdiff.data.limits import check_size
from berdiff.data.paths import expect_file
from berdiff.errors import InputError

# How long the argument of each step is: so many bytes, a length before it in so many bytes (negative), or lines of text
# ("lines"). A step that is not listed is not carried out: sets, which hash; names by number; buffers and objects of
# elsewhere; the stack's own copies, by which a tuple could be put into itself unseen.
_LINES: dict[int, int] = dict.fromkeys(b"ILFVSpg", 1) | {b"c"[0]: 2, b"i"[0]: 2}
_FIXED: dict[int, int] = dict.fromkeys(b"(.NadelostRu]}b)\x85\x86\x87\x88\x89\x81\x92\x93\x94", 0)
_FIXED |= {b"J"[0]: 4, b"K"[0]: 1, b"M"[0]: 2, b"G"[0]: 8, 0x80: 1, 0x95: 8, b"q"[0]: 1, b"r"[0]: 4, b"h"[0]: 1}
_FIXED |= {b"j"[0]: 4}
_COUNTED: dict[int, int] = {b"T"[0]: 4, b"U"[0]: 1, b"X"[0]: 4, 0x8C: 1, 0x8D: 8, b"B"[0]: 4, b"C"[0]: 1}
_COUNTED |= {0x8E: 8, 0x96: 8, 0x8A: 1, 0x8B: 4}
_TUPLES = frozenset(b"t\x85\x86\x87")
_PUTS, _GETS, _MEMOIZE = frozenset(b"pqr"), frozenset(b"ghj"), 0x94
_SILENT = frozenset([0x80, 0x95, _MEMOIZE, *_PUTS])  # leave the top of the stack as it is
_STOP = b"."[0]


def load_plain(path: Path) -> Any:
    """The content of a pickle of plain types and numeric numpy arrays; anything else is refused, not run."""
    expect_file(path, "a pickle")
    expect(path.stat().st_size, path, "a whole pickle", "a damaged or foreign file (an empty one)", "damaged")
    with decoding(path, "a whole pickle", "a damaged or foreign file"), path.open("rb") as file:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            _look_through(content)
        unpickler = _PlainUnpickler(file, encoding="latin1")  # for files of Python 2
        unpickler.path = path
        return unpickler.load()


def _look_through(content: mmap.mmap) -> None:
    """Raise where a step is none of the plain ones, or costs more than the bytes that ask for it."""
    place, steps, last, end = 0, 0, 0, len(content)
    stored, tuples = set[int](), set[int]()  # places of the memo
    while True:
        step = content[place]
        place, start, steps = place + 1, place + 1, steps + 1
        if step in _FIXED:
            place += _FIXED[step]
        elif step in _COUNTED:
            width = _COUNTED[step]
            place += width + int.from_bytes(content[place : place + width], "little")
        elif step in _LINES:
            for _ in range(_LINES[step]):
                place = content.find(b"\n", place) + 1 or end + 1
        else:
            raise pickle.UnpicklingError(f"the step {bytes([step])!r} is none of plain data")
        if place > end:
            raise pickle.UnpicklingError("it ends too early")
        if step == _STOP:
            return
        if step in _PUTS or step == _MEMOIZE:
            number = len(stored) if step == _MEMOIZE else _number(content[start:place], step)
            stored.add(number)
            if number > steps:
                raise pickle.UnpicklingError("a place beyond what is stored")
            if last in _TUPLES:
                tuples.add(number)
            else:
                tuples.discard(number)
        elif step in _GETS and _number(content[start:place], step) in tuples:
            raise pickle.UnpicklingError("the same tuple in several places")
        if step not in _SILENT:
            last = step


def _number(argument: bytes, step: int) -> int:
    return int(argument[:20]) if step in b"pg" else int.from_bytes(argument, "little")


class StoredDtype:
    """Stands for numpy.dtype: a kind of number and its byte order. Nothing of numpy's own unpickling code is used."""

    def __init__(self, code: str, *_: object):
        self.dtype = np.dtype(code if isinstance(code, str) else "O")
        if self.dtype.kind not in "biuf":
            raise pickle.UnpicklingError(f"arrays must hold numbers, not {code!r}")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])

    def numbers(self, content: Any) -> np.ndarray:
        # Python 2 wrote bytes as text
        return np.frombuffer(content.encode("latin1") if isinstance(content, str) else content, self.dtype)


class StoredArray:
    """Stands for numpy.ndarray while a pickle is read. Floats of 64 bits are kept in 32: v1 holds 15,096 slices."""

    array: np.ndarray | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, content = state
        self.fill(content, dtype, shape, "F" if fortran else "C")

    def fill(self, content: Any, dtype: StoredDtype, shape: tuple[int, ...], order: Any, *_: object) -> "StoredArray":
        check_size("an array", shape, dtype.dtype.itemsize)
        array = dtype.numbers(content).reshape(shape, order=order)
        if array.dtype.kind == "f" and array.dtype.itemsize == 8:
            with np.errstate(over="ignore"):  # a value too large for an image is found by who asked for one
                array = array.astype(np.float32)
        self.array = array
        return self


_KNOWN: dict[str, Any] = {
    "numpy.ndarray": StoredArray,
    "numpy.dtype": StoredDtype,
    # how protocols 0 to 2 write bytes; the encoding is not the file's to choose
    "_codecs.encode": lambda text, encoding: text.encode("latin1"),
    "numpy.core.multiarray._reconstruct": lambda *_: StoredArray(),
    "numpy.core.multiarray.scalar": lambda dtype, content: dtype.numbers(content)[0].item(),
    "numpy.core.numeric._frombuffer": lambda *filling: StoredArray().fill(*filling),
}


class _PlainUnpickler(pickle.Unpickler):
    path: Path

    def find_class(self, module: str, name: str) -> Any:
        known = _KNOWN.get(f"{module}.{name}".replace("numpy._core.", "numpy.core."))  # numpy 2's name for it
        if known is None:
            raise InputError(f"{self.path}: {module}.{name} is no plain type; not loaded", "kind")
        return known
