"""Bring slices to one size, image and masks alike: centre crop or pad, or resize."""

from typing import Literal

import numpy as np
from PIL import Image

Fit = Literal["resize", "crop"]


def fit_image(image: np.ndarray, size: tuple[int, int], how: Fit) -> np.ndarray:
    """(C, H, W) -> (C, *size). Resizing is bilinear, averaged where pixels get larger, so nothing rings or aliases."""
    if image.shape[1:] == tuple(size):
        return image
    if how == "crop":
        return centre(image, size)
    floats = np.stack([_resized(channel.astype(np.float32), size) for channel in image])
    return floats if image.dtype.kind == "f" else np.rint(floats).astype(image.dtype)


def fit_labels(labels: np.ndarray, size: tuple[int, int], how: Fit) -> np.ndarray:
    """(..., H, W) uint8 -> (..., *size). Resizing takes the nearest pixel, so no label appears that was not there."""
    if labels.shape[-2:] == tuple(size):
        return labels
    if how == "crop":
        return centre(labels, size)
    rows, columns = (_nearest(old, new) for old, new in zip(labels.shape[-2:], size, strict=True))
    return labels[..., rows[:, None], columns]


def fit_spacing(
    spacing: tuple[float, float], old: tuple[int, int], new: tuple[int, int], how: Fit
) -> tuple[float, float]:
    """mm a pixel after fitting: a crop keeps it, a resize spreads the same millimetres over other pixels."""
    if how == "crop":
        return spacing
    return spacing[0] * old[0] / new[0], spacing[1] * old[1] / new[1]


def centre(array: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The centre (..., *size) of an array, with zeros around it where the array is the smaller."""
    for axis, want in zip((-2, -1), size, strict=True):
        have = array.shape[axis]
        if have > want:
            first = (have - want) // 2
            array = np.take(array, range(first, first + want), axis=axis)
        elif have < want:
            before = (want - have) // 2
            widths = [(0, 0)] * array.ndim
            widths[axis] = (before, want - have - before)
            array = np.pad(array, widths)
    return array


def _resized(plane: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    return np.asarray(Image.fromarray(plane).resize((size[1], size[0]), Image.Resampling.BILINEAR))


def _nearest(old: int, new: int) -> np.ndarray:
    """For each of `new` pixels the old one in which its centre lies: floor((i + 1/2) old / new), in whole numbers."""
    return (2 * np.arange(new) + 1) * old // (2 * new)
