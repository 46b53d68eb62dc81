"""How large an image may be: asked by every reader, by the header. A command sets the limits of the process once."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Annotated

from annotated_types import Ge, Gt, Le
from tyro.conf import arg

from berdiff.errors import InputError
from berdiff.schema import Settings

GIGABYTE = 10**9
MAX_TEXT = 256 * 2**20  # bytes of a text file, such as a table of cases


@dataclass(frozen=True)
class Limits(Settings):
    """Size limits of one image or volume."""

    max_pixels: Annotated[int, Ge(1), Le(2**48), arg(metavar="N")] = 2**29
    """largest image or volume to read, in pixels (or voxels) of all its channels; larger ones are refused by their
    headers. The default is 2,048 slices of 512x512"""
    max_gigabytes: Annotated[float, Gt(0), Le(10**5), arg(metavar="GB")] = 2.0
    """most memory that the values of one image or volume may take when they are unpacked"""


_current = Limits()


def set_limits(limits: Limits) -> Limits:
    """These hold in this process from now on, in all its threads; returns those before."""
    global _current
    before, _current = _current, limits
    return before


@contextmanager
def using(limits: Limits) -> Iterator[None]:
    """The same for the time of a block."""
    before = set_limits(limits)
    try:
        yield
    finally:
        set_limits(before)


def check_size(where: object, shape: Iterable[int], itemsize: int) -> None:
    """Refuse an array of this shape; `itemsize` is that of its values, in bytes."""
    shape = tuple(int(length) for length in shape)
    pixels = prod(shape)
    if pixels > _current.max_pixels:
        most, found = _current.max_pixels, f"{pixels} ({'x'.join(map(str, shape))})"
        raise InputError(f"{where}: expected at most {most} pixels (--max-pixels), found {found}", "limit")
    check_bytes(where, pixels * itemsize)


def check_bytes(where: object, count: int, share: float = 1.0, found: str = "") -> None:
    """Refuse so many bytes. `share`: the part of the limit that holds here, where several copies will be needed."""
    if count > share * _current.max_gigabytes * GIGABYTE:
        most, found = f"{share * _current.max_gigabytes:g} GB", found or f"{count / GIGABYTE:.3g} GB"
        raise InputError(f"{where}: expected at most {most} when unpacked (--max-gigabytes), found {found}", "limit")
