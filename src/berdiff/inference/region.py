"""Which part of an image is segmented: all of it, or a region of interest. No torch here: the command line reads it."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, isfinite
from typing import Annotated, Any, Literal

from annotated_types import Ge
from tyro.conf import arg
from tyro.constructors import PrimitiveConstructorSpec

from berdiff.data.input_spec import Range, Size
from berdiff.errors import InputError
from berdiff.schema import Settings

EXTENT = 15.0  # mm below and above a centre, unless --extent says otherwise
Unit = Literal["voxel", "mm"]


def _numbers(words: list[str]) -> tuple[Any, ...]:
    """Of `7 366 316` or `7,366,316`; whole ones as int. What is no number is left to the check of all settings."""
    texts = [text for text in ",".join(words).replace(" ", ",").split(",") if text]
    try:
        return tuple(int(text) if text.lstrip("+-").isdecimal() else float(text) for text in texts)
    except ValueError:
        return tuple(texts)


_CENTER = PrimitiveConstructorSpec(
    nargs="*",
    metavar="[Z] Y X",
    instance_from_str=_numbers,
    is_instance=lambda value: value is None or isinstance(value, tuple),
    str_from_instance=lambda value: ["None"] if value is None else [f"{number:g}" for number in value],
)


def plain(numbers: Sequence[Any], name: str) -> tuple[Any, ...]:
    """Of any library's numbers, whole ones as int; `name` is the option."""
    try:
        values = [float(number) for number in numbers]
        return tuple(int(value) if value == floor(value) else value for value in values)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name}: expected numbers, found {numbers!r:.80}") from error


