"""Read NIfTI files and DICOM series as upright slices; a file that is not what it should be is named in one sentence.

Scanners and exporters store the axes in any order and direction. Here a volume always comes as (slice, row, column)
with slice 0 the lowest (feet), row 0 the front (anterior) and column 0 the patient's right, so "the bottom 80 slices"
and "the left half" mean the same in every file.
"""

import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from berdiff.data.describe import by, decoding, expect, some_values
from berdiff.data.dicom import DicomVolume, SliceHeader, headers_by_series
from berdiff.data.limits import check_size
from berdiff.data.numbers import MAX_MM, finite
from berdiff.data.paths import expect_file

SUFFIXES = (".nii", ".nii.gz")
MAX_EXTENSIONS = 2**24  # bytes between the header and the voxels, which nibabel reads with the header


@dataclass(frozen=True, eq=False)
class Volume:
    """Voxels in upright order, and where they lie."""

    path: Path
    voxels: np.ndarray  # (Z, H, W), or (C, Z, H, W) from a 4D file; integers as stored, or float32
    affine: np.ndarray  # (4, 4): (column, row, slice) of `voxels` -> millimetres right, front, up

    @property
    def spacing(self) -> tuple[float, float, float]:
        """mm, (slice, row, column)."""
        column, row, between = np.linalg.norm(self.affine[:3, :3], axis=0)
        return float(between), float(row), float(column)


def shape_of(path: str | Path, ndim: int = 3) -> tuple[int, ...]:
    """The shape `read_volume` will give, from the header alone, so that all files can be checked first."""
    path = Path(path)
    image = _open(path)
    return _upright_shape(path, _squeezed(path, image, ndim), image.affine)


def shape_of_dicom(folder: str | Path) -> tuple[int, ...]:
    """The shape of the volume of a DICOM series, from the headers alone."""
    headers = next(iter(headers_by_series(folder).values()))
    return shape_of_series(headers[0], len(headers))


def shape_of_series(first: SliceHeader, slices: int) -> tuple[int, ...]:
    """The shape of so many slices, by the header of the first."""
    across, down = np.reshape(first.plane(), (2, 3))
    affine = dicom_affine(across, down, np.cross(across, down), np.zeros(3))
    return _upright_shape(first.path, (first.shape[1], first.shape[0], slices), affine)


def stored_shape(path: str | Path) -> tuple[int, ...]:
    """The shape in the header, as stored."""
    return tuple(_open(Path(path)).shape)


def stored_grid(path: Path) -> tuple[tuple[int, ...], np.ndarray, Any]:
    """Shape, affine and header, as stored: what a file on the same grid takes over."""
    image = _open(path)
    return tuple(image.shape), image.affine, image.header


def read_volume(path: str | Path, ndim: int = 3) -> Volume:
    """A 3D file as (Z, H, W), or with `ndim` 4 a file of several channels as (C, Z, H, W)."""
    return upright(Path(path), *_values(Path(path), ndim))


def series_affine(series: DicomVolume) -> np.ndarray:
    """(column, row, slice) of a series' own grid -> millimetres as NIfTI counts them."""
    across, down = np.reshape(series.orientation, (2, 3))  # the directions in which the column and the row number grow
    between, row, column = series.spacing
    normal = series.positions[-1] - series.positions[0]
    gaps = len(series.hu) - 1
    step = normal / gaps if gaps else np.cross(across, down) * np.nan_to_num(between, nan=1)
    return dicom_affine(across * column, down * row, step, series.positions[0])


def turn_upright(affine: np.ndarray) -> np.ndarray:
    """nibabel's orientation from the axes of an affine to (left, back, up)."""
    from nibabel.orientations import axcodes2ornt, io_orientation, ornt_transform

    return ornt_transform(io_orientation(affine), axcodes2ornt("LPS"))


def turn_back(affine: np.ndarray) -> np.ndarray:
    """nibabel's orientation from (left, back, up) to the axes of an affine: what undoes `upright`."""
    from nibabel.orientations import axcodes2ornt, io_orientation, ornt_transform

    return ornt_transform(axcodes2ornt("LPS"), io_orientation(affine))


def apply_orientation(array: np.ndarray, orientation: np.ndarray) -> np.ndarray:
    """nibabel's, imported where a volume is turned: 2D images do without."""
    from nibabel.orientations import apply_orientation

    return apply_orientation(array, orientation)


def upright(path: Path, stored: np.ndarray, affine: np.ndarray) -> Volume:
    """Turn an array stored by any three axes [and channel] to (slice, row, column) order, by its affine."""
    from nibabel.orientations import inv_ornt_aff

    turn = _turn_upright(path, affine)
    voxels = apply_orientation(stored, turn)  # (column, row, slice[, channel])
    return Volume(path, np.ascontiguousarray(voxels.T), affine @ inv_ornt_aff(turn, stored.shape[:3]))


