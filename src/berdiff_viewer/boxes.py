"""Which part of an image goes into the page: all of it, or as much around the finding as the limits allow."""

from collections.abc import Sequence
from typing import Any

import numpy as np

Box = tuple[tuple[int, int], ...]  # [first, last + 1) along each of the last axes

MAX_SIDE = 2048  # voxels: what every graphics card takes as a side of a volume


def marked_box(masks: np.ndarray, axes: int) -> Box | None:
    """Around all that any of the masks (..., [Z,] H, W) marks; None where that is nothing."""
    marked = np.asarray(masks.any(axis=tuple(range(masks.ndim - axes))))
    if not marked.any():
        return None
    lines = [np.asarray(marked.any(axis=tuple(a for a in range(axes) if a != axis))) for axis in range(axes)]
    return tuple((int(line.argmax()), len(line) - int(line[::-1].argmax())) for line in lines)


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
    middle = [(first + last) / 2 for first, last in core]
    whole = [_side(side, mid) for side, mid in zip(shape, middle, strict=True)]

    def at(t: float) -> Box:
        inner, outer = min(1.0, 2 * t), max(0.0, 2 * t - 1)
        box = []
        for (first, last), (least, most), mid in zip(core, whole, middle, strict=True):
            low = (1 - outer) * max(least, mid + inner * (first - mid)) + outer * least
            high = (1 - outer) * min(most, mid + inner * (last - mid)) + outer * most
            low = min(int(np.floor(low)), most - 1)
            box.append((low, max(low + 1, int(np.ceil(high)))))
        return tuple(box)

    def fits(box: Box) -> bool:
        return int(np.prod([last - first for first, last in box])) <= most

    low, high = 0.0, 1.0
    if fits(at(high)):
        return at(high)
    for _ in range(30):
        half = (low + high) / 2
        low, high = (half, high) if fits(at(half)) else (low, half)
    return at(low)


def _side(length: int, mid: float) -> tuple[int, int]:
    """All of a side, or of a long one what a graphics card takes around its middle."""
    first = max(0, min(length - MAX_SIDE, round(mid) - MAX_SIDE // 2))
    return first, min(length, first + MAX_SIDE)


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
