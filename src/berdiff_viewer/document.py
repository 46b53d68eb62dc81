"""What the page shows, as plain JSON: of a result, of an image alone, or of nothing yet (a server's first page)."""

import base64
import gzip
from collections.abc import Sequence
from typing import Any

import numpy as np

from berdiff import __version__
from berdiff.errors import InputError
from berdiff.inference.opening import OpenedImage
from berdiff.inference.region import Range
from berdiff.inference.representatives import Representative
from berdiff.inference.result import Result
from berdiff.output.captions import MARKED_MEANS, measured_words, notes, percent, set_words, settings_line
from berdiff.output.colours import BOX_COLOUR, LEVELS, RATER_COLOUR, TARGET_COLOURS, level_colours, target_colours
from berdiff.output.nifti import upright_affine
from berdiff.output.views import clearest_channel, fullest_slice
from berdiff.targets.kinds import RULES
from berdiff_viewer.boxes import Box, bounded_box, cut, marked_box, overlap

FORMAT = 1
MAX_IMAGE_BYTES = 48 * 2**20  # of the image's values, before compression: of a larger volume a part is shown
LIVE_IMAGE_BYTES = 256 * 2**20  # from the server, where all of a scan must be there to click on
MAX_MASK_BYTES = 64 * 2**20  # of the samples' bits, before compression: of more, the first ones are there
RATER_COLOURS = (RATER_COLOUR, "#06d6a0", "#f78c6b", "#c77dff", *TARGET_COLOURS[3:])
COLOURS_OF_SALIENCY = 17  # of its map; the page mixes those between


def live_document(token: str) -> dict[str, Any]:
    """Of a server's page before anything is opened."""
    return {"format": FORMAT, "berdiff": __version__, "mode": "live", "token": token, "name": "", "image": None}


