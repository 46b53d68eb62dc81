"""Which part of an image is segmented: all of it, or a region of interest."""

from dataclasses import dataclass

from berdiff.errors import InputError
from berdiff.inference.result import Range

Size = tuple[int, int]


@dataclass(frozen=True)
class Region:
    """What was asked for. Places count from 0 in the image as it is shown: of a volume, in the upright slices."""

    center: tuple[int, ...] | None = None  # (row, column) or (slice, row, column): a region of the network's size
    box: tuple[int, ...] | None = None  # (row, column) first and one past the last; or (slice, row, column) twice
    slices: tuple[int | None, int | None] | None = None  # of a volume, first and one past the last
    pad: bool = False  # zeros around an image that is smaller than the network

    def __post_init__(self) -> None:
        if self.center is not None and self.box is not None:
            raise InputError("--center: expected no --box beside it, found both")
        if self.center is not None and len(self.center) not in (2, 3):
            raise InputError(f"--center: expected Y X or Z Y X, found {len(self.center)} numbers")
        if self.box is not None and len(self.box) not in (4, 6):
            raise InputError(f"--box: expected Y0 X0 Y1 X1 or Z0 Y0 X0 Z1 Y1 X1, found {len(self.box)} numbers")
        three = len(self.center or ()) == 3 or len(self.box or ()) == 6
        if three and self.slices is not None:
            raise InputError("--slices: expected no slice in --center or --box beside it, found both")

    def ranges(self, shape: tuple[int, ...], size: Size, what: str) -> tuple[Range, ...]:
        """The part of a 2D image `(H, W)` or a volume `(Z, H, W)`, a range for each axis.

        Rows and columns are at least `size` where the image is: a smaller box is widened around its middle.
        """
        slices = (self.slice_range(shape[0], what),) if len(shape) == 3 else ()
        if len(shape) == 2 and (self.slices or len(self.center or ()) == 3 or len(self.box or ()) == 6):
            raise InputError(f"{what}: expected a volume for a choice of slices, found a 2D image")
        if not self.pad and (shape[-2] < size[0] or shape[-1] < size[1]):
            raise InputError(
                f"{what}: expected at least {size[0]}x{size[1]} pixels, the size of the network, found "
                f"{shape[-2]}x{shape[-1]} (--pad puts zeros around it)"
            )
        return (*slices, *(self._plane_range(axis, shape[axis], size[axis], what) for axis in (-2, -1)))

    def slice_range(self, depth: int, what: str) -> Range:
        if self.center is not None and len(self.center) == 3:
            first, last = self.center[0], self.center[0] + 1
        elif self.box is not None and len(self.box) == 6:
            first, last = self.box[0], self.box[3]
        elif self.slices is not None:
            first = self.slices[0] or 0
            last = depth if self.slices[1] is None else min(self.slices[1], depth)
        else:
            first, last = 0, depth
        return _inside(first, last, depth, "slices", what)

    def _plane_range(self, axis: int, length: int, size: int, what: str) -> Range:
        """`axis` is -2 (rows) or -1 (columns)."""
        name = "rows" if axis == -2 else "columns"
        if self.center is not None:
            _inside(self.center[axis], self.center[axis] + 1, length, name, what)
            first, last = self.center[axis] - size // 2, self.center[axis] - size // 2 + size
        elif self.box is not None:
            half = len(self.box) // 2
            first, last = _inside(self.box[:half][axis], self.box[half:][axis], length, name, what)
            if (missing := size - (last - first)) > 0:
                first, last = first - missing // 2, last + missing - missing // 2
        else:
            return 0, length
        shift = max(0, -first) - max(0, last - length)  # back inside; an image smaller than that is taken whole
        return max(0, first + shift), min(length, last + shift)


def _inside(first: int, last: int, length: int, axis: str, what: str) -> Range:
    if not 0 <= first < last <= length:
        raise InputError(
            f"{what}: expected a region inside its {length} {axis} (0 to {length}), found {first} to {last}"
        )
    return first, last
