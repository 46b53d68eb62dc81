"""Read 2D pictures (PNG, JPG, TIFF) as arrays; a file that is not what it should be is named in one sentence."""

import logging
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from berdiff.errors import InputError

SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff")

# What Pillow and tifffile raise on a broken or foreign file, depending on where in the file the damage is.
_BROKEN = (OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error, IndexError, KeyError)
_PLAIN_MODES = ("L", "I;16", "I;16B", "I;16L", "I", "F")


def read_image(path: str | Path, channels: int | None = None) -> np.ndarray:
    """A picture as (C, H, W), values as stored: uint8, uint16, int32 or float32 (never NaN or infinite).

    An alpha channel is dropped. `channels` is how many there must be; with 1, a grey picture that was saved as RGB
    (three equal channels) counts as grey.
    """
    path = Path(path)
    pixels = _pixels(path, labels=False)
    image = pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)
    if channels == 1 and len(image) == 3 and (image == image[:1]).all():
        image = image[:1]
    if channels is not None and len(image) != channels:
        raise InputError(f"{path}: expected {channels} channel(s), found {len(image)}")
    if image.dtype.kind == "f" and not np.isfinite(image).all():
        raise InputError(f"{path}: expected finite values, found NaN or infinity")
    return np.ascontiguousarray(image)


def read_labels(path: str | Path, size: tuple[int, int] | None = None) -> np.ndarray:
    """A label picture as (H, W), values as stored (the index where the picture has a palette).

    `size` is the (H, W) it must have, that of its image.
    """
    path = Path(path)
    labels = _pixels(path, labels=True)
    if labels.ndim == 3 and (labels == labels[..., :1]).all():  # a grey mask that was saved as RGB
        labels = labels[..., 0]
    if labels.ndim != 2:
        raise InputError(f"{path}: expected a mask of one channel, found {labels.shape[-1]} different ones")
    if size is not None and labels.shape != tuple(size):
        raise InputError(f"{path}: expected a mask of {_by(size)} like its image, found {_by(labels.shape)}")
    return labels


def read_mask(path: str | Path, size: tuple[int, int] | None = None, threshold: float | None = None) -> np.ndarray:
    """A binary mask as (H, W) uint8 of 0 and 1.

    Without `threshold` the picture must hold 0 and one other value, 1 or 255, and nothing else. With it, for lossy
    JPG masks, whatever is above it is foreground.
    """
    labels = read_labels(path, size)
    if threshold is not None:
        return (labels > threshold).astype(np.uint8)
    return binary(labels, str(path))


def binary(labels: np.ndarray, what: str) -> np.ndarray:
    """uint8 of 0 and 1 from an array that holds only {0, 1} or only {0, 255}; `what` names it in the error."""
    # two reductions settle the usual case: sorting all values of 13,786 masks would cost more than reading them
    foreground = labels > 0
    top = labels.max(initial=0)
    if top in (0, 1, 255) and (labels == np.where(foreground, top, 0)).all():
        return foreground.astype(np.uint8)
    found = np.unique(labels)
    shown = ", ".join(f"{value:g}" for value in found[:6]) + (", ..." if len(found) > 6 else "")
    raise InputError(f"{what}: expected a mask of 0 and 1 or of 0 and 255, found the values {shown}")


def _pixels(path: Path, labels: bool) -> np.ndarray:
    """(H, W) or (H, W, C). A palette is looked up for an image and kept as indices for labels."""
    if not path.is_file():
        raise InputError(f"{path}: expected a picture, found no such file")
    try:
        if path.suffix.lower() in (".tif", ".tiff"):
            pixels = _tiff_pixels(path)
            if pixels is not None:
                return pixels
        with Image.open(path) as picture:
            frames = getattr(picture, "n_frames", 1)
            if frames != 1:
                raise InputError(f"{path}: expected one 2D picture, found {frames} frames")
            if picture.mode in ("1", "LA", "La"):
                picture = picture.convert("L")
            elif picture.mode not in _PLAIN_MODES and not (labels and picture.mode == "P"):
                picture = picture.convert("RGB")
            return np.array(picture)
    except InputError:
        raise
    except UnidentifiedImageError as error:
        raise InputError(f"{path}: expected a picture (PNG, JPG or TIFF), found something else") from error
    except (*_BROKEN, Image.DecompressionBombError) as error:
        raise InputError(f"{path}: expected a whole picture, found a damaged one ({error})") from error


def _tiff_pixels(path: Path) -> np.ndarray | None:
    """A TIFF that tifffile reads by itself, with all its bits (Pillow cuts 16-bit colour to 8); None for the others."""
    import tifffile

    logging.getLogger("tifffile").setLevel(logging.CRITICAL)  # it logs what it also raises, and we tell that already
    with tifffile.TiffFile(path) as file:
        page = file.pages.first
        if page.compression not in (1, 8, 32946) or page.photometric not in (0, 1, 2):
            return None  # other compressions and palettes: Pillow knows them
        if len(file.pages) != 1 or page.axes not in ("YX", "YXS", "SYX"):
            found = f"{len(file.pages)} pages of shape {page.shape}"
            raise InputError(f"{path}: expected one 2D picture, grey or in colour, found {found}")
        pixels = page.asarray()
        if page.photometric == 0 and pixels.dtype.kind == "u":  # "0 is white"
            pixels = np.iinfo(pixels.dtype).max - pixels
    if page.axes == "SYX":
        pixels = np.moveaxis(pixels, 0, -1)
    if pixels.ndim == 3:  # without what comes after the colours or the grey
        pixels = pixels[..., :3] if page.photometric == 2 else pixels[..., 0]
    if pixels.dtype == bool:
        return pixels.astype(np.uint8) * 255
    return pixels.astype(np.float32) if pixels.dtype == np.float64 else pixels


def _by(size: tuple[int, ...]) -> str:
    return "x".join(str(n) for n in size)
