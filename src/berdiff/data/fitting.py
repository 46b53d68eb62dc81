"""Bring slices to one size, image and masks alike: centre crop or pad, or resize."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from PIL import Image

from berdiff.data.augment import crop

Fit = Literal["resize", "crop"]


def fit_image(image: np.ndarray, size: tuple[int, ...], how: Fit) -> np.ndarray:
    """(C, H, W) -> (C, *size). Resizing is bilinear, averaged where pixels get larger, so nothing rings or aliases."""
    if image.shape[1:] == tuple(size):
        return image
    if how == "crop":
        return centre(image, size)
    height, width = size
    pictures = [Image.fromarray(channel.astype(np.float32)) for channel in image]
    floats = np.stack([np.asarray(one.resize((width, height), Image.Resampling.BILINEAR)) for one in pictures])
    return floats if image.dtype.kind == "f" else np.rint(floats).astype(image.dtype)


def fit_labels(labels: np.ndarray, size: tuple[int, ...], how: Fit) -> np.ndarray:
    """(..., H, W) uint8 -> (..., *size). Resizing takes the nearest pixel, so no label appears that was not there."""
    if labels.shape[-2:] == tuple(size):
        return labels
    if how == "crop":
        return centre(labels, size)
    # for each new pixel the old one in which its centre lies: floor((i + 1/2) old / new), in whole numbers
    nearest = [(2 * np.arange(new) + 1) * old // (2 * new) for old, new in zip(labels.shape[-2:], size, strict=True)]
    rows, columns = nearest
    return labels[..., rows[:, None], columns]


def fit_spacing(spacing: Sequence[float], old: Sequence[int], new: Sequence[int], how: Fit) -> tuple[float, float]:
    """mm per pixel after fitting: a crop keeps it, a resize spreads the same millimetres over other pixels."""
    row, column = spacing
    if how == "crop":
        return row, column
    return row * old[0] / new[0], column * old[1] / new[1]


def centre(array: np.ndarray, size: Sequence[int]) -> np.ndarray:
    """The centre (..., *size) of an array, with zeros around it where the array is the smaller."""
    missing = [max(0, want - have) for have, want in zip(array.shape[-len(size) :], size, strict=True)]
    around = [(0, 0)] * (array.ndim - len(size)) + [(pixels // 2, pixels - pixels // 2) for pixels in missing]
    return crop(np.pad(array, around), size)
