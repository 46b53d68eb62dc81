"""THE reader of image files: pictures, NIfTI, DICOM and .npy in one form, with the way back to each file's own grid."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from berdiff.data import dicom, images, volumes
from berdiff.data.describe import by, decoding, expect
from berdiff.data.image import Grid, Source, dicom_affine
from berdiff.data.input_spec import Modality
from berdiff.data.limits import check_size
from berdiff.data.numbers import finite
from berdiff.data.paths import expect_file
from berdiff.data.volumes import Volume
from berdiff.errors import InputError

Kind = Literal["png", "nifti", "dicom", "npy", "store", "array"]  # "png" is any picture: PNG, JPG or TIFF
_SUFFIXES: dict[Kind, tuple[str, ...]] = {"png": images.SUFFIXES, "nifti": volumes.SUFFIXES, "npy": (".npy",)}
SUFFIXES = (*images.SUFFIXES, *volumes.SUFFIXES, *dicom.SUFFIXES, ".npy")
UNKNOWN = (float("nan"), float("nan"))


@dataclass(frozen=True, eq=False)
class Geometry:
    """Where an image came from, and how to put an array back on its grid.

    A volume's arrays are upright, (slice, row, column) from feet, front and the patient's right, whatever the order in
    the file; `to_stored` turns them back exactly. 2D images are always as stored.
    """

    kind: Kind
    paths: tuple[Path, ...] = ()  # the files; of a DICOM series in the order of `to_stored`'s first axis
    shape: tuple[int, ...] = ()  # of the stored grid: (H, W); NIfTI (X, Y, Z); DICOM series (Z, rows, columns)
    affine: np.ndarray | None = None  # (4, 4), NIfTI volumes: stored voxel -> mm, exactly as in the file
    header: Any = None  # NIfTI: the nibabel header, for units, codes and descriptions
    back: np.ndarray | None = None  # volumes: nibabel's orientation (column, row, slice) -> the stored (X, Y, Z)
    addresses: tuple[str, ...] = ()  # of the files, where they are at an address and `paths` are copies
    resampled: bool = False  # a DICOM series with gaps: a slice is no file any more

    def to_stored(self, array: np.ndarray) -> np.ndarray:
        """(..., Z, H, W) or (..., H, W) -> the same leading axes, then the source's own grid (`shape`)."""
        if self.back is None:
            return array
        turned = volumes.apply_orientation(array.T, self.back).T  # (..., Z, Y, X)
        return np.ascontiguousarray(turned if self.kind == "dicom" else turned.swapaxes(-3, -1))

    def source(self) -> Source:
        affine = _stated_place(self.paths) if self.kind == "dicom" and self.affine is None else self.affine
        kept = {name: getattr(self, name) for name in ("header", "back", "addresses", "resampled")}
        return Source(self.kind, self.paths, self.shape, affine, **kept)


def _stated_place(paths: Sequence[Path]) -> np.ndarray | None:
    """(column, row, slice) of DICOM files, in order, to NIfTI's millimetres; None for files that state no place."""
    first, last = dicom.read_header(paths[0]), dicom.read_header(paths[-1])
    if first.spacing is None or first.position is None or first.orientation is None:
        return None
    across, down = np.reshape(first.orientation, (2, 3))
    step = np.cross(across, down) * (first.thickness or 1.0)
    if len(paths) > 1:
        step = (np.array(last.geometry()[1]) - first.position) / (len(paths) - 1)
    return dicom_affine(across * first.spacing[1], down * first.spacing[0], step, np.array(first.position))


@dataclass(frozen=True, eq=False)
class ImageFile:
    """The values of a file, of a DICOM series, or of a file per channel, as stored."""

    values: np.ndarray  # (C, Z, H, W); Z is 1 for a 2D picture
    spacing: tuple[float, ...]  # mm along the last axes: (row, column), or (slice, row, column); nan where unknown
    geometry: Geometry
    planar: bool  # a 2D picture, not a volume
    volume: Volume | None = None  # where a volume lies in space, if its file states it
    modality: str = "unknown"  # ct, mr, picture; or as DICOM calls another one; of other files guessed by the values
    colour: bool = False  # its channels are the colours of one picture
    title: str = ""  # what people call it: of a DICOM series patient, description, number and date
    details: Mapping[str, str] = field(default_factory=dict)  # the same in parts, with the UIDs
    warnings: tuple[str, ...] = ()  # of how it was read

    @cached_property
    def grid(self) -> Grid:
        shape = self.values.shape[2 if self.planar else 1 :]
        return Grid(shape, self.spacing, self.volume and self.volume.affine, self.geometry.source())

    @property
    def path(self) -> Path:
        return self.geometry.paths[0]

    @property
    def ct(self) -> bool:
        """Whether the file states that its values are Hounsfield units."""
        return self.geometry.kind == "dicom" and self.modality == "ct"

    @property
    def stack(self) -> bool:
        """Slices in an .npy file, which states no place in space."""
        return self.geometry.kind == "npy" and not self.planar


