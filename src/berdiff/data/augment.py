"""Crops, patches and augmentations that move image and masks together, as a function of a generator alone."""

import numpy as np

GAIN = 0.1  # contrast is multiplied by 1 - GAIN to 1 + GAIN
OFFSET = 0.05  # brightness is moved by -OFFSET to OFFSET


def crop(array: np.ndarray, size: tuple[int, int], shift: tuple[int, int] = (0, 0)) -> np.ndarray:
    """The (..., h, w) crop around the centre, moved by `shift`; where it leaves the array, the edge is repeated."""
    firsts = [(have - want) // 2 + move for have, want, move in zip(array.shape[-2:], size, shift, strict=True)]
    (top, left), (height, width) = firsts, size
    if min(firsts) >= 0 and top + height <= array.shape[-2] and left + width <= array.shape[-1]:
        return array[..., top : top + height, left : left + width]
    rows, columns = (np.arange(first, first + want) for first, want in zip(firsts, size, strict=True))
    return array.take(rows, axis=-2, mode="clip").take(columns, axis=-1, mode="clip")


def random_patch(
    masks: np.ndarray, size: tuple[int, int], rng: np.random.Generator, foreground: float
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


def augmented(
    image: np.ndarray, masks: np.ndarray, size: tuple[int, int], rng: np.random.Generator, shift: int = 4
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
