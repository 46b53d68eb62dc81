"""NIfTI files that lie exactly where their source lies."""

import gzip
from pathlib import Path
from typing import Any

import nibabel
import numpy as np

from berdiff.data.dicom import read_header
from berdiff.data.volumes import dicom_affine
from berdiff.errors import InputError
from berdiff.files import whole_file
from berdiff.inference.result import Result

DESCRIPTION = "berdiff, not for clinical use"


def write_nifti(path: Path, result: Result, array: np.ndarray) -> Path:
    """Write `([Z,] H, W)`, or `(m, [Z,] H, W)` as a file of m volumes, on the grid of the result's source."""
    spatial = 3 if result.volume else 2
    affine, header = geometry(result)
    stored = grid(result, array.reshape(-1, *array.shape[-spatial:]))  # (m, X, Y, Z)
    values = stored[0] if array.ndim == spatial else np.moveaxis(stored, 0, -1)
    kind = nibabel.Nifti2Image if isinstance(header, nibabel.Nifti2Header) else nibabel.Nifti1Image
    image = kind(np.ascontiguousarray(values), affine, header)
    image.header.set_data_dtype(values.dtype)
    image.header["descrip"] = DESCRIPTION
    with whole_file(path) as part:
        part.write_bytes(gzip.compress(image.to_bytes(), mtime=0))  # no time of writing: the same run, the same bytes
    return path


def grid(result: Result, arrays: np.ndarray) -> np.ndarray:
    """(m, [Z,] H, W) -> (m, X, Y, Z) in the order of the source file; a picture's X is its columns."""
    source = result.source
    stored = source.to_stored(arrays)
    if source.kind == "nifti":  # of a plane exported as NIfTI, (H, W) is the stored order, perhaps with axes of one
        return stored if result.volume else stored.reshape(-1, *_shape_of_plane(source.header, stored.shape[1:]))
    if not result.volume:
        stored = stored[:, None]
    return stored.transpose(0, 3, 2, 1)


def geometry(result: Result) -> tuple[np.ndarray, Any]:
    """The affine (4, 4) of `grid`'s axes and a header to start from: the source's own where it is a NIfTI file."""
    source = result.source
    if source.kind == "nifti":
        header = source.header.copy()
        header.extensions.clear()  # they speak of the source's values
        header["scl_slope"], header["scl_inter"], header["cal_min"], header["cal_max"] = 1, 0, 0, 0
        affine = header.get_best_affine() if source.affine is None else source.affine
        return affine, header
    header = nibabel.Nifti1Header()
    if source.kind == "dicom":
        header.set_xyzt_units("mm")
        return _dicom_geometry(source.paths), header
    known = bool(np.isfinite(result.spacing).all())
    header.set_xyzt_units("mm" if known else "unknown")
    between, row, column = (1.0, *result.spacing)[-3:] if known else (1.0, 1.0, 1.0)
    # As the picture is looked at: columns run to the patient's left, rows to the back, slices up.
    return np.diag([-column, -row, between, 1.0]), header


def _shape_of_plane(header: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in the file, (H, W) with any axes of one behind it."""
    stored = tuple(header.get_data_shape())
    return stored if np.prod(stored) == np.prod(shape) else shape


def _dicom_geometry(files: tuple[Path, ...]) -> np.ndarray:
    """(column, row, slice) of a series, its files in order, to NIfTI's millimetres."""
    first, last = read_header(files[0]), read_header(files[-1])
    spacing, position = first.geometry()
    if first.orientation is None:
        raise InputError(f"{first.path}: expected the DICOM tag ImageOrientationPatient, found none")
    across, down = np.reshape(first.orientation, (2, 3))
    if len(files) > 1:
        step = (np.array(last.geometry()[1]) - position) / (len(files) - 1)
    else:
        step = np.cross(across, down) * (first.thickness or 1.0)
    return dicom_affine(across * spacing[1], down * spacing[0], step, np.array(position))
