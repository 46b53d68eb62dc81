"""Which part of an image goes into the page: all of it, or as much around the finding as the limits allow."""

from bisect import bisect_right
from collections.abc import Sequence
from math import ceil, floor, prod
from typing import Any

import numpy as np
from scipy import ndimage

Box = tuple[tuple[int, int], ...]  # [first, last + 1) along each of the last axes

MAX_SIDE = 2048  # voxels: what every graphics card takes as a side of a volume
STEPS = 2**20  # of a box that grows


def marked_box(masks: np.ndarray, axes: int) -> Box | None:
    """Around all that any of the masks (..., [Z,] H, W) marks; None where that is nothing."""
    marked = np.asarray(masks.any(axis=tuple(range(masks.ndim - axes))))
    place = ndimage.find_objects(marked.view(np.int8), 1)[0]
    return place and tuple((int(side.start), int(side.stop)) for side in place)


def around(*boxes: Box | None) -> Box | None:
    """The smallest box with all of those that are there."""
    each = zip(*(box for box in boxes if box), strict=True)
    return tuple((min(a for a, _ in ends), max(b for _, b in ends)) for ends in each) or None


def moved(box: Box, by: Sequence[int]) -> Box:
    return tuple((first + step, last + step) for (first, last), step in zip(box, by, strict=True))


def bounded_box(shape: Sequence[int], core: Box | None, most: int) -> Box:
    """The largest box of at most `most` voxels: it grows from the middle of `core` to the core, then to the whole.

    Where there is no core, it is around the middle of the image.
    """
    core = core or tuple((side // 2, side // 2 + 1) for side in shape)
    starts = [max(0, min(side - MAX_SIDE, (a + b - MAX_SIDE) // 2)) for side, (a, b) in zip(shape, core, strict=True)]
    whole = [(start, min(side, start + MAX_SIDE)) for side, start in zip(shape, starts, strict=True)]

    def at(step: int) -> Box:
        inner, outer = min(1.0, 2 * step / STEPS), max(0.0, 2 * step / STEPS - 1)
        box = []
        for (first, last), (least, end) in zip(core, whole, strict=True):
            middle = (first + last) / 2
            low = (1 - outer) * max(least, middle + inner * (first - middle)) + outer * least
            high = (1 - outer) * min(end, middle + inner * (last - middle)) + outer * end
            start = min(floor(low), end - 1)
            box.append((start, max(start + 1, ceil(high))))
        return tuple(box)

    fitting = bisect_right(range(STEPS + 1), most, key=lambda step: prod(b - a for a, b in at(step)))
    return at(max(0, fitting - 1))


def cut(array: np.ndarray, box: Box, of: Box | None = None) -> np.ndarray:
    """The box of (..., [Z,] H, W) of an image, or of its part `of`, with 0 outside of it."""
    region = of or tuple((0, side) for side in array.shape[-len(box) :])
    both = overlap(region, box)
    if both == box:
        return array[_index(box, region)]
    part = np.zeros((*array.shape[: -len(box)], *(last - first for first, last in box)), array.dtype)
    if both:
        part[_index(both, box)] = array[_index(both, region)]
    return part


def _index(part: Box, of: Box) -> tuple[Any, ...]:
    """Where a part of a box lies in it, on the last axes of an array."""
    return (..., *(slice(first - start, last - start) for (first, last), (start, _) in zip(part, of, strict=True)))


def overlap(a: Box, b: Box) -> Box | None:
    both = tuple((max(p, r), min(q, s)) for (p, q), (r, s) in zip(a, b, strict=True))
    return both if all(first < last for first, last in both) else None
