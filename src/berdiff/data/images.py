"""Read 2D pictures (PNG, JPG, TIFF) as arrays; a file that is not what it should be is named in one sentence."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile

from berdiff.data.describe import by, decoding, expect, some_values
from berdiff.data.limits import check_size
from berdiff.data.numbers import finite
from berdiff.data.paths import expect_file
from berdiff.errors import InputError

SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff")
WIDE_MODES = ("I;16", "I;16B", "I;16L", "I", "F")  # Pillow's pictures of more than 8 bits per value
_PLAIN_MODES = ("L", *WIDE_MODES)
# How the files begin. By their content and not by Pillow's own guess: it knows formats that start other programs, and
# its limit on pixels is a setting of the whole process, where ours is an option.
_FORMATS: dict[bytes, Any] = {b"\x89PNG\r\n\x1a\n": PngImageFile, b"\xff\xd8\xff": JpegImageFile}
_FORMATS |= dict.fromkeys((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"), TiffImageFile)


def read_picture(path: str | Path, channels: int | None = None) -> np.ndarray:
    """A picture as (C, H, W), values as stored, without alpha. `channels` is how many there must be; with 1, three
    equal channels count as grey."""
    path = Path(path)
    image = np.moveaxis(np.atleast_3d(_pixels(path, labels=False)), -1, 0)
    expect(image.size, path, "a picture of at least one pixel", by(image.shape[1:]), "shape")
    if channels == 1 and len(image) == 3 and (image == image[:1]).all():
        image = image[:1]
    expect(channels in (None, len(image)), path, f"{channels} channel(s)", len(image), "shape")
    return np.ascontiguousarray(finite(image, path))


def read_labels(path: str | Path, size: tuple[int, int] | None = None) -> np.ndarray:
    """A label picture as (H, W), values as stored (the index where it has a palette); `size` is that of its image."""
    path = Path(path)
    labels = _pixels(path, labels=True)
    expect(labels.size, path, "a mask of at least one pixel", by(labels.shape), "shape")
    if labels.ndim == 3 and (labels == labels[..., :1]).all():  # a grey mask that was saved as RGB
        labels = labels[..., 0]
    expect(labels.ndim == 2, path, "a mask of one channel", f"{labels.shape[-1]} different ones", "shape")
    size = labels.shape if size is None else size
    expect(labels.shape == tuple(size), path, f"a mask of {by(size)} like its image", by(labels.shape), "shape")
    return labels


def read_mask(path: str | Path, size: tuple[int, int] | None = None, threshold: float | None = None) -> np.ndarray:
    """A binary mask as (H, W) uint8 of 0 and 1: of 0 and one other value, 1 or 255; or of what is above `threshold`
    (JPG)."""
    labels = read_labels(path, size)
    return binary(labels, str(path)) if threshold is None else (labels > threshold).astype(np.uint8)


def binary(labels: np.ndarray, what: str) -> np.ndarray:
    """uint8 of 0 and 1 from an array that holds only {0, 1} or only {0, 255}; `what` names it in the error."""
    # a reduction settles the usual case: sorting all values of 13,786 masks would cost more than reading them
    top = labels.max(initial=0)
    if top <= 1 and labels.dtype.kind in "ub":
        return labels.astype(np.uint8)
    foreground = labels > 0
    if top in (0, 1, 255) and (labels == np.where(foreground, top, 0)).all():
        return foreground.astype(np.uint8)
    raise InputError(f"{what}: expected a mask of 0 and 1 or of 0 and 255, found the values {some_values(labels)}")


@contextmanager
def open_picture(path: Path) -> Iterator[ImageFile.ImageFile]:
    """A PNG, JPG or TIFF with its header read and its size checked; what goes wrong inside is the file's fault."""
    expect_file(path, "a picture")
    with decoding(path, "a whole picture", "a damaged one"):
        with path.open("rb") as file:
            head = file.read(8)
        opener = next((one for start, one in _FORMATS.items() if head.startswith(start)), None)
        if opener is None:
            raise InputError(f"{path}: expected a picture (PNG, JPG or TIFF), found something else", "kind")
        with opener(path) as picture:
            shape, itemsize = (picture.height, picture.width, len(picture.getbands())), 4
            check_size(path, shape, itemsize if picture.mode in WIDE_MODES else 1)
            yield picture


def _pixels(path: Path, labels: bool) -> np.ndarray:
    """(H, W) or (H, W, C). A palette is looked up for an image and kept as indices for labels."""
    expect_file(path, "a picture")
    with decoding(path, "a whole picture", "a damaged one"):
        if path.suffix.lower() in (".tif", ".tiff") and (pixels := _tiff_pixels(path)) is not None:
            return pixels
        with open_picture(path) as picture:
            frames = getattr(picture, "n_frames", 1)
            expect(frames == 1, path, "one 2D picture", f"{frames} frames", "kind")
            if picture.mode in ("1", "LA", "La"):
                return np.array(picture.convert("L"))
            if picture.mode not in _PLAIN_MODES and not (labels and picture.mode == "P"):
                return np.array(picture.convert("RGB"))
            return np.array(picture)


def _tiff_pixels(path: Path) -> np.ndarray | None:
    """A TIFF that tifffile reads by itself, with all its bits (Pillow cuts 16-bit colour to 8); None for the others."""
    import tifffile

    logging.getLogger("tifffile").setLevel(logging.CRITICAL)  # it logs what it also raises
    with tifffile.TiffFile(path) as file:
        page = file.pages.first
        if page.compression not in (1, 8, 32946) or page.photometric not in (0, 1, 2):
            return None  # other compressions and palettes: Pillow knows them
        planar, found = page.axes in ("YX", "YXS", "SYX"), f"{len(file.pages)} pages of shape {page.shape}"
        expect(planar and len(file.pages) == 1, path, "one 2D picture, grey or in colour", found, "kind")
        check_size(path, page.shape, page.dtype.itemsize if page.dtype is not None else 8)
        pixels = page.asarray()
        if page.photometric == 0 and pixels.dtype.kind == "u":  # "0 is white"
            pixels = np.iinfo(pixels.dtype).max - pixels
    if page.axes == "SYX":
        pixels = np.moveaxis(pixels, 0, -1)
    if pixels.ndim == 3:  # without what comes after the colours or the grey
        pixels = pixels[..., :3] if page.photometric == 2 else pixels[..., 0]
    if pixels.dtype == bool:
        return pixels.astype(np.uint8) * 255
    return pixels
