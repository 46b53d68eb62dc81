"""Read NIfTI files and DICOM series as upright slices; a file that is not what it should be is named in one sentence.

Scanners and exporters store the axes in any order and direction. Here a volume always comes as (slice, row, column)
with slice 0 the lowest (feet), row 0 the front (anterior) and column 0 the patient's right, so "the bottom 80 slices"
and "the left half" mean the same in every file.
"""

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
from nibabel.filebasedimages import ImageFileError
from nibabel.orientations import apply_orientation, axcodes2ornt, inv_ornt_aff, io_orientation, ornt_transform
from nibabel.spatialimages import HeaderDataError

from berdiff.data.dicom import DicomVolume, headers_by_series, read_series
from berdiff.errors import InputError

SUFFIXES = (".nii", ".nii.gz")

# What nibabel raises on a broken or foreign file, depending on where in the file the damage is.
_BROKEN = (ImageFileError, HeaderDataError, OSError, EOFError, ValueError, gzip.BadGzipFile, zlib.error)
# A damaged header can ask for terabytes; the largest scan in use is far below this.
_MOST_VOXELS = 2**31


@dataclass(frozen=True, eq=False)
class Volume:
    """Voxels in upright order, and where they lie."""

    path: Path
    voxels: np.ndarray  # (Z, H, W), or (C, Z, H, W) from a 4D file; integers as stored, or float32
    affine: np.ndarray  # (4, 4): (column, row, slice) of `voxels` -> millimetres right, front, up

    @property
    def spacing(self) -> tuple[float, float]:
        """mm a pixel, (row, column)."""
        column, row, _ = np.linalg.norm(self.affine[:3, :3], axis=0)
        return float(row), float(column)


def shape_of(path: str | Path, ndim: int = 3) -> tuple[int, ...]:
    """The shape `read_volume` will give, from the header alone, so that all files can be checked first."""
    path = Path(path)
    image = _open(path)
    return _upright_shape(path, _stored_shape(path, image, ndim), np.asarray(image.affine, float))


def shape_of_dicom(folder: str | Path) -> tuple[int, ...]:
    """The shape `read_dicom` will give, from the headers alone."""
    headers = next(iter(headers_by_series(folder).values()))
    first = headers[0]
    if first.orientation is None:
        raise InputError(f"{first.path}: expected the DICOM tag ImageOrientationPatient, found none")
    across, down = np.reshape(first.orientation, (2, 3))
    affine = dicom_affine(across, down, np.cross(across, down), np.zeros(3))
    return _upright_shape(Path(folder), (first.shape[1], first.shape[0], len(headers)), affine)


def stored_shape(path: str | Path) -> tuple[int, ...]:
    """The shape in the header, as stored."""
    return tuple(_open(Path(path)).shape)


def read_volume(path: str | Path, ndim: int = 3) -> Volume:
    """A 3D file as (Z, H, W), or with `ndim` 4 a file of several channels as (C, Z, H, W)."""
    path = Path(path)
    image = _open(path)
    shape = _stored_shape(path, image, ndim)
    return upright(path, _values(path, image).reshape(shape), np.asarray(image.affine, float))


def read_dicom(folder: str | Path) -> Volume:
    """The one DICOM series of a folder (Hounsfield units for a CT), in the same order and space as a NIfTI file."""
    series = read_series(folder)
    return upright(Path(folder), series.hu.T, series_affine(series))


def series_affine(series: DicomVolume) -> np.ndarray:
    """(column, row, slice) of a series' own grid -> millimetres as NIfTI counts them."""
    across, down = np.reshape(series.orientation, (2, 3))  # the directions in which the column and the row number grow
    between, row, column = series.spacing
    normal = series.positions[-1] - series.positions[0]
    step = (
        normal / (len(series.hu) - 1) if len(series.hu) > 1 else np.cross(across, down) * np.nan_to_num(between, nan=1)
    )
    return dicom_affine(across * column, down * row, step, series.positions[0])


def turn_back(affine: np.ndarray) -> np.ndarray:
    """nibabel's orientation from (left, back, up) to the axes of an affine: what undoes `upright`."""
    return ornt_transform(axcodes2ornt("LPS"), io_orientation(affine))


def upright(path: Path, stored: np.ndarray, affine: np.ndarray) -> Volume:
    """Turn an array stored by any three axes [and channel] to (slice, row, column) order, by its affine."""
    turn = _turn_upright(path, affine)
    voxels = apply_orientation(stored, turn)  # (column, row, slice[, channel])
    return Volume(path, np.ascontiguousarray(voxels.T), affine @ inv_ornt_aff(turn, stored.shape[:3]))


