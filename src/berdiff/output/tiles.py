"""The small pictures that panels, sheets and reports are made of.

A mask is shown as the outline of its pixels, not as a smoothed curve: what one sees is what is in the mask.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from PIL import Image

from berdiff.data.input_spec import Kind
from berdiff.inference.representatives import Representative
from berdiff.metrics import more_than
from berdiff.output.captions import percent
from berdiff.output.colours import (
    BOX_COLOUR,
    LEVELS,
    RATER_COLOUR,
    SAMPLE_COLOUR,
    Key,
    level_colours,
    rgb_of,
    target_colours,
)
from berdiff.output.views import CloseUp
from berdiff.targets.targets import label_map

MAX_VARIANCE = 0.25  # of a 0/1 variable: half of the samples mark the pixel
SHOWN_SAMPLES = 16
PAINT = 0.6  # how much of a target's colour covers the image


@dataclass(frozen=True, eq=False)
class Tile:
    """Values in a plane, and the outlines over it."""

    title: str
    plane: np.ndarray  # (H, W), or on sheets (H, W, 3) in colours of its own, in [0, 1]
    colours: str = "gray"
    brightest: float = 1.0  # the value of the brightest colour
    outlines: Sequence[tuple[np.ndarray, str]] = ()  # (mask (H, W), colour), drawn in this order
    key: Key = ()  # where several colours need it

    def pixels(self) -> np.ndarray:
        """(H, W) or (H, W, 3) uint8, without the outlines."""
        if self.colours == "gray" and self.brightest == 1:
            return np.rint(np.clip(self.plane, 0, 1) * 255).astype(np.uint8)
        from matplotlib import colormaps

        return colormaps[self.colours](np.clip(self.plane / self.brightest, 0, 1), bytes=True)[..., :3].copy()


def saliency_tile(saliency: np.ndarray, title: str = "saliency, 0 to 1") -> Tile:
    return Tile(title, saliency, "magma")


def variance_tile(variance: np.ndarray, title: str = f"variance, 0 to {MAX_VARIANCE}") -> Tile:
    return Tile(title, variance, "viridis", MAX_VARIANCE)


def masks_tile(title: str, under: np.ndarray, masks: np.ndarray, colour: str = SAMPLE_COLOUR) -> Tile:
    """All targets of masks `(K, H, W)` outlined over an image; one alone in `colour`, several each in its own."""
    colours = (colour,) if len(masks) == 1 else target_colours(len(masks))
    words = title if masks.any() else f"{title}: nothing"
    return Tile(words, under, outlines=list(zip(masks, colours, strict=True)))


def painted_tile(title: str, under: np.ndarray, masks: np.ndarray, kind: Kind) -> Tile:
    """Masks `(K, H, W)` of several targets as they can be told apart where a pixel is hardly more than a line is wide:
    painted over the image, of nested ones the innermost; independent ones, which may overlap, are outlined. The title
    says nothing of these masks: on a sheet it stands over a whole column."""
    if kind == "independent":
        return replace(masks_tile(title, under, masks), title=title)
    colours = np.array([rgb_of(colour) for colour in ("#000000", *target_colours(len(masks)))]) / 255
    labels, grey = label_map(masks)[..., None], np.repeat(under[..., None], 3, -1)
    plane = np.where(labels > 0, PAINT * colours[labels[..., 0]] + (1 - PAINT) * grey, grey)
    return Tile(title, plane)


def contours_tile(title: str, under: np.ndarray, saliency: np.ndarray, target: int, count: int) -> Tile:
    """Where the saliency `(H, W)` of one of `count` targets is above each level, over an image."""
    colours = level_colours(target, count)
    outlines = [(more_than(saliency, level), colour) for level, colour in zip(LEVELS, colours, strict=True)]
    key = [(percent(level), colour) for level, colour in zip(LEVELS, colours, strict=True)]
    return Tile(title, under, outlines=outlines, key=key)


def result_tiles(close: CloseUp, representatives: Sequence[Representative]) -> dict[str, list[Tile]]:
    """What there is to see of all targets together, section by section."""
    result, under = close.result, close.image[close.channel]
    count = len(result.image)
    names = result.channels if len(result.channels) == count else [f"channel {i + 1}" for i in range(count)]
    names = ["image"] if count == 1 else names
    images = [Tile(name, plane) for name, plane in zip(names, close.image, strict=True)]
    if (around := close.around()) is not None:
        plane, box = around
        images.insert(0, Tile("where", plane, outlines=[(box, BOX_COLOUR)]))

    def outlined(title: str, masks: np.ndarray, colour: str = SAMPLE_COLOUR) -> Tile:
        return masks_tile(title, under, masks, colour)

    raters = [] if close.raters is None else close.raters
    return {
        "image": images,
        "raters": [outlined(f"rater {i + 1}", masks, RATER_COLOUR) for i, masks in enumerate(raters)],
        # of one target its contours show it
        "majority": [outlined("majority", close.of(result.majority()))] if len(result.targets) > 1 else [],
        "representatives": [
            outlined(f"{percent(found.frequency)} of samples", close.of(found.mask)) for found in representatives
        ],
        "samples": [
            outlined(f"sample {i + 1}", mask) for i, mask in enumerate(close.of(result.samples[:SHOWN_SAMPLES]))
        ],
    }


def target_tiles(close: CloseUp, target: int) -> list[Tile]:
    """Contours, saliency and variance of one target."""
    result, under = close.result, close.image[close.channel]
    saliency = close.of(result.saliency[target])
    contours = contours_tile("contours", under, saliency, target, len(result.targets))
    return [contours, saliency_tile(saliency), variance_tile(close.of(result.variance[target]))]


def picture_bytes(picture: Image.Image) -> bytes:
    """As a PNG file."""
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    return buffer.getvalue()
