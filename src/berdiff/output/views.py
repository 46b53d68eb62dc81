"""Which part of a result a picture shows: one slice, a box in it, and the channel to outline masks on."""

from dataclasses import dataclass, replace

import numpy as np

from berdiff.inference.result import Result

MIN_SIDE = 64  # pixels around a finding, so that one sees where it lies


@dataclass(frozen=True, eq=False)
class CloseUp:
    """A box in one slice of a result."""

    result: Result  # 2D: of the box and nothing else
    plane: np.ndarray  # (C, H, W): the whole slice that the box is in
    box: tuple[slice, slice]
    words: str  # which slice, of a volume


def close_up(result: Result) -> CloseUp:
    """The slice with most of the finding; of it the region that was segmented, or where that is large, a square
    around the masks. No mask is cut off."""
    plane, pool, words = result.image, result.pool, ""
    if result.volume:
        z = fullest_slice(result)
        plane, pool, words = plane[:, z], pool[:, :, z], f", slice {z}"
    box = _box(replace(result, pool=pool))
    raters = None if result.raters is None else result.raters[..., *box]
    image, pool = plane[:, *box], pool[..., *box]
    part = replace(result, image=image, pool=pool, raters=raters, spacing=result.spacing[-2:], roi=None)
    return CloseUp(part, plane, box, words)


def fullest_slice(result: Result) -> int:
    """Of a volume: where the samples mark the most; the middle of what was segmented where they mark nothing."""
    first, last = (0, result.pool.shape[2]) if result.roi is None else result.roi[0]
    area = result.in_region(result.pool).sum(axis=(0, 1, -2, -1), dtype=np.int64)
    return first + (int(area.argmax()) if area.any() else (last - first) // 2)


def clearest_channel(image: np.ndarray, masks: np.ndarray) -> int:
    """Of an image `(C, H, W)`, the channel in which what any of the masks `(m, K, H, W)` marks stands out most from
    what is around it."""
    marked = masks.any(axis=(0, 1))
    if len(image) == 1 or not marked.any() or marked.all():
        return 0
    apart = np.abs(image[:, marked].mean(1) - image[:, ~marked].mean(1))
    return int((apart / (image.std(axis=(1, 2)) + 1e-6)).argmax())


def _box(result: Result) -> tuple[slice, slice]:
    """Rows and columns to show of one slice."""
    marked = [result.pool] if result.raters is None else [result.pool, result.raters]
    touched = np.logical_or.reduce([masks.any(axis=(0, 1)) for masks in marked])
    regions = [(0, length) for length in touched.shape] if result.roi is None else result.roi[-2:]
    if not touched.any():
        rows, columns = regions
        return slice(*rows), slice(*columns)
    spans = [(int(line.argmax()), len(line) - int(line[::-1].argmax())) for line in (touched.any(1), touched.any(0))]
    both = [(min(a, c), max(b, d)) for (a, b), (c, d) in zip(regions, spans, strict=True)]
    largest = 2 * MIN_SIDE if len(result.targets) == 1 else MIN_SIDE  # the lines of several targets need room
    if max(last - first for first, last in both) > largest:
        side = max(MIN_SIDE, *(round((last - first) * 5 / 3) for first, last in spans))
        sides = [min(side, length) for length in touched.shape]
        middles = zip(spans, sides, touched.shape, strict=True)
        starts = [min(max(0, (sum(span) - side) // 2), length - side) for span, side, length in middles]
        both = [(start, start + side) for start, side in zip(starts, sides, strict=True)]
    return slice(*both[0]), slice(*both[1])
