"""Crops, patches and augmentations that move image and masks together, as a function of a generator alone."""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F

from berdiff.data.input_spec import Size

GAIN = 0.1  # contrast is multiplied by 1 - GAIN to 1 + GAIN
OFFSET = 0.05  # brightness is moved by -OFFSET to OFFSET


def crop(array: np.ndarray, size: Sequence[int], shift: Sequence[int] | None = None) -> np.ndarray:
    """The (..., *size) crop around the centre, moved by `shift`; where it leaves the array, the edge is repeated."""
    have = array.shape[-len(size) :]
    window = middle(have, size, shift)
    if all(side.start >= 0 and side.stop <= length for side, length in zip(window, have, strict=True)):
        return array[..., *window]
    for axis, side in enumerate(window, -len(size)):
        array = array.take(np.arange(side.start, side.stop), axis=axis, mode="clip")
    return array


def middle(size: Sequence[int], want: Sequence[int], shift: Sequence[int] | None = None) -> tuple[slice, ...]:
    """The window of `want` around the centre of `size`, moved by `shift`."""
    moves = shift or [0] * len(size)
    firsts = [(have - side) // 2 + move for have, side, move in zip(size, want, moves, strict=True)]
    return window_at(firsts, want)


def window_at(firsts: Sequence[int], size: Sequence[int]) -> tuple[slice, ...]:
    """The window of `size` from these first pixels on."""
    return tuple(slice(at, at + side) for at, side in zip(firsts, size, strict=True))


def random_patch(masks: np.ndarray, size: Size, rng: np.random.Generator, foreground: float) -> tuple[slice, ...]:
    """The window of a random part of `size` of masks (R, K, *S): with the probability `foreground` with a random marked
    pixel in its middle, as far as the border lets it; else anywhere."""
    have = masks.shape[2:]
    last = [length - side for length, side in zip(have, size, strict=True)]
    marked = np.flatnonzero(masks.any(axis=(0, 1))) if rng.random() < foreground else ()
    if len(marked):
        pixel = np.unravel_index(int(rng.choice(marked)), have)
        wanted = zip(pixel, size, last, strict=True)
        return window_at([min(max(int(at) - side // 2, 0), most) for at, side, most in wanted], size)
    return window_at([int(rng.integers(most + 1)) for most in last], size)


def empty_window(masks: np.ndarray, size: Size, rng: np.random.Generator) -> tuple[slice, ...] | None:
    """The window of a random part of `size` of masks (R, K, *S) without a marked pixel; None where there is none."""
    counts = masks.any(axis=(0, 1)).astype(np.int32)
    for axis, side in enumerate(size):  # sums over the window, axis by axis
        sums = np.moveaxis(counts.cumsum(axis, dtype=np.int32), axis, 0)
        sums = np.concatenate([np.zeros_like(sums[:1]), sums])
        counts = np.moveaxis(sums[side:] - sums[:-side], 0, axis)
    places = np.flatnonzero(counts == 0)
    if not len(places):
        return None
    return window_at([int(at) for at in np.unravel_index(int(rng.choice(places)), counts.shape)], size)


def negative(
    image: np.ndarray, masks: np.ndarray, size: Size, zoom: float, rng: np.random.Generator
) -> np.ndarray | None:
    """A random part of the image that nobody marked, magnified by 1 to `zoom` to `size`; None where there is none.
    Borders are mirrored by a quarter of the size."""
    border, factor = min(size) // 4, rng.uniform(1, zoom)
    part = tuple(round(side / factor) for side in size)
    edges = [(border, border)] * len(size)
    window = empty_window(np.pad(masks, [(0, 0), (0, 0), *edges], mode="reflect"), part, rng)
    if window is None:
        return None
    return resized(np.pad(image, [(0, 0), *edges], mode="reflect")[..., *window], size)


def zoomed(
    image: np.ndarray, masks: np.ndarray, zoom: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Both magnified about the centre by a random factor between 1 / `zoom` and `zoom`; beyond the edge, the edge."""
    factor, size = zoom ** rng.uniform(-1, 1), image.shape[1:]
    part = tuple(round(side / factor) for side in size)
    return resized(crop(image, part), size), (resized(crop(masks, part), size) > 0.5).astype(masks.dtype)


def resized(array: np.ndarray, size: Size) -> np.ndarray:
    """(..., *S) -> (..., *size) float32, linear along each axis, smoothed before it shrinks."""
    lead = array.shape[: -len(size)]
    flat = torch.from_numpy(np.ascontiguousarray(array, np.float32)).reshape(1, -1, *array.shape[-2:])
    made = F.interpolate(flat, size[-2:], mode="bilinear", antialias=True)
    if len(size) == 3:  # the axes are independent of each other: now the first, beside all pixels of a plane
        planes = made.reshape(1, -1, array.shape[-3], size[1] * size[2])
        made = F.interpolate(planes, (size[0], planes.shape[-1]), mode="bilinear", antialias=True)
    return made.reshape(*lead, *size).numpy()


def augmented(
    image: np.ndarray, masks: np.ndarray, size: Size, rng: np.random.Generator, shift: int = 4
) -> tuple[np.ndarray, np.ndarray]:
    """image (C, *S) in [0, 1] and masks (R, K, *S) -> the same of `size`: shifted by up to `shift`, turned in the
    plane, flipped (volumes along z too), contrast and brightness changed a little. Nothing is interpolated."""
    moves = rng.integers(-shift, shift + 1, size=len(size)).tolist()
    quarters = int(rng.integers(4)) if size[-2] == size[-1] else 2 * int(rng.integers(2))
    flip = bool(rng.integers(2))  # with the turns this reaches all eight symmetries of the square
    gain, offset = rng.uniform(1 - GAIN, 1 + GAIN), rng.uniform(-OFFSET, OFFSET)
    flips = (-1,) * flip + (-3,) * (len(size) == 3 and bool(rng.integers(2)))

    def moved(array: np.ndarray) -> np.ndarray:
        return np.flip(np.rot90(crop(array, size, moves), quarters, axes=(-2, -1)), flips)

    image = np.clip(moved(image) * np.float32(gain) + np.float32(offset), 0, 1)
    return image, moved(masks)