@dataclass(frozen=True)
class Region(Settings):
    """What is segmented; default: all. Places count from 0 in the image as shown, in the upright slices of a volume."""

    center: Annotated[tuple[float, ...] | None, _CENTER] = None
    """segment a finding at this point: a region of the network's size around it, of a volume in the slices around Z
    (--extent, --slice); Y X alone in all slices of a volume"""
    box: Annotated[tuple[int, ...] | None, arg(metavar="[Z0] Y0 X0 [Z1] Y1 X1")] = None
    """segment this region; the ends are one past the last pixel"""
    slices: Annotated[str | None, arg(metavar="A:B")] = None
    """segment only these slices of a volume, counted from 0 at the feet; either may be left out"""
    pad: bool = False  # put zeros around images that are smaller than the network
    extent: Annotated[float | None, Ge(0), arg(metavar="MM")] = None
    """with a centre Z Y X or findings: segment the slices up to so many mm below and above it, 15 unless given; so many
    slices where their distance is unknown"""
    slice: bool = False
    """with a centre Z Y X or findings: segment one slice alone, and measure areas instead of volumes"""
    center_unit: Unit = "voxel"
    """of --center: slice, row and column; or mm in space, as of --centers-unit"""

    def check(self) -> None:
        if self.center is not None and self.box is not None:
            raise InputError("center: expected no --box beside it, found both", "conflict")
        if self.center is not None and len(self.center) not in (2, 3):
            raise InputError(f"center: expected Y X or Z Y X, found {len(self.center)} numbers")
        if self.center_unit == "mm" and len(self.center or ()) != 3:
            raise InputError("center_unit: expected a centre Z Y X beside mm, found another region", "conflict")
        if self.center_unit == "voxel" and any(number != floor(number) for number in self.center or ()):
            raise InputError(f"center: expected whole numbers, or --center-unit mm, found {self._center_words}")
        if self.box is not None and len(self.box) not in (4, 6):
            raise InputError(f"box: expected Y0 X0 Y1 X1 or Z0 Y0 X0 Z1 Y1 X1, found {len(self.box)} numbers")
        if self._names_slices and self.slices is not None:
            raise InputError("slices: expected no slice in --center or --box beside it, found both", "conflict")
        if self.slice and self.extent is not None:
            raise InputError("slice: expected no --extent beside it, found both", "conflict")
        for name in ("extent", "slice"):
            if getattr(self, name) not in (None, False) and self.chosen and not self.at_place:
                raise InputError(f"{name}: expected a centre Z Y X or findings beside it, found none", "conflict")
        self._slice_ends()

    @property
    def chosen(self) -> bool:
        """Whether it is a part of the image by itself; `extent` and `pad` only say how a part is taken."""
        return (self.center, self.box, self.slices) != (None, None, None)

    @property
    def at_place(self) -> bool:
        """Whether it is a place in a volume: which slices are meant depends on the volume (`around`)."""
        return len(self.center or ()) == 3

    @property
    def reach(self) -> float | None:
        """How far it goes below and above a place, in mm; None: one slice."""
        return None if self.slice else EXTENT if self.extent is None else self.extent

    def around(self, shape: Sequence[int], spacing: Sequence[float], what: str) -> "Region":
        """Of a place as voxel the same region by the slices of a volume `(Z, H, W)` with `spacing` (nan: unknown)."""
        if self.center is None or not self.at_place:
            if self.extent is not None or self.slice:
                raise InputError(f"{what}: expected a centre Z Y X for --extent or --slice, found none", "conflict")
            return self
        if len(shape) != 3:
            raise InputError(f"{what}: expected a volume for a centre Z Y X, found a 2D image", "kind")
        z, *plane = (int(number) for number in self.center)
        _inside(z, z + 1, shape[0], "slices", what)
        between = spacing[0] if isfinite(spacing[0]) else 1.0
        # 15 mm are 25 slices of 0.6 mm, whatever the last bit says
        slices = 0 if self.reach is None else floor(self.reach / between + 1e-6)
        return Region(tuple(plane), None, f"{max(0, z - slices)}:{min(shape[0], z + slices + 1)}", self.pad)

    @property
    def _names_slices(self) -> bool:
        """Whether the centre or the box does."""
        return self.at_place or len(self.box or ()) == 6

    @property
    def _center_words(self) -> str:
        return " ".join(f"{number:g}" for number in self.center or ())

    def _slice_ends(self) -> tuple[int | None, int | None]:
        """A and B of `slices`, None where it is left out."""
        first, colon, last = (self.slices or ":").partition(":")
        if not colon or not all(end.isdecimal() for end in (first, last) if end):
            expected = "A:B with whole numbers, either of which may be left out"
            raise InputError(f"slices: expected {expected}, found {self.slices!r}")
        return (int(first) if first else None), (int(last) if last else None)

    def ranges(self, shape: tuple[int, ...], size: Size, what: str) -> tuple[Range, ...]:
        """One range per axis of `shape`, (H, W) or (Z, H, W); `what` names it in errors. A region smaller than `size`,
        (H, W) or (Z, H, W) of a network of volumes, is widened."""
        if len(shape) == 2 and (self.slices or self._names_slices):
            raise InputError(f"{what}: expected a volume for a choice of slices, found a 2D image", "kind")
        slices = [_widened(*self.slice_range(shape[0], what), shape[0], (1, *size)[-3])] if len(shape) == 3 else []
        sides = shape[-len(size) :]
        if not self.pad and any(side < least for side, least in zip(sides, size, strict=True)):
            least, found = ("x".join(map(str, numbers)) for numbers in (size, sides))
            raise InputError(
                f"{what}: expected at least {least} pixels, the size of the network, found {found} "
                "(--pad puts zeros around it)",
                "shape",
            )
        return (*slices, *(self._plane_range(axis, shape[axis], size[axis], what) for axis in (-2, -1)))

    def slice_range(self, depth: int, what: str) -> Range:
        """First slice, and one past the last, of a volume with `depth` slices."""
        assert not self.at_place  # which `around` turns into slices
        if self.box is not None and len(self.box) == 6:
            first, last = self.box[0], self.box[3]
        else:
            first, last = self._slice_ends()
            first, last = first or 0, depth if last is None else min(last, depth)
        return _inside(first, last, depth, "slices", what)

    def _plane_range(self, axis: int, length: int, size: int, what: str) -> Range:
        """`axis` is -2 (rows) or -1 (columns)."""
        name = "rows" if axis == -2 else "columns"
        if self.center is not None:
            middle = int(self.center[axis])
            _inside(middle, middle + 1, length, name, what)
            first, last = middle - size // 2, middle - size // 2 + size
        elif self.box is not None:
            half = len(self.box) // 2
            first, last = _inside(self.box[:half][axis], self.box[half:][axis], length, name, what)
        else:
            return 0, length
        return _widened(first, last, length, size)


def _widened(first: int, last: int, length: int, size: int) -> Range:
    """At least `size` around its middle, inside the image; one smaller than that is taken whole."""
    if (missing := size - (last - first)) > 0:
        first, last = first - missing // 2, last + missing - missing // 2
    shift = max(0, -first) - max(0, last - length)
    return max(0, first + shift), min(length, last + shift)


def _inside(first: int, last: int, length: int, axis: str, what: str) -> Range:
    if not 0 <= first < last <= length:
        raise InputError(
            f"{what}: expected a region inside its {length} {axis} (0 to {length}), found {first} to {last}", "place"
        )
    return first, last
