"""THE reader of image files: pictures, NIfTI, DICOM and .npy in one form, with the way back to each file's own grid."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path

import numpy as np

from berdiff.data import dicom, images, volumes
from berdiff.data.describe import by, decoding, expect
from berdiff.data.dicom import SliceHeader
from berdiff.data.image import UNKNOWN, Grid, Image, Kind, Source, check_same_place, likely_modality
from berdiff.data.limits import check_size
from berdiff.data.numbers import finite
from berdiff.data.paths import expect_file
from berdiff.errors import InputError

_SUFFIXES: dict[Kind, tuple[str, ...]] = {"png": images.SUFFIXES, "nifti": volumes.SUFFIXES, "npy": (".npy",)}
SUFFIXES = (*images.SUFFIXES, *volumes.SUFFIXES, *dicom.SUFFIXES, ".npy")


@dataclass(frozen=True)
class Outline:
    """What the header holds, before any pixels are read."""

    slices: int | None  # None for a 2D picture, which is no volume
    size: tuple[int, ...]  # (H, W)
    channels: int = 1
    eight_bit: bool = False  # unsigned 8-bit values that fill their range, as pictures do


def stem(path: Path) -> str:
    """The name without its suffix, of which .nii.gz has two."""
    return path.name[: -len(".nii.gz")] if path.name.lower().endswith(".nii.gz") else path.stem


def kind_of(path: Path) -> Kind | None:
    """By its suffix, or, without a known one, the letters DICM; None for a file that is no image. Folders are DICOM."""
    if path.is_dir():
        return "dicom"
    for kind, suffixes in _SUFFIXES.items():
        if path.name.lower().endswith(suffixes):
            return kind
    return "dicom" if dicom.is_dicom(path) else None


def outline(paths: Sequence[Path], several: bool = False, headers: Sequence[SliceHeader] = ()) -> Outline:
    """Shape and type by the header of one file, a DICOM series or its folder, or a file per channel. `several`: a 4D
    file has channels; `headers`: those of the paths, where they were read."""
    path, kind = paths[0], kind_of(paths[0])
    if kind == "nifti":
        stored = volumes.stored_shape(path)
        if len(stored) == 2:
            return Outline(None, stored)
        channels = stored[3] if several and len(stored) > 3 else 1
        shape = volumes.shape_of(path, 4 if channels > 1 else 3)[-3:]
        return Outline(shape[0], shape[1:], channels)
    if kind == "dicom":
        if path.is_dir():
            headers = next(iter(dicom.headers_by_series(path).values()))
        first, count = headers[0] if headers else dicom.read_header(path), len(headers or paths)
        if count == 1 and not path.is_dir():
            return Outline(None, first.shape)
        shape = dicom.upright_shape_of(first, count)
        return Outline(shape[0], shape[1:])
    if kind == "npy":
        array = open_numpy(path)
        values, planar = arranged(array, None, str(path))
        channels, depth, height, width = values.shape
        return Outline(None if planar else depth, (height, width), channels, array.dtype == np.uint8)
    try:
        with images.open_picture(path) as picture:
            grey = picture.mode in ("1", "L", "LA", "La", *images.WIDE_MODES)
            size, eight_bit = (picture.height, picture.width), picture.mode not in images.WIDE_MODES
            return Outline(None, size, 1 if grey else 3, eight_bit)
    except InputError:
        whole = images.read_picture(path)  # raises the same, or is a TIFF of all bits
        channels, height, width = whole.shape
        return Outline(None, (height, width), channels, whole.dtype == np.uint8)


def read_images(
    paths: Sequence[Path], channels: int | None, allow_gaps: bool = False, headers: Sequence[SliceHeader] = ()
) -> Image:
    """What a model with `channels` takes: one file, the slices of one DICOM series, or a file per channel."""
    if len(paths) == 1 or kind_of(paths[0]) == "dicom":
        return _read(paths, channels, allow_gaps, headers)
    parts = [read_image(path, 1) for path in paths]
    first = parts[0]
    for part in parts[1:]:
        check_same_place(first, part)
    source = replace(first.source, paths=tuple(paths))
    values = np.concatenate([part.values for part in parts])
    return replace(first, values=values, grid=replace(first.grid, source=source))


def read_image(path: Path, channels: int | None = None) -> Image:
    """An image or volume, or a folder with one DICOM series. Without `channels` it may be grey or a colour picture."""
    return _read([path], channels)


def _read(
    paths: Sequence[Path], channels: int | None, allow_gaps: bool = False, headers: Sequence[SliceHeader] = ()
) -> Image:
    path, kind = paths[0], kind_of(paths[0])
    if kind == "dicom":
        if path.is_dir():
            return dicom.read_series(path, allow_gaps)
        headers = headers or [dicom.read_header(one) for one in paths]
        return dicom.read_slice(headers[0]) if len(paths) == 1 else dicom.read_volume(headers, allow_gaps)
    if kind == "nifti":
        image = volumes.read_nifti(path, several=channels is not None)
        silent = image.grid.planar and image.values.dtype.kind == "u"  # an exported picture
        return image if silent else replace(image, modality=likely_modality(image.values, planar=False))
    if kind == "npy":
        return image_array(open_numpy(path), channels, str(path), source=Source("npy", (path,)))
    values = images.read_picture(path, channels)[:, None]
    grid = Grid(values.shape[2:], UNKNOWN, source=Source("png", (path,), values.shape[2:]))
    return Image(values, grid, likely_modality(values, planar=True), colour=len(values) > 1)


_ARRAY = Source("array")


def image_array(
    array: np.ndarray,
    channels: int | None,
    what: str,
    spacing: Sequence[float] | None = None,
    source: Source = _ARRAY,
) -> Image:
    """An array `(H, W)`, `(Z, H, W)`, or with its channels first or last, as a model with `channels` takes it."""
    values, planar = arranged(array, channels, what)
    shape = values.shape[2 if planar else 1 :]
    given = (nan,) * len(shape) if spacing is None else tuple(float(mm) for mm in spacing)
    fits = len(given) == len(shape) and not any(mm <= 0 for mm in given)
    expect(fits, "spacing", f"{len(shape)} positive numbers of mm, one per axis", spacing)
    colour = source.kind == "npy" and planar and len(values) == array.shape[-1] == 3
    modality = likely_modality(values, planar)
    if source.kind == "array" and modality != "ct":  # a part of an image, or made by hand: anything may be right
        modality = "unknown"
    return Image(values, Grid(shape, given, source=replace(source, shape=shape)), modality, colour)


def arranged(array: np.ndarray, channels: int | None, what: str) -> tuple[np.ndarray, bool]:
    """(C, Z, H, W), and whether it is a 2D image, by shape and `channels`; without `channels`, as in preparing: (H, W),
    (H, W, 3) or (Z, H, W), and truth values are labels 0 and 1."""
    shape, numbers = array.shape, array.dtype.kind in "biuf" and array.size
    expect(numbers, what, "an array of numbers", f"{array.dtype} of shape {shape}", "kind")
    if array.dtype.kind == "b":
        array = array.astype(np.uint8) * np.uint8(1 if channels is None else 255)
    array = finite(array, what)
    if len(shape) == 2:
        return array[None, None], True
    if len(shape) == 3:
        if shape[0] == channels:
            return array[:, None], True
        if shape[-1] == (3 if channels is None else channels) and channels != 1:
            return np.moveaxis(array, -1, 0)[:, None], True
        if channels is None or (channels == 1 and shape[-1] != 3):
            return array[None], False
    if len(shape) == 4 and shape[0] == channels:
        return array, False
    if channels is None:
        raise InputError(f"{what}: expected an array (H, W), (H, W, 3) or (slices, H, W), found {shape}", "shape")
    kinds = "(H, W), (Z, H, W) or (1, Z, H, W)" if channels == 1 else f"({channels}, H, W) or ({channels}, Z, H, W)"
    raise InputError(f"{what}: expected an array {kinds} for {channels} channel(s), found {shape}", "shape")


def open_numpy(path: Path) -> np.ndarray:
    """Mapped, not loaded: the header is enough to know the shape. No pickle is ever opened."""
    expect_file(path, "a .npy file")
    with decoding(path, "a .npy file of numbers"):
        with path.open("rb") as file:
            expect(file.read(6) == b"\x93NUMPY", path, "a .npy file of numbers", "something else", "kind")
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    numbers = isinstance(array, np.ndarray) and array.dtype.kind in "biuf" and array.size
    expect(numbers, path, "a .npy file with an array of numbers", "something else", "kind")
    check_size(path, array.shape, array.dtype.itemsize)
    return array


def read_labels(path: Path, like: Image) -> np.ndarray:
    """The label values of a mask as (Z, H, W), at the place and of the size of its image."""
    if kind_of(path) == "png":
        labels = images.read_labels(path)[None]
    else:
        found = read_image(path)
        placed = f"a mask with a place in space like its image {like.source.paths[0].name}"
        both = f"{placed} (NIfTI or DICOM volumes for both, or for neither)"
        expect((like.grid.affine is None) == (found.grid.affine is None), path, both, "one without the other", "place")
        if like.grid.affine is not None:
            check_same_place(like, found)
        expect(len(found.values) == 1, path, "a mask of one channel", len(found.values), "shape")
        labels = found.values[0]
    shape = like.values.shape[1:]
    expect(labels.shape == shape, path, f"{by(shape)} slices, rows, columns like its image", by(labels.shape), "shape")
    return labels
