"""Which part of a result a picture shows: one slice, a box in it, and the channel to outline masks on."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from berdiff.inference.result import Result

MIN_SIDE = 64  # pixels around a finding, so that one sees where it lies


@dataclass(frozen=True, eq=False)
class Plane:
    """A slice of a result's region with all of the image around it, where that is at hand."""

    result: Result
    at: tuple[int, ...]  # (z,) of a volume's region, () of a 2D image

    @property
    def words(self) -> str:
        """Which slice, of a volume."""
        return "".join(f", slice {self.result.grid.first + z}" for z in self.at)

    @property
    def whole(self) -> np.ndarray:
        """(C, H, W)"""
        if self.result.scan is None:
            return self.result.image[:, *self.at]
        return self.result.scan[:, *(self.result.grid.first + z for z in self.at)]

    def placed(self, array: np.ndarray) -> np.ndarray:
        """(..., h, w) of the region -> (..., H, W), with 0 around it."""
        if self.result.scan is None:
            return array
        around = np.zeros((*array.shape[:-2], *self.result.scan.shape[-2:]), array.dtype)
        around[(..., *self.result.grid.box[-2:])] = array
        return around


@dataclass(frozen=True, eq=False)
class CloseUp(Plane):
    """A box in one slice of a result's region."""

    box: tuple[slice, slice]  # rows and columns of the region

    def of(self, array: np.ndarray) -> np.ndarray:
        """(..., h, w): the close-up of a region's (..., [Z,] H, W)."""
        return array[(..., *self.at, *self.box)]

    @cached_property
    def image(self) -> np.ndarray:
        """(C, h, w)"""
        return self.of(self.result.image)

    @cached_property
    def channel(self) -> int:
        """That masks are outlined on."""
        return clearest_channel(self.image, self.of(self.result.pool))

    @property
    def raters(self) -> np.ndarray | None:
        """(R, K, h, w)"""
        raters = self.result.raters
        return None if raters is None else self.of(raters[(..., *self.result.grid.box)])

    def around(self) -> tuple[np.ndarray, np.ndarray] | None:
        """(H, W) of the whole slice, and the mask of the box in it; None where there is no more than the box."""
        box = np.zeros(self.result.grid.shape[-2:], bool)
        box[self.box] = True
        placed = self.placed(box)
        return None if placed.all() else (self.whole[self.channel], placed)


def close_up(result: Result) -> CloseUp:
    """The slice with most of the finding; of it the region that was segmented, or where that is large, a square
    around the masks. No mask is cut off."""
    at = (fullest_slice(result),) if result.volume else ()
    raters = [] if result.raters is None else [result.raters[(..., *result.grid.box)]]
    planes = [masks[(..., *at, np.s_[:], np.s_[:])] for masks in (result.pool, *raters)]
    touched = np.logical_or.reduce([plane.any(axis=(0, 1)) for plane in planes])
    return CloseUp(result, at, _box(touched, len(result.targets) > 1))


def fullest_slice(result: Result) -> int:
    """The slice of a volume's region in which the samples mark the most; its middle where they mark nothing."""
    area = result.pool.sum(axis=(0, 1, -2, -1), dtype=np.int64)
    return int(area.argmax()) if area.any() else len(area) // 2


def clearest_channel(image: np.ndarray, masks: np.ndarray) -> int:
    """Of an image `(C, H, W)`, the channel in which what any of the masks `(m, K, H, W)` marks stands out most from
    what is around it."""
    marked = masks.any(axis=(0, 1))
    if len(image) == 1 or not marked.any() or marked.all():
        return 0
    apart = np.abs(image[:, marked].mean(1) - image[:, ~marked].mean(1))
    return int((apart / (image.std(axis=(1, 2)) + 1e-6)).argmax())


def _box(touched: np.ndarray, several: bool) -> tuple[slice, slice]:
    """Rows and columns to show of a plane (H, W), where any mask of one or `several` targets touches it."""
    largest = MIN_SIDE if several else 2 * MIN_SIDE  # the lines of several targets need room
    if not touched.any() or max(touched.shape) <= largest:
        return slice(0, touched.shape[0]), slice(0, touched.shape[1])
    lines = [np.asarray(touched.any(axis)) for axis in (1, 0)]
    spans = [(int(line.argmax()), len(line) - int(line[::-1].argmax())) for line in lines]
    side = max(MIN_SIDE, *(round((last - first) * 5 / 3) for first, last in spans))
    sides = [min(side, length) for length in touched.shape]
    middles = zip(spans, sides, touched.shape, strict=True)
    starts = [min(max(0, (sum(span) - side) // 2), length - side) for span, side, length in middles]
    rows, columns = (slice(start, start + side) for start, side in zip(starts, sides, strict=True))
    return rows, columns