def read_plane(path: str | Path) -> np.ndarray:
    """A file of one 2D slice as (H, W). Such files are exported pictures: rows first, and no orientation to trust."""
    path = Path(path)
    image = _open(path)
    shape = _stored_shape(path, image, 2)
    return np.ascontiguousarray(_values(path, image).reshape(shape))


def check_same_place(volume: Volume, other: Volume) -> None:
    """Both volumes must have one shape and lie in one place: no corner more than half a voxel away."""
    shape, found = volume.voxels.shape[-3:], other.voxels.shape[-3:]
    if shape != found:
        raise InputError(
            f"{other.path}: expected {_by(shape)} slices, rows, columns like {volume.path.name}, found {_by(found)}"
        )
    ends = np.array([(c, r, s, 1) for c in (0, shape[2] - 1) for r in (0, shape[1] - 1) for s in (0, shape[0] - 1)])
    apart = np.linalg.norm((ends @ (volume.affine - other.affine).T)[:, :3], axis=1).max()
    voxel = np.linalg.norm(volume.affine[:3, :3], axis=0).min()
    if apart > voxel / 2:
        raise InputError(
            f"{other.path}: expected the same place in space as {volume.path.name}, found it up to {apart:.3g} mm away"
        )


def whole_labels(values: np.ndarray, allowed: tuple[int, ...], path: Path) -> np.ndarray:
    """Labels as uint8; only the declared values may appear."""
    found = np.unique(values)
    if not np.isin(found, allowed).all():
        shown = ", ".join(f"{value:g}" for value in found[:8]) + (", ..." if len(found) > 8 else "")
        raise InputError(f"{path}: expected the labels {', '.join(map(str, allowed))}, found {shown}")
    return values.astype(np.uint8)


def _open(path: Path) -> Any:
    if not path.is_file():
        raise InputError(f"{path}: expected a NIfTI file, found no such file")
    try:
        image = nibabel.load(path)
    except _BROKEN as error:
        raise InputError(f"{path}: expected a NIfTI file, found a damaged or foreign one ({_first(error)})") from error
    if not isinstance(image, nibabel.Nifti1Pair):
        raise InputError(f"{path}: expected a NIfTI file, found {type(image).__name__}")
    if image.get_data_dtype().kind not in "iuf":
        raise InputError(f"{path}: expected one number a voxel, found {image.get_data_dtype()}")
    if 0 in image.shape or np.prod(image.shape, dtype=float) > _MOST_VOXELS:
        raise InputError(f"{path}: expected 1 to {_MOST_VOXELS} voxels, found the shape {_by(image.shape)}")
    return image


def _stored_shape(path: Path, image: Any, ndim: int) -> tuple[int, ...]:
    """The shape as stored, with `ndim` dimensions: trailing dimensions of one are only another way to write it."""
    shape = tuple(image.shape)
    while len(shape) > ndim and shape[-1] == 1:
        shape = shape[:-1]
    if len(shape) != ndim:
        raise InputError(f"{path}: expected {ndim} dimensions, found the shape {_by(image.shape)}")
    return shape


def _turn_upright(path: Path, affine: np.ndarray) -> np.ndarray:
    """nibabel's orientation transform from an affine's axes to (left, back, up)."""
    if not np.isfinite(affine).all() or abs(np.linalg.det(affine[:3, :3])) < 1e-12:
        raise InputError(f"{path}: expected an affine that places the voxels in space, found {affine[:3].tolist()}")
    return ornt_transform(io_orientation(affine), axcodes2ornt("LPS"))


def _upright_shape(path: Path, shape: tuple[int, ...], affine: np.ndarray) -> tuple[int, ...]:
    """The shape of (column, row, slice[, channel]) in any stored order, once turned upright and reversed."""
    axes = _turn_upright(path, affine)[:, 0]  # to which of column, row, slice each stored axis goes
    turned = [size for _, size in sorted(zip(axes, shape[:3], strict=True))]
    return (*shape[3:], *reversed(turned))


def dicom_affine(column: np.ndarray, row: np.ndarray, step: np.ndarray, origin: np.ndarray) -> np.ndarray:
    """(column, row, slice) -> millimetres as NIfTI counts them: right and front, where DICOM has left and back."""
    affine = np.eye(4)
    affine[:3] = np.stack([column, row, step, origin], axis=1)
    affine[:2] *= -1
    return affine


def _values(path: Path, image: Any) -> np.ndarray:
    try:
        values = np.asanyarray(image.dataobj)
    except _BROKEN as error:
        raise InputError(f"{path}: expected a whole NIfTI file, found a damaged one ({_first(error)})") from error
    if values.dtype.kind == "f":
        values = values.astype(np.float32)
        if not np.isfinite(values).all():
            raise InputError(f"{path}: expected finite values, found NaN or infinity")
    return values


def _first(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
