"""What there is to see of a result: which part of it, in which tiles, with exact outlines.

A mask is drawn as the edges of its pixels, not as a smoothed curve: what one sees is what is in the mask, and the image
under it stays untouched.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from berdiff.inference.result import Result
from berdiff.inference.summary import Representative
from berdiff.inference.words import percent

LEVELS = (0.25, 0.5, 0.75)
LEVEL_COLOURS = ("#4cc9f0", "#ffd166", "#ff5d8f")
SAMPLE_COLOUR, READER_COLOUR, BOX_COLOUR = "#ffd166", "#4cc9f0", "#ffffff"
SALIENCY_COLOURS, VARIANCE_COLOURS = "magma", "viridis"
MOST_VARIANCE = 0.25  # of a 0/1 variable: half of the samples mark the pixel
SHOWN_SAMPLES = 16
SMALLEST_VIEW = 64  # pixels a side around a finding, so that one sees where it lies


@dataclass(frozen=True)
class View:
    """The part of a result that a picture shows: one slice, and a box in it."""

    number: int | None  # of the slice, in a volume
    rows: slice
    columns: slice
    aspect: float  # height of a pixel over its width, so that circles stay circles

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.stop - self.rows.start, self.columns.stop - self.columns.start

    def of(self, array: np.ndarray) -> np.ndarray:
        """The part of (..., [Z,] H, W)."""
        plane = array if self.number is None else array[..., self.number, :, :]
        return plane[..., self.rows, self.columns]

    def whole(self, array: np.ndarray) -> np.ndarray:
        """The whole plane (..., H, W) that the part is in."""
        return array if self.number is None else array[..., self.number, :, :]


def best_view(result: Result) -> View:
    """The slice with most of the finding; of it the region that was segmented, or where that is large, a square
    around the masks. No mask is cut off."""
    number = best_slice(result) if result.volume else None
    marked = result.samples if number is None else result.samples[..., number, :, :]
    touched: np.ndarray = np.asarray(marked.any(axis=(0, 1)))
    if result.readers is not None:
        touched = touched | result.readers.any(axis=(0, 1))
    spans = [np.flatnonzero(line)[[0, -1]] if line.any() else None for line in (touched.any(1), touched.any(0))]
    box = []
    for axis, span in zip((-2, -1), spans, strict=True):
        first, last = (0, touched.shape[axis]) if result.roi is None else result.roi[axis]
        box.append((first, last) if span is None else (min(first, int(span[0])), max(last, int(span[1]) + 1)))
    if max(last - first for first, last in box) > 2 * SMALLEST_VIEW and touched.any():
        side = max(SMALLEST_VIEW, *(round((span[1] + 1 - span[0]) * 5 / 3) for span in spans if span is not None))
        box = [_around(s, side, n) for s, n in zip(spans, touched.shape, strict=True) if s is not None]
    rows, columns = (slice(*ends) for ends in box)
    return View(number, rows, columns, pixel_aspect(result))


def best_slice(result: Result) -> int:
    """Of a volume: where the samples mark the most; the middle where they mark nothing."""
    area = result.samples.sum(axis=(0, 1, -2, -1), dtype=np.int64)
    return int(area.argmax()) if area.any() else len(area) // 2


def _around(span: np.ndarray, side: int, length: int) -> tuple[int, int]:
    """`side` pixels around the first and the last one of `span`, inside 0..length."""
    side = min(side, length)
    start = min(max(0, (int(span.sum()) + 1 - side) // 2), length - side)
    return start, start + side


def pixel_aspect(result: Result) -> float:
    """The height of a pixel over its width, so that circles stay circles; 1 where the spacing is unknown."""
    row, column = result.spacing[-2:]
    return float(row / column) if np.isfinite([row, column]).all() else 1.0


def best_channel(result: Result, view: View) -> int:
    """Of an image of several channels the one to draw on: where the marked stands out most from what is around it."""
    image, marked = view.of(result.image), view.of(result.samples).any(axis=(0, 1))
    if len(image) == 1 or not marked.any() or marked.all():
        return 0
    apart = np.abs(image[:, marked].mean(1) - image[:, ~marked].mean(1))
    return int((apart / (image.std(axis=(1, 2)) + 1e-6)).argmax())


def edges(mask: np.ndarray) -> np.ndarray:
    """The outline of a mask (H, W) as segments (E, 2, 2) of points (x, y); pixel (r, c) covers [c, c+1] x [r, r+1].

    Every side between a pixel of the mask and one outside it (or the border) is one segment, so E is the perimeter.
    """
    padded = np.pad(np.asarray(mask) > 0, 1)
    y, x = np.nonzero(padded[1:, 1:-1] != padded[:-1, 1:-1])  # sides that lie between two rows
    across = np.stack([np.stack([x, y], -1), np.stack([x + 1, y], -1)], 1)
    y, x = np.nonzero(padded[1:-1, 1:] != padded[1:-1, :-1])  # between two columns
    down = np.stack([np.stack([x, y], -1), np.stack([x, y + 1], -1)], 1)
    return np.concatenate([across, down])


def grey_bytes(image: np.ndarray) -> np.ndarray:
    """[0, 1] -> 0..255."""
    return np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)


@dataclass(frozen=True, eq=False)
class Tile:
    """One small picture: values in a plane, and the outlines over it."""

    title: str
    plane: np.ndarray  # (H, W)
    colours: str = "gray"
    most: float = 1.0  # the value of the brightest colour
    outlines: Sequence[tuple[np.ndarray, str]] = field(default=())  # (mask (H, W), colour)
    key: Sequence[tuple[str, str]] = field(default=())  # (words, colour), where several colours need it


def tiles(result: Result, representatives: Sequence[Representative], view: View, target: int) -> dict[str, list[Tile]]:
    """What there is to see of one target, section by section: for the panel and for the report."""
    image = view.of(result.image)
    names = ["image"] if len(image) == 1 else [f"channel {i + 1}" for i in range(len(image))]
    shown = {"image": [Tile(name, plane) for name, plane in zip(names, image, strict=True)]}
    drawn_on = best_channel(result, view)
    under, plane = image[drawn_on], view.whole(result.image)[drawn_on]
    if plane.shape != view.shape:
        box = np.zeros(plane.shape, bool)
        box[view.rows, view.columns] = True
        shown["image"].insert(0, Tile("where", plane, outlines=[(box, BOX_COLOUR)]))

    def outlined(title: str, mask: np.ndarray, colour: str) -> Tile:
        return Tile(title if mask.any() else f"{title}: nothing", under, outlines=[(mask, colour)])

    if result.readers is not None:
        readers = view.of(result.readers)[:, target]
        shown["readers"] = [outlined(f"reader {i + 1}", mask, READER_COLOUR) for i, mask in enumerate(readers)]
    saliency = view.of(result.saliency)[target]
    contours = [(saliency >= level, colour) for level, colour in zip(LEVELS, LEVEL_COLOURS, strict=True)]
    key = [(percent(level), colour) for level, colour in zip(LEVELS, LEVEL_COLOURS, strict=True)]
    shown["summary"] = [
        Tile("contours", under, outlines=contours, key=key),
        Tile("saliency, 0 to 1", saliency, SALIENCY_COLOURS),
        Tile(f"variance, 0 to {MOST_VARIANCE}", view.of(result.variance)[target], VARIANCE_COLOURS, MOST_VARIANCE),
    ]
    shown["representatives"] = [
        outlined(f"{percent(found.frequency)} of samples", view.of(found.mask)[target], SAMPLE_COLOUR)
        for found in representatives
    ]
    samples = view.of(result.samples[:SHOWN_SAMPLES])[:, target]
    shown["samples"] = [outlined(f"sample {i + 1}", mask, SAMPLE_COLOUR) for i, mask in enumerate(samples)]
    return shown
