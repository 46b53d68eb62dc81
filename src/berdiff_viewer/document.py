"""What the page shows, as plain JSON: of a result, of an image alone, or of nothing yet (a server's first page)."""

import base64
import gzip
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from math import ceil, floor, prod
from typing import Any

import numpy as np

from berdiff import __version__
from berdiff.data.apply import Prepared
from berdiff.data.image import Grid
from berdiff.inference.representatives import Representative
from berdiff.inference.result import Result
from berdiff.output.captions import MARKED_MEANS, measured_words, notes, percent, set_words, settings_line
from berdiff.output.colours import BOX_COLOUR, LEVELS, RATER_COLOUR, TARGET_COLOURS, level_colours, target_colours
from berdiff.output.views import clearest_channel, fullest_slice
from berdiff.targets.kinds import RULES

Box = tuple[tuple[int, int], ...]  # [first, last + 1) along each of the last axes

MAX_SIDE = 2048  # voxels: what every graphics card takes as a side of a volume
STEPS = 2**20  # of a box that grows


def marked_box(masks: np.ndarray, axes: int) -> Box | None:
    """Around all that any of the masks (..., [Z,] H, W) marks; None where that is nothing."""
    marked = np.asarray(masks.any(axis=tuple(range(masks.ndim - axes))))
    places = marked.nonzero()
    return tuple((int(at.min()), int(at.max()) + 1) for at in places) if len(places[0]) else None


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
        box: list[tuple[int, int]] = []
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


FORMAT = 1
MAX_IMAGE_BYTES = 48 * 2**20  # of the image's values, before compression: of a larger volume a part is shown
LIVE_IMAGE_BYTES = 256 * 2**20  # from the server, where all of a scan must be there to click on
MAX_MASK_BYTES = 64 * 2**20  # of the samples' bits, before compression: of more, the first ones are there
RATER_COLOURS = (RATER_COLOUR, "#06d6a0", "#f78c6b", "#c77dff", *TARGET_COLOURS[3:])
COLOURS_OF_SALIENCY = 17  # of its map; the page mixes those between


def live_document(token: str) -> dict[str, Any]:
    """Of a server's page before anything is opened."""
    return {"format": FORMAT, "berdiff": __version__, "mode": "live", "token": token, "name": "", "image": None}


