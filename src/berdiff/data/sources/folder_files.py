"""One file (or DICOM folder) of anyone's data as slices: pictures, NIfTI, DICOM and .npy, all in one form."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from berdiff.data import dicom, images, volumes
from berdiff.data.volumes import Volume
from berdiff.errors import InputError

NUMPY = ".npy"
SUFFIXES = (*images.SUFFIXES, *volumes.SUFFIXES, *dicom.SUFFIXES, NUMPY)
_WIDE_MODES = ("I;16", "I;16B", "I;16L", "I", "F")  # Pillow's pictures of more than 8 bits a value


@dataclass(frozen=True)
class Outline:
    """What the header tells, before any pixels are read."""

    slices: int | None  # None for a 2D picture, which is no volume
    size: tuple[int, int]  # (H, W)
    channels: int
    eight_bit: bool  # unsigned 8-bit values that fill their range, as pictures do


@dataclass(frozen=True, eq=False)
class Pixels:
    """The values as stored."""

    path: Path
    values: np.ndarray  # (C, Z, H, W); Z is 1 for a 2D picture
    spacing: tuple[float, float]  # mm a pixel (row, column), nan where unknown
    volume: Volume | None  # where a volume lies in space, if its file says so
    planar: bool  # a 2D picture, not a slice of a volume


def stem(path: Path) -> str:
    """The name without its suffix, of which .nii.gz has two."""
    return path.name[: -len(".nii.gz")] if path.name.lower().endswith(".nii.gz") else path.stem


def is_nifti(path: Path) -> bool:
    return path.name.lower().endswith(volumes.SUFFIXES)


def outline(path: Path) -> Outline:
    """Shape and type of an image by its header."""
    suffix = path.suffix.lower()
    if path.is_dir():
        depth, height, width = volumes.shape_of_dicom(path)
        return Outline(depth, (height, width), 1, False)
    if is_nifti(path):
        if _planar(path):
            height, width = volumes.stored_shape(path)
            return Outline(None, (height, width), 1, False)
        depth, height, width = volumes.shape_of(path)
        return Outline(depth, (height, width), 1, False)
    if suffix in dicom.SUFFIXES:
        return Outline(None, dicom.read_header(path).shape, 1, False)
    if suffix == NUMPY:
        array = open_numpy(path)
        channels, depth, height, width = _numpy_slices(path, array).shape
        return Outline(depth if _is_stack(array) else None, (height, width), channels, array.dtype == np.uint8)
    try:
        with Image.open(path) as picture:
            width, height = picture.size
            grey = picture.mode in ("1", "L", "LA", "La", *_WIDE_MODES)
            return Outline(None, (height, width), 1 if grey else 3, picture.mode not in _WIDE_MODES)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        channels, height, width = (whole := images.read_image(path)).shape  # tells what is wrong, or knows the kind
        return Outline(None, (height, width), channels, whole.dtype == np.uint8)


def read_pixels(path: Path) -> Pixels:
    """An image with all its slices."""
    unknown = (float("nan"), float("nan"))
    suffix = path.suffix.lower()
    if path.is_dir() or (is_nifti(path) and not _planar(path)):
        volume = volumes.read_dicom(path) if path.is_dir() else volumes.read_volume(path)
        return Pixels(path, volume.voxels[None], volume.spacing, volume, planar=False)
    if is_nifti(path):
        return Pixels(path, volumes.read_plane(path)[None, None], unknown, None, planar=True)
    if suffix in dicom.SUFFIXES:
        spacing = dicom.read_header(path).spacing or unknown
        return Pixels(path, dicom.read_pixels(path)[None, None], spacing, None, planar=True)
    if suffix == NUMPY:
        array = open_numpy(path)
        return Pixels(path, _numpy_slices(path, array), unknown, None, planar=not _is_stack(array))
    return Pixels(path, images.read_image(path)[:, None], unknown, None, planar=True)


def read_labels(path: Path, like: Pixels) -> np.ndarray:
    """The label values of a mask as (Z, H, W), at the place and of the size of its image."""
    if path.suffix.lower() in images.SUFFIXES:
        labels = images.read_labels(path)[None]
    else:
        found = read_pixels(path)
        if like.volume is not None and found.volume is not None:
            volumes.check_same_place(like.volume, found.volume)
        elif like.volume is not None or found.volume is not None:
            raise InputError(
                f"{path}: expected a mask that says where it lies in space like its image {like.path.name} "
                "(NIfTI or DICOM volumes for both, or for neither), found one without the other"
            )
        if len(found.values) != 1:
            raise InputError(f"{path}: expected a mask of one channel, found {len(found.values)}")
        labels = found.values[0]
    if labels.shape != like.values.shape[1:]:
        expected, shown = ("x".join(map(str, shape)) for shape in (like.values.shape[1:], labels.shape))
        raise InputError(f"{path}: expected {expected} slices, rows, columns like its image, found {shown}")
    return labels


def _planar(path: Path) -> bool:
    return len(volumes.stored_shape(path)) == 2


def open_numpy(path: Path) -> np.ndarray:
    """Mapped, not loaded: the header is enough to know the shape. No pickle is ever opened."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, SyntaxError) as error:
        raise InputError(
            f"{path}: expected a .npy file of numbers, found a damaged or foreign one ({error})"
        ) from error
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf" or 0 in array.shape:
        raise InputError(f"{path}: expected a .npy file with an array of numbers, found something else")
    return array


def _is_stack(array: np.ndarray) -> bool:
    return array.ndim == 3 and array.shape[-1] != 3


def _numpy_slices(path: Path, array: np.ndarray) -> np.ndarray:
    """(C, Z, H, W) from (H, W), (H, W, 3) in colour, or (Z, H, W)."""
    if array.ndim == 2:
        slices = array[None, None]
    elif _is_stack(array):
        slices = array[None]
    elif array.ndim == 3:
        slices = np.moveaxis(array, -1, 0)[:, None]
    else:
        raise InputError(f"{path}: expected an array (H, W), (H, W, 3) or (slices, H, W), found {array.shape}")
    if slices.dtype.kind == "b":
        return slices.astype(np.uint8)
    if slices.dtype.kind == "f":
        slices = slices.astype(np.float32)
        if not np.isfinite(slices).all():
            raise InputError(f"{path}: expected finite values, found NaN or infinity")
    return slices