@dataclass(frozen=True)
class Outline:
    """What the header holds, before any pixels are read."""

    slices: int | None  # None for a 2D picture, which is no volume
    size: tuple[int, int]  # (H, W)
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


def outline(path: Path) -> Outline:
    """Shape and type of an image by its header."""
    kind = kind_of(path)
    if kind == "nifti" and len(shape := volumes.stored_shape(path)) == 2:
        return Outline(None, (shape[0], shape[1]))
    if kind == "nifti" or path.is_dir():
        depth, height, width = volumes.shape_of(path) if kind == "nifti" else volumes.shape_of_dicom(path)
        return Outline(depth, (height, width))
    if kind == "dicom":
        return Outline(None, dicom.read_header(path).shape)
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
        channels, height, width = (whole := images.read_image(path)).shape  # raises the same, or is a TIFF of all bits
        return Outline(None, (height, width), channels, whole.dtype == np.uint8)


def read_image_files(paths: Sequence[Path], channels: int, allow_gaps: bool = False) -> ImageFile:
    """What a model with `channels` takes: one file, the slices of one DICOM series, or a file per channel."""
    if kind_of(paths[0]) == "dicom":
        return _read_dicom(paths, allow_gaps)
    if len(paths) == 1:
        return read_image_file(paths[0], channels)
    parts = [read_image_file(path, 1) for path in paths]
    first = parts[0]
    for path, part in zip(paths, parts, strict=True):
        if part.values.shape != first.values.shape or part.planar != first.planar:
            expected, found = (by(one.values.shape[2 if one.planar else 1 :]) for one in (first, part))
            raise InputError(f"{path}: expected {expected} pixels like {paths[0].name}, found {found}")
        if first.volume is not None and part.volume is not None:
            volumes.check_same_place(first.volume, part.volume)
    values = np.concatenate([part.values for part in parts])
    return replace(first, values=values, geometry=replace(first.geometry, paths=tuple(paths)))


def read_image_file(path: Path, channels: int | None = None) -> ImageFile:
    """An image or volume, or a folder with the slices of one DICOM series.

    `channels` is how many there must be. Without it a file may have one, or the three of a colour picture.
    """
    kind = kind_of(path)
    if kind == "dicom":
        return _read_dicom([path])
    if kind == "nifti":
        return _read_nifti(path, channels)
    if kind == "npy":
        return image_array(open_numpy(path), channels, str(path), geometry=Geometry("npy", (path,)))
    values = images.read_image(path, channels)[:, None]
    modality, geometry = likely_modality(values, planar=True), Geometry("png", (path,), values.shape[2:])
    return ImageFile(values, UNKNOWN, geometry, True, modality=modality, colour=len(values) > 1)


def likely_modality(values: np.ndarray, planar: bool) -> Modality:
    """What values look like where no file says it: a CT has air far below 0, an MR nothing below 0; 8 bits say
    nothing, and floats in [0, 1] were scaled before."""
    if values.dtype == np.uint8:
        return "picture" if planar else "unknown"
    low, high = values.min(), values.max()
    if low <= -500 or (low < -200 and (values.dtype.kind in "iu" or not (values % 1).any())):
        return "ct"
    if planar and values.dtype.kind == "u":
        return "picture"
    return "mr" if low >= 0 and high > 1 and not planar else "unknown"


_ARRAY = Geometry("array")


def image_array(
    array: np.ndarray,
    channels: int | None,
    what: str,
    spacing: Sequence[float] | None = None,
    geometry: Geometry = _ARRAY,
) -> ImageFile:
    """An array `(H, W)`, `(Z, H, W)`, or with its channels first or last, as a model with `channels` takes it."""
    values, planar = arranged(array, channels, what)
    axes = 2 if planar else 3
    given = (float("nan"),) * axes if spacing is None else tuple(float(mm) for mm in spacing)
    fits = len(given) == axes and not any(mm <= 0 for mm in given)
    expect(fits, "spacing", f"{axes} positive numbers of mm, one per axis", spacing)
    colour = geometry.kind == "npy" and planar and len(values) == array.shape[-1] == 3
    modality = likely_modality(values, planar)
    if geometry.kind == "array" and modality != "ct":  # a part of an image, or made by hand: anything may be right
        modality = "unknown"
    return ImageFile(values, given, replace(geometry, shape=values.shape[-axes:]), planar, None, modality, colour)


