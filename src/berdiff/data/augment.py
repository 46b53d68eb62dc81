"""Crops, patches and augmentations that move image and masks together, as a function of a generator alone."""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F

GAIN = 0.1  # contrast is multiplied by 1 - GAIN to 1 + GAIN
OFFSET = 0.05  # brightness is moved by -OFFSET to OFFSET


def crop(array: np.ndarray, size: tuple[int, ...], shift: tuple[int, int] = (0, 0)) -> np.ndarray:
    """The (..., h, w) crop around the centre, moved by `shift`; where it leaves the array, the edge is repeated."""
    height, width = array.shape[-2:]
    rows, columns = middle((height, width), size, shift)
    if min(rows.start, columns.start) >= 0 and rows.stop <= height and columns.stop <= width:
        return array[..., rows, columns]
    inside = (np.arange(side.start, side.stop) for side in (rows, columns))
    return array.take(next(inside), axis=-2, mode="clip").take(next(inside), axis=-1, mode="clip")


def middle(size: Sequence[int], want: Sequence[int], shift: Sequence[int] = (0, 0)) -> tuple[slice, slice]:
    """Rows and columns of the centre of `size`, moved by `shift`."""
    top, left = ((have - side) // 2 + move for have, side, move in zip(size, want, shift, strict=True))
    return slice(top, top + want[0]), slice(left, left + want[1])


def random_patch(
    masks: np.ndarray, size: tuple[int, ...], rng: np.random.Generator, foreground: float
) -> tuple[slice, slice]:
    """Rows and columns of a random part of `size` of masks (R, K, H, W), always inside them.

    With the probability `foreground` a random pixel that any rater marked as any target is in its middle, or as near
    to that as the border lets it; otherwise, and where nothing is marked, every place is as likely.
    """
    last = [have - want for have, want in zip(masks.shape[-2:], size, strict=True)]
    marked = np.flatnonzero(masks.any(axis=(0, 1))) if rng.random() < foreground else ()
    if len(marked):
        pixel = divmod(int(rng.choice(marked)), masks.shape[-1])
        firsts = [min(max(at - want // 2, 0), most) for at, want, most in zip(pixel, size, last, strict=True)]
    else:
        firsts = [int(rng.integers(most + 1)) for most in last]
    top, left = firsts
    return slice(top, top + size[0]), slice(left, left + size[1])


def empty_window(masks: np.ndarray, size: tuple[int, ...], rng: np.random.Generator) -> tuple[int, int] | None:
    """Row and column of the first pixel of a random part of `size` of masks (R, K, H, W) that holds no marked pixel;
    None where there is no such part."""
    (height, width), marked = size, masks.any(axis=(0, 1))
    sums = np.pad(marked.astype(np.int32), ((1, 0), (1, 0))).cumsum(0).cumsum(1)
    counts = sums[height:, width:] - sums[:-height, width:] - sums[height:, :-width] + sums[:-height, :-width]
    places = np.flatnonzero(counts == 0)
    if not len(places):
        return None
    row, column = divmod(int(rng.choice(places)), counts.shape[1])
    return row, column


def negative(
    image: np.ndarray, masks: np.ndarray, size: tuple[int, ...], zoom: float, rng: np.random.Generator
) -> np.ndarray | None:
    """A random part of the image that nobody marked, magnified by 1 to `zoom` to `size`; None where there is none.

    A quarter of the size is mirrored at each border of the image: else few parts of the size would not hold the middle.
    """
    border, factor = min(size) // 4, rng.uniform(1, zoom)
    part = (round(size[0] / factor), round(size[1] / factor))
    edges = [(0, 0), (border, border), (border, border)]
    first = empty_window(np.pad(masks, [(0, 0), *edges], mode="reflect"), part, rng)
    if first is None:
        return None
    rows, columns = (slice(at, at + side) for at, side in zip(first, part, strict=True))
    return resized(np.pad(image, edges, mode="reflect")[..., rows, columns], size)


def zoomed(
    image: np.ndarray, masks: np.ndarray, zoom: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Both magnified about the centre by a random factor between 1 / `zoom` and `zoom`; beyond the edge, the edge."""
    factor = zoom ** rng.uniform(-1, 1)
    size: tuple[int, ...] = image.shape[-2:]
    part = (round(size[0] / factor), round(size[1] / factor))
    return resized(crop(image, part), size), (resized(crop(masks, part), size) > 0.5).astype(masks.dtype)


def resized(array: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """(..., h, w) -> (..., *size) float32, bilinear, smoothed before it shrinks."""
    flat = torch.from_numpy(np.ascontiguousarray(array, np.float32)).reshape(1, -1, *array.shape[-2:])
    made = F.interpolate(flat, size, mode="bilinear", antialias=True)
    return made.reshape(*array.shape[:-2], *size).numpy()


def augmented(
    image: np.ndarray, masks: np.ndarray, size: tuple[int, ...], rng: np.random.Generator, shift: int = 4
) -> tuple[np.ndarray, np.ndarray]:
    """image (C, H, W) float32 in [0, 1] and masks (R, K, H, W) -> the same of `size`: shifted, turned, flipped.

    `shift` is how many pixels up, down, left or right at most. Contrast and brightness change a little in the image
    only. Turns are by 90 degrees, or by 180 where `size` is not square: nothing is interpolated, so masks stay masks.
    """
    down, right = rng.integers(-shift, shift + 1, size=2)
    quarters = int(rng.integers(4)) if size[0] == size[1] else 2 * int(rng.integers(2))
    flip = bool(rng.integers(2))  # with the turns this reaches all eight symmetries of the square
    gain, offset = rng.uniform(1 - GAIN, 1 + GAIN), rng.uniform(-OFFSET, OFFSET)

    def moved(array: np.ndarray) -> np.ndarray:
        array = np.rot90(crop(array, size, (int(down), int(right))), quarters, axes=(-2, -1))
        return array[..., ::-1] if flip else array

    image = np.clip(moved(image) * np.float32(gain) + np.float32(offset), 0, 1)
    return image, moved(masks)