def read_plane(path: str | Path) -> np.ndarray:
    """A file of one 2D slice as (H, W). Such files are exported pictures: rows first, and no orientation to trust."""
    return np.ascontiguousarray(_values(Path(path), 2)[0])


def check_same_place(volume: Volume, other: Volume) -> None:
    """Both volumes must have one shape and lie in one place: no corner more than half a voxel away."""
    shape, found = volume.voxels.shape[-3:], other.voxels.shape[-3:]
    expect(shape == found, other.path, f"{by(shape)} slices, rows, columns like {volume.path.name}", by(found))
    ends = np.array([(c, r, s, 1) for c in (0, shape[2] - 1) for r in (0, shape[1] - 1) for s in (0, shape[0] - 1)])
    apart = np.linalg.norm((ends @ (volume.affine - other.affine).T)[:, :3], axis=1).max()
    voxel = np.linalg.norm(volume.affine[:3, :3], axis=0).min()
    place = f"the same place in space as {volume.path.name}"
    expect(apart <= voxel / 2, other.path, place, f"it up to {apart:.3g} mm away")


def whole_labels(values: np.ndarray, allowed: tuple[int, ...], path: Path) -> np.ndarray:
    """Labels as uint8; only the declared values may appear."""
    found = np.unique(values)
    expect(np.isin(found, allowed).all(), path, f"the labels {', '.join(map(str, allowed))}", some_values(found, 8))
    return values.astype(np.uint8)


def _open(path: Path) -> Any:
    import nibabel

    expect_file(path, "a NIfTI file")
    with decoding(path, "a NIfTI file"):
        _check_offset(path)
        image: Any = nibabel.load(path)
        expect(isinstance(image, nibabel.Nifti1Pair), path, "a NIfTI file", type(image).__name__)
        dtype, shape, scale = image.get_data_dtype(), image.shape, (image.dataobj.slope, image.dataobj.inter)
    expect(dtype.kind in "iuf", path, "one number per voxel", dtype)
    expect(shape and min(shape) > 0, path, "a shape of at least one voxel", f"the shape {by(shape)}")
    check_size(path, shape, dtype.itemsize if scale == (1, 0) else 8)  # nibabel scales in 64 bits
    return image


def _check_offset(path: Path) -> None:
    """What lies before the voxels is read as a whole, so it is asked first how much that is."""
    from nibabel import Nifti1Header, Nifti2Header

    heads = {348: Nifti1Header, 540: Nifti2Header}  # by their length in bytes
    with gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb") as file:
        head = file.read(max(heads))
    for length, kind in heads.items():
        if len(head) >= length and length in (int.from_bytes(head[:4], order) for order in ("little", "big")):
            offset = float(kind(head[:length], check=False)["vox_offset"])
            expect(offset <= length + MAX_EXTENSIONS, path, "voxels near the header", f"them at byte {offset:.0f}")


def _squeezed(path: Path, image: Any, ndim: int) -> tuple[int, ...]:
    """The shape as stored, with `ndim` dimensions: trailing dimensions of one are only another way to write it."""
    shape = tuple(image.shape)
    while len(shape) > ndim and shape[-1] == 1:
        shape = shape[:-1]
    expect(len(shape) == ndim, path, f"{ndim} dimensions", f"the shape {by(image.shape)}")
    return shape


def _turn_upright(path: Path, affine: np.ndarray) -> np.ndarray:
    """nibabel's orientation transform from an affine's axes to (left, back, up)."""
    small = np.isfinite(affine).all() and np.abs(affine).max() <= MAX_MM
    places = small and abs(np.linalg.det(affine[:3, :3])) >= 1e-12
    expect(places, path, "an affine that places the voxels in space", affine[:3].tolist())
    return turn_upright(affine)


def _upright_shape(path: Path, shape: tuple[int, ...], affine: np.ndarray) -> tuple[int, ...]:
    """The shape of (column, row, slice[, channel]) in any stored order, once turned upright and reversed."""
    return apply_orientation(np.broadcast_to(0, shape), _turn_upright(path, affine)).T.shape  # no voxel is stored


def dicom_affine(column: np.ndarray, row: np.ndarray, step: np.ndarray, origin: np.ndarray) -> np.ndarray:
    """(column, row, slice) -> millimetres as NIfTI counts them: right and front, where DICOM has left and back."""
    affine = np.eye(4)
    affine[:3] = np.stack([column, row, step, origin], axis=1)
    affine[:2] *= -1
    return affine


def _values(path: Path, ndim: int) -> tuple[np.ndarray, np.ndarray]:
    """An array of `ndim` dimensions and the affine, as stored."""
    image = _open(path)
    shape = _squeezed(path, image, ndim)
    with decoding(path, "a whole NIfTI file", "a damaged one"):
        values = np.asanyarray(image.dataobj)
    return finite(values, path).reshape(shape), image.affine