def image_document(
    image: OpenedImage, channels: Sequence[str] = (), limit: int = LIVE_IMAGE_BYTES, rater_names: Sequence[str] = ()
) -> dict[str, Any]:
    """Of an image alone; with its raters' masks, where there are any."""
    raters = _raters(image)
    marked = marked_box(*raters, axes=image.image.ndim - 1)
    shown = _image(image, channels, marked, limit)
    return {
        **_place(image),
        "image": shown,
        "start": [side // 2 for side in image.image.shape[1:]],
        "channel": 0,
        "region": None,
        "warnings": list(image.warnings),
        "notes": list(image.notes),
        "settings": "",
        "masks": _masks(raters, _mask_box(marked, shown["box"])),
        "raters": _rater_list(image, 0, rater_names),
    }


def result_document(
    result: Result,
    representatives: Sequence[Representative] | None = None,
    image: bool = True,
    limit: int = MAX_IMAGE_BYTES,
    rater_names: Sequence[str] = (),
    depth: int | None = None,
) -> dict[str, Any]:
    """Of a result. Without `image`, for a page that shows the same one already. With `depth`, of some slices of a
    volume of so many: all places are then those of the volume."""
    chosen = result.representatives() if representatives is None else representatives
    P, count = len(result.pool), len(result.targets)
    marked = marked_box(result.pool, *_raters(result), axes=result.pool.ndim - 2)
    shown = _image(result, result.channels, marked or result.roi, limit) if image else None
    box = _mask_box(marked, shown["box"] if shown else tuple((0, side) for side in result.pool.shape[2:]))
    bytes_per_mask = count * -(-int(np.prod([last - first for first, last in box])) // 8)
    n = max(1, min(len(result.samples), MAX_MASK_BYTES // bytes_per_mask))  # what a browser cannot hold helps nobody
    masks = [result.samples[:n], result.majority()[None], *(found.mask[None] for found in chosen)]
    start = _start(result)
    plane = (slice(None), *start[:-2])
    named, region, first = _place(result), result.roi, (0,) * len(start)
    if depth is not None:
        named["shape"][0], region, first = depth, region_in_volume(result), (result.first, 0, 0)
    packed = _masks([*masks, *_raters(result)], box)
    packed["box"] = _moved(box, first)
    return {
        **named,
        "image": shown,
        "start": [place + by for place, by in zip(start, first, strict=True)],
        "channel": clearest_channel(result.image[plane], result.pool[(slice(None), *plane)]),
        "region": region and [list(ends) for ends in region],
        "warnings": list(result.warnings),
        "notes": notes(result),
        "settings": settings_line(result),
        "targets": _targets(result),
        "kind": result.kind if count > 1 else None,
        "rule": RULES[result.kind] if count > 1 else None,
        "levels": list(LEVELS),
        "masks": packed,
        "saliency": _saliency(result, box),
        "samples": {"count": n, "of": len(result.samples), "pool": P, "words": set_words(result)},
        "majority": n,
        "representatives": [
            {"mask": n + 1 + i, "share": found.frequency, "words": percent(found.frequency), "sample": found.index + 1}
            for i, found in enumerate(chosen)
        ],
        "raters": _rater_list(result, n + 1 + len(chosen), rater_names),
        "measurements": [measured_words(result, k) for k in range(count)],
        "marked_means": MARKED_MEANS,
    }


def region_in_volume(result: Result) -> tuple[Range, ...]:
    """What was segmented, of slices from `result.first` on, by the places of the volume that they are of."""
    return _moved(result.roi or tuple((0, side) for side in result.pool.shape[2:]), (result.first, 0, 0))


def _moved(box: Box, by: Sequence[int]) -> Box:
    return tuple((first + step, end + step) for (first, end), step in zip(box, by, strict=True))


def _place(image: OpenedImage) -> dict[str, Any]:
    """Name, grid, and where it lies."""
    axes = image.image.ndim - 1
    spacing = [float(mm) if np.isfinite(mm) else None for mm in image.spacing]
    column, row, between = (image.spacing[-1], image.spacing[-2], image.spacing[0] if axes == 3 else 1.0)
    placed = image.geometry.kind == "dicom" or (image.geometry.kind == "nifti" and axes == 3)
    try:  # a picture's millimetres count from its first pixel: it lies nowhere in a patient
        affine = upright_affine(image) if placed else np.diag([column, row, between, 1.0])
    except InputError:  # a DICOM slice without position and orientation
        placed, affine = False, np.diag([column, row, between, 1.0])
    return {
        "format": FORMAT,
        "berdiff": __version__,
        "mode": "file",
        "name": image.shown_name,
        "details": dict(image.details),
        "volume": axes == 3,
        "shape": list(image.image.shape[1:]),
        "spacing_mm": spacing,
        "affine": affine.tolist() if np.isfinite(affine).all() else None,
        "placed": placed,
    }


def _image(image: OpenedImage, channels: Sequence[str], core: Box | None, limit: int) -> dict[str, Any]:
    """All channels, in 8 bits where the source had no more or there is no room for 12."""
    values, count = image.image, len(image.image)
    shape = values.shape[1:]
    whole = int(np.prod(shape)) * count
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


def _raters(image: OpenedImage) -> list[np.ndarray]:
    return [] if image.raters is None else [image.raters]


def _mask_box(marked: Box | None, box: Box) -> Box:
    """What is marked in the image's part; one voxel where nothing is."""
    return (marked and overlap(marked, box)) or tuple((first, first + 1) for first, _ in box)


def _masks(parts: Sequence[np.ndarray], box: Box) -> dict[str, Any]:
    """Masks (m, K, [Z,] H, W), one part after the other, as bits."""
    packed = [_bits(cut(part, box)) for part in parts]
    every = np.concatenate(packed) if packed else np.zeros((0, 1, 0), np.uint8)
    return {"count": len(every), "targets": every.shape[1], "box": box, "data": _text(every)}


def _rater_list(image: OpenedImage, first: int, names: Sequence[str]) -> list[dict[str, Any]]:
    """Their names, the places of their masks, and a colour each where targets have none of their own."""
    raters = () if image.raters is None else image.raters
    several = len(raters) > 0 and raters[0].shape[0] > 1
    return [
        {
            "name": names[i] if len(names) == len(raters) else f"rater {i + 1}",
            "mask": first + i,
            "colour": None if several else RATER_COLOURS[i % len(RATER_COLOURS)],
        }
        for i in range(len(raters))
    ]


def _targets(result: Result) -> list[dict[str, Any]]:
    count = len(result.targets)
    each = enumerate(zip(result.targets, target_colours(count), strict=True))
    return [
        {"name": name, "colour": colour, "mask": colour if count > 1 else BOX_COLOUR, "levels": level_colours(k, count)}
        for k, (name, colour) in each
    ]


def _saliency(result: Result, box: Box) -> dict[str, Any]:
    """How many of the pool's samples mark a voxel: counts, so that levels are exact."""
    from matplotlib import colormaps

    P = len(result.pool)
    dtype = np.uint8 if P < 256 else np.uint16
    counts = np.stack([cut(result.pool[:, k], box).sum(0, dtype=dtype) for k in range(len(result.targets))])
    table = colormaps["magma"](np.linspace(0, 1, COLOURS_OF_SALIENCY), bytes=True)[:, :3]
    return {"dtype": np.dtype(dtype).name, "of": P, "colours": table.tolist(), "data": _text(counts)}


def _start(result: Result) -> list[int]:
    """Where the crosshair is at first: in the middle of what is marked in the fullest slice, or of the region."""
    place = [fullest_slice(result)] if result.volume else []
    plane = result.pool[:, :, place[0]] if result.volume else result.pool
    ends = marked_box(plane, axes=2)
    if ends is None:
        region = result.roi or tuple((0, side) for side in result.pool.shape[2:])
        return [(first + last) // 2 for first, last in region]
    return [*place, *((first + last) // 2 for first, last in ends)]


def _text(array: np.ndarray, level: int = 6) -> str:
    """base64 of gzip of the values in C order, little-endian."""
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return base64.b64encode(gzip.compress(array.data, level, mtime=0)).decode("ascii")


def _bits(masks: np.ndarray) -> np.ndarray:
    """(m, K, [Z,] H, W) of 0 and 1 -> (m, K, B) uint8, the highest bit of a byte first: each mask has whole bytes."""
    return np.packbits(masks.reshape(*masks.shape[:2], -1).astype(bool), axis=-1)
