"""Crops and augmentations that move image and masks together, as a function of a generator and nothing else."""

import numpy as np

GAIN = 0.1  # contrast is multiplied by 1 - GAIN to 1 + GAIN
OFFSET = 0.05  # brightness is moved by -OFFSET to OFFSET


def window(array: np.ndarray, size: tuple[int, int], shift: tuple[int, int] = (0, 0)) -> np.ndarray:
    """The (..., h, w) window around the centre, moved by `shift`; where it leaves the array, the edge is repeated."""
    for axis, want, move in zip((-2, -1), size, shift, strict=True):
        have = array.shape[axis]
        picked = np.clip(np.arange(want) + (have - want) // 2 + move, 0, have - 1)
        if picked[-1] - picked[0] == want - 1:  # nothing is repeated: a view will do
            array = array[..., picked[0] : picked[-1] + 1, :] if axis == -2 else array[..., picked[0] : picked[-1] + 1]
        else:
            array = array.take(picked, axis=axis)
    return array


def augmented(
    image: np.ndarray, masks: np.ndarray, size: tuple[int, int], rng: np.random.Generator, shift: int = 4
) -> tuple[np.ndarray, np.ndarray]:
    """image (C, H, W) float32 in [0, 1] and masks (R, K, H, W) -> the same of `size`: shifted, turned, flipped.

    `shift` is how many pixels up, down, left or right at most: a nodule stays where its crop has it, roughly.

    Contrast and brightness change a little in the image alone. Turns are by 90 degrees, or by 180 where `size` is not
    square: nothing is interpolated, so masks stay masks.
    """
    down, right = rng.integers(-shift, shift + 1, size=2)
    quarters = int(rng.integers(4)) if size[0] == size[1] else 2 * int(rng.integers(2))
    flip = bool(rng.integers(2))  # with the turns this reaches all eight symmetries of the square
    gain, offset = rng.uniform(1 - GAIN, 1 + GAIN), rng.uniform(-OFFSET, OFFSET)

    def moved(array: np.ndarray) -> np.ndarray:
        array = np.rot90(window(array, size, (int(down), int(right))), quarters, axes=(-2, -1))
        return array[..., ::-1] if flip else array

    image = np.clip(moved(image) * np.float32(gain) + np.float32(offset), 0, 1)
    return image, moved(masks)