def arranged(array: np.ndarray, channels: int | None, what: str) -> tuple[np.ndarray, bool]:
    """(C, Z, H, W), and whether it is a 2D image; only the shape and `channels` show which is which.

    Without `channels`, as in preparing: (H, W), (H, W, 3) in colour, or (Z, H, W); truth values are then labels 0, 1.
    """
    shape, numbers = array.shape, array.dtype.kind in "biuf" and array.size
    expect(numbers, what, "an array of numbers", f"{array.dtype} of shape {shape}")
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
        raise InputError(f"{what}: expected an array (H, W), (H, W, 3) or (slices, H, W), found {shape}")
    kinds = "(H, W), (Z, H, W) or (1, Z, H, W)" if channels == 1 else f"({channels}, H, W) or ({channels}, Z, H, W)"
    raise InputError(f"{what}: expected an array {kinds} for a network of {channels} channel(s), found {shape}")


def open_numpy(path: Path) -> np.ndarray:
    """Mapped, not loaded: the header is enough to know the shape. No pickle is ever opened."""
    expect_file(path, "a .npy file")
    with decoding(path, "a .npy file of numbers"):
        with path.open("rb") as file:
            expect(file.read(6) == b"\x93NUMPY", path, "a .npy file of numbers", "something else")
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    numbers = isinstance(array, np.ndarray) and array.dtype.kind in "biuf" and array.size
    expect(numbers, path, "a .npy file with an array of numbers", "something else")
    check_size(path, array.shape, array.dtype.itemsize)
    return array


def read_labels(path: Path, like: ImageFile) -> np.ndarray:
    """The label values of a mask as (Z, H, W), at the place and of the size of its image."""
    if kind_of(path) == "png":
        labels = images.read_labels(path)[None]
    else:
        found = read_image_file(path)
        if like.volume is not None and found.volume is not None:
            volumes.check_same_place(like.volume, found.volume)
        placed = f"a mask with a place in space like its image {like.path.name}"
        both = f"{placed} (NIfTI or DICOM volumes for both, or for neither)"
        expect((like.volume is None) == (found.volume is None), path, both, "one without the other")
        expect(len(found.values) == 1, path, "a mask of one channel", len(found.values))
        labels = found.values[0]
    shape = like.values.shape[1:]
    expect(labels.shape == shape, path, f"{by(shape)} slices, rows, columns like its image", by(labels.shape))
    return labels


def _read_nifti(path: Path, channels: int | None) -> ImageFile:
    shape, affine, header = volumes.stored_grid(path)
    geometry = Geometry("nifti", (path,), shape[:3], affine, header)
    if len(shape) == 2:
        plane = volumes.read_plane(path)[None, None]
        modality = "unknown" if plane.dtype.kind == "u" else likely_modality(plane, planar=False)
        return ImageFile(plane, UNKNOWN, geometry, planar=True, modality=modality)
    several = channels is not None and len(shape) > 3 and shape[3] > 1
    volume = volumes.read_volume(path, 4 if several else 3)
    values = volume.voxels if several else volume.voxels[None]
    geometry, modality = replace(geometry, back=volumes.turn_back(affine)), likely_modality(values, planar=False)
    return ImageFile(values, volume.spacing, geometry, False, volume, modality)


def _read_dicom(paths: Sequence[Path], allow_gaps: bool = False) -> ImageFile:
    """One slice, the slices of a series, or its folder; a folder is a volume, even of one slice."""
    path = paths[0]
    if path.is_dir():
        folder, series = path, dicom.read_series(path, allow_gaps)
    elif len(paths) > 1:
        folder, series = path.parent, dicom.read_volume([dicom.read_header(path) for path in paths], allow_gaps)
    else:
        header, values = dicom.read_header(path), dicom.read_pixels(path)[None, None]
        geometry = Geometry("dicom", (path,), values.shape[2:])
        named: dict[str, Any] = {
            "modality": header.modality.lower() or "unknown",
            "title": header.title,
            "details": header.details,
        }
        return ImageFile(values, header.spacing or UNKNOWN, geometry, planar=True, **named)
    affine = volumes.series_affine(series)
    volume = volumes.upright(folder, series.hu.T, affine)
    geometry = Geometry("dicom", series.files, series.hu.shape, back=volumes.turn_back(affine))
    if series.interpolated:
        geometry = replace(geometry, affine=affine, resampled=True)
    named: dict[str, Any] = {"modality": series.header.modality.lower() or "unknown", "title": series.header.title}
    named |= {"details": series.header.details, "warnings": (series.resampled,) if series.resampled else ()}
    return ImageFile(volume.voxels[None], volume.spacing, geometry, False, volume, **named)
