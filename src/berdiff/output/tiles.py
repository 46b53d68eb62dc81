"""The small pictures that panels, sheets and reports are made of.

A mask is shown as the edges of its pixels, not as a smoothed curve: what one sees is what is in the mask, and the image
under it stays untouched.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from berdiff.inference.representatives import Representative
from berdiff.output.captions import percent
from berdiff.output.views import CloseUp, clearest_channel

LEVELS = (0.25, 0.5, 0.75)
LEVEL_COLOURS = ("#4cc9f0", "#ffd166", "#ff5d8f")
SAMPLE_COLOUR, RATER_COLOUR, BOX_COLOUR = "#ffd166", "#4cc9f0", "#ffffff"
MAX_VARIANCE = 0.25  # of a 0/1 variable: half of the samples mark the pixel
SHOWN_SAMPLES = 16


@dataclass(frozen=True, eq=False)
class Tile:
    """Values in a plane, and the outlines over it."""

    title: str
    plane: np.ndarray  # (H, W)
    colours: str = "gray"
    brightest: float = 1.0  # the value of the brightest colour
    outlines: Sequence[tuple[np.ndarray, str]] = ()  # (mask (H, W), colour)
    key: Sequence[tuple[str, str]] = ()  # (words, colour), where several colours need it


def saliency_tile(saliency: np.ndarray, title: str = "saliency, 0 to 1") -> Tile:
    return Tile(title, saliency, "magma")


def variance_tile(variance: np.ndarray, title: str = f"variance, 0 to {MAX_VARIANCE}") -> Tile:
    return Tile(title, variance, "viridis", MAX_VARIANCE)


def result_tiles(close: CloseUp, representatives: Sequence[Representative], target: int) -> dict[str, list[Tile]]:
    """What there is to see of one target, section by section: for the panel and for the report."""
    result, channel = close.result, clearest_channel(close.result)
    under, raters = result.image[channel], [] if result.raters is None else result.raters
    names = ["image"] if len(result.image) == 1 else [f"channel {i + 1}" for i in range(len(result.image))]
    images = [Tile(name, plane) for name, plane in zip(names, result.image, strict=True)]
    if close.plane.shape != result.image.shape:
        box = np.zeros(close.plane.shape[1:], bool)
        box[close.box] = True
        images.insert(0, Tile("where", close.plane[channel], outlines=[(box, BOX_COLOUR)]))

    def outlined(title: str, masks: np.ndarray, colour: str) -> Tile:
        mask = masks[target]
        return Tile(title if mask.any() else f"{title}: nothing", under, outlines=[(mask, colour)])

    contours = list(zip(result.contours(LEVELS)[:, target], LEVEL_COLOURS, strict=True))
    key = [(percent(level), colour) for level, colour in zip(LEVELS, LEVEL_COLOURS, strict=True)]
    shown = result.samples[:SHOWN_SAMPLES]
    return {
        "image": images,
        "raters": [outlined(f"rater {i + 1}", masks, RATER_COLOUR) for i, masks in enumerate(raters)],
        "summary": [
            Tile("contours", under, outlines=contours, key=key),
            saliency_tile(result.saliency[target]),
            variance_tile(result.variance[target]),
        ],
        "representatives": [
            outlined(f"{percent(found.frequency)} of samples", result.pool[found.index], SAMPLE_COLOUR)
            for found in representatives
        ],
        "samples": [outlined(f"sample {i + 1}", masks, SAMPLE_COLOUR) for i, masks in enumerate(shown)],
    }


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


def picture_bytes(picture: Image.Image) -> bytes:
    """As a PNG file."""
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    return buffer.getvalue()