def image_document(image: Prepared, channels: Sequence[str] = (), limit: int = LIVE_IMAGE_BYTES) -> dict[str, Any]:
    """Of an image alone; with its raters' masks, where there are any."""
    raters = _raters(image.raters, 1, image.grid.shape)
    marked = marked_box(raters, len(image.grid.shape))
    shown = _image(image.image, channels, marked, limit)
    box = _mask_box(marked, shown["box"])
    return {
        **_place(image.shown_name, image.details, image.grid),
        "image": shown,
        "start": [side // 2 for side in image.image.shape[1:]],
        "channel": 0,
        "region": None,
        "warnings": list(image.warnings),
        "notes": list(image.notes),
        "settings": "",
        "masks": _masks([cut(raters, box)], box),
        "raters": _rater_list(raters, 0),
    }


def result_document(
    result: Result,
    representatives: Sequence[Representative] | None = None,
    image: bool = True,
    limit: int = MAX_IMAGE_BYTES,
) -> dict[str, Any]:
    """Of a result, with all places those of the whole image. Without `image`, for a page that shows the same one
    already."""
    chosen = result.representatives() if representatives is None else representatives
    P, count, grid = len(result.pool), len(result.targets), result.grid
    whole = (grid.whole or grid).shape
    region = grid.ranges or tuple((0, side) for side in whole)
    first = [start for start, _ in region]
    raters = _raters(result.raters, count, whole)
    own = marked_box(result.pool, len(whole))
    marked = around(own and moved(own, first), marked_box(raters, len(whole)))
    shown = None
    if image and result.scan is not None:
        shown = _image(result.scan, result.channels, marked or result.region, limit)
    elif image:  # the region is all that there is
        shown = _image(result.image, result.channels, own, limit)
        shown["box"] = moved(shown["box"], first)
    box = _mask_box(marked, shown["box"] if shown else tuple((0, side) for side in whole))
    bytes_per_mask = count * -(-prod(last - first for first, last in box) // 8)
    n = max(1, min(len(result.samples), MAX_MASK_BYTES // bytes_per_mask))  # what a browser cannot hold helps nobody
    masks = [result.samples[:n], result.majority()[None], *(one.mask[None] for one in chosen)]
    packed = [*(cut(part, box, region) for part in masks), cut(raters, box)]
    start = _start(result)
    plane = (slice(None), *start[:-2])
    return {
        **_place(result.shown_name, result.details, grid.whole or grid),
        "image": shown,
        "start": [place + by for place, by in zip(start, first, strict=True)],
        "channel": clearest_channel(result.image[plane], result.pool[(slice(None), *plane)]),
        "region": result.region and [list(ends) for ends in result.region],
        "warnings": list(result.warnings),
        "notes": notes(result),
        "settings": settings_line(result),
        "targets": _targets(result),
        "kind": result.kind if count > 1 else None,
        "rule": RULES[result.kind] if count > 1 else None,
        "levels": list(LEVELS),
        "masks": _masks(packed, box),
        "saliency": _saliency(result, region, box),
        "samples": {"count": n, "of": len(result.samples), "pool": P, "words": set_words(result)},
        "majority": n,
        "representatives": [
            {"mask": n + 1 + i, "share": one.frequency, "words": percent(one.frequency), "sample": one.index + 1}
            for i, one in enumerate(chosen)
        ],
        "raters": _rater_list(raters, n + 1 + len(chosen)),
        "measurements": [measured_words(result, k) for k in range(count)],
        "marked_means": MARKED_MEANS,
    }


def _place(name: str, details: Mapping[str, str], grid: Grid) -> dict[str, Any]:
    """Name, grid, and where it lies."""
    source, volume = grid.source, not grid.planar
    # a DICOM slice by itself has no place in a volume, but one in the patient
    affine = source.affine if source.kind == "dicom" and not volume else grid.affine
    placed = affine is not None
    if affine is None:  # a picture's millimetres count from its first pixel: it lies nowhere in a patient
        affine = np.diag([grid.spacing[-1], grid.spacing[-2], grid.spacing[0] if volume else 1.0, 1.0])
    return {
        "format": FORMAT,
        "berdiff": __version__,
        "mode": "file",
        "name": name,
        "details": dict(details),
        "volume": volume,
        "shape": list(grid.shape),
        "spacing_mm": [float(mm) if np.isfinite(mm) else None for mm in grid.spacing],
        "affine": affine.tolist() if np.isfinite(affine).all() else None,
        "placed": placed,
    }


def _image(values: np.ndarray, channels: Sequence[str], core: Box | None, limit: int) -> dict[str, Any]:
    """All channels, in 8 bits where the source had no more or there is no room for 12."""
    count, shape = len(values), values.shape[1:]
    whole = prod(shape) * count
    one = values[(0, *(side // 2 for side in shape[:-2]))] * 255
    eight = bool(np.abs(one - np.rint(one)).max() < 1e-3) or 2 * whole > limit
    top, dtype = (255, np.uint8) if eight else (4095, np.uint16)
    box = bounded_box(shape, core, limit // (count * np.dtype(dtype).itemsize))
    part = np.rint(cut(values, box) * np.float32(top)).astype(dtype)
    names = list(channels) if len(channels) == count else [f"channel {i + 1}" for i in range(count)]
    return {
        "box": box,
        "dtype": np.dtype(dtype).name,
        "top": top,
        "channels": names,
        "data": _text(part, 6 if part.nbytes <= MAX_IMAGE_BYTES else 1),
    }


def _raters(raters: np.ndarray | None, targets: int, shape: Sequence[int]) -> np.ndarray:
    """(R, K, [Z,] H, W); none, where nobody is known."""
    return np.zeros((0, targets, *shape), np.uint8) if raters is None else raters


def _mask_box(marked: Box | None, box: Box) -> Box:
    """What is marked in the image's part; one voxel where nothing is."""
    return (marked and overlap(marked, box)) or tuple((first, first + 1) for first, _ in box)


def _masks(parts: Sequence[np.ndarray], box: Box) -> dict[str, Any]:
    """Masks (m, K, [Z,] h, w) of a box, one part after the other, as bits: the highest bit of a byte first, each mask
    in whole bytes."""
    flat = [part.reshape(*part.shape[:2], prod(part.shape[2:])) for part in parts]
    every = np.concatenate([np.packbits(part.astype(bool), axis=-1) for part in flat])
    return {"count": len(every), "targets": every.shape[1], "box": box, "data": _text(every)}


def _rater_list(raters: np.ndarray, first: int) -> list[dict[str, Any]]:
    """The places of their masks, and a colour each where targets have none of their own."""
    colours = RATER_COLOURS if raters.shape[1] == 1 else [None]
    return [
        {"name": f"rater {i + 1}", "mask": first + i, "colour": colours[i % len(colours)]} for i in range(len(raters))
    ]


def _targets(result: Result) -> list[dict[str, Any]]:
    count = len(result.targets)
    each = enumerate(zip(result.targets, target_colours(count), strict=True))
    return [
        {"name": name, "colour": colour, "mask": colour if count > 1 else BOX_COLOUR, "levels": level_colours(k, count)}
        for k, (name, colour) in each
    ]


def _saliency(result: Result, region: Box, box: Box) -> dict[str, Any]:
    """How many of the pool's samples mark a voxel: counts, so that levels are exact."""
    from matplotlib import colormaps

    P = len(result.pool)
    dtype = np.uint8 if P < 256 else np.uint16
    counts = cut(result.pool.sum(0, dtype=dtype), box, region)
    table = colormaps["magma"](np.linspace(0, 1, COLOURS_OF_SALIENCY), bytes=True)[:, :3]
    return {"dtype": np.dtype(dtype).name, "of": P, "colours": table.tolist(), "data": _text(counts)}


def _start(result: Result) -> list[int]:
    """Where the crosshair is at first, in the region: amid what is marked in the fullest slice, or amid all of it."""
    place = [fullest_slice(result)] if result.volume else []
    plane = result.pool[:, :, place[0]] if result.volume else result.pool
    ends = marked_box(plane, 2)
    if ends is None:
        return [side // 2 for side in result.grid.shape]
    return [*place, *((first + last) // 2 for first, last in ends)]


def _text(array: np.ndarray, level: int = 6) -> str:
    """base64 of gzip of the values in C order, little-endian."""
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return base64.b64encode(gzip.compress(array.data, level, mtime=0)).decode("ascii")
