"""NIfTI files that lie exactly where their source lies."""

import gzip
from typing import Any

import numpy as np

from berdiff.data.describe import present
from berdiff.data.dicom import read_header
from berdiff.data.reading import Geometry
from berdiff.data.volumes import dicom_affine, turn_upright
from berdiff.inference.opening import OpenedImage
from berdiff.inference.result import Result
from berdiff.output.captions import NOT_CLINICAL

# What is taken over of a NIfTI source's header: numbers alone. Its texts (description, file names, name of the data
# base or of the intent, extensions) may say who the patient is, and its display range speaks of other values.
GEOMETRY = ("dim_info", "pixdim", "xyzt_units", "qform_code", "sform_code", "quatern_b", "quatern_c", "quatern_d")
GEOMETRY += ("qoffset_x", "qoffset_y", "qoffset_z", "srow_x", "srow_y", "srow_z")


def nifti_bytes(result: Result, array: np.ndarray, labels: str = "") -> bytes:
    """A .nii.gz of `([Z,] H, W)`, or of `(m, [Z,] H, W)` as m volumes, on the grid of the result's source.

    `labels`: what the values of a label map mean; it becomes the header's comment.
    """
    import nibabel
    from nibabel.nifti1 import Nifti1Extension

    axes = 3 if result.volume else 2
    affine, header = _header(result)
    stored = _grid(result, array.reshape(-1, *array.shape[-axes:]))  # (m, X, Y, Z)
    values = stored[0] if array.ndim == axes else np.moveaxis(stored, 0, -1)
    kind = nibabel.Nifti2Image if isinstance(header, nibabel.Nifti2Header) else nibabel.Nifti1Image
    image = kind(np.ascontiguousarray(values), affine, header)
    image.header.set_data_dtype(values.dtype)
    image.header["descrip"] = f"berdiff, {NOT_CLINICAL}"
    if labels:
        image.header.set_intent("label")
        image.header.extensions.append(Nifti1Extension("comment", labels.encode()))
    return gzip.compress(image.to_bytes(), mtime=0)  # no time of writing: the same run, the same bytes


def upright_affine(image: OpenedImage) -> np.ndarray:
    """(4, 4): (column, row, slice) of an image's own, upright array -> millimetres as NIfTI counts them."""
    from nibabel.orientations import inv_ornt_aff

    affine, _ = _header(image)
    geometry = image.geometry
    if geometry.back is None:
        return affine
    shape = geometry.shape[::-1] if geometry.kind == "dicom" else geometry.shape
    return affine @ inv_ornt_aff(turn_upright(affine), shape)


def _grid(result: Result, arrays: np.ndarray) -> np.ndarray:
    """(m, [Z,] H, W) -> (m, X, Y, Z) in the order of the source file; a picture's X is its columns."""
    geometry = result.geometry
    stored = geometry.to_stored(arrays)
    if geometry.kind == "nifti":  # of a plane exported as NIfTI, (H, W) is the stored order, perhaps with axes of one
        shape = tuple(geometry.header.get_data_shape())
        return stored.reshape(-1, *shape) if not result.volume and np.prod(shape) == stored[0].size else stored
    return (stored if result.volume else stored[:, None]).transpose(0, 3, 2, 1)


def _header(result: OpenedImage) -> tuple[np.ndarray, Any]:
    """The affine (4, 4) of `_grid`'s axes and a header to start from, in which a NIfTI source has left its geometry."""
    geometry = result.geometry
    if geometry.kind == "nifti":
        source = geometry.header
        header = type(source)(endianness=source.endianness)
        header.set_data_shape(source.get_data_shape())
        for field in GEOMETRY:
            header[field] = source[field]
        return source.get_best_affine() if geometry.affine is None else geometry.affine, header
    from nibabel import Nifti1Header

    header = Nifti1Header()
    if geometry.kind == "dicom":
        header.set_xyzt_units("mm")
        needed = "the DICOM tags PixelSpacing, ImagePositionPatient and ImageOrientationPatient"
        return present(place_of(geometry), result.name, needed), header
    known = bool(np.isfinite(result.spacing).all())
    header.set_xyzt_units("mm" if known else "unknown")
    between, row, column = (1.0, *result.spacing)[-3:] if known else (1.0, 1.0, 1.0)
    # As the picture is looked at: columns run to the patient's left, rows to the back, slices up.
    return np.diag([-column, -row, between, 1.0]), header


def place_of(geometry: Geometry) -> np.ndarray | None:
    """(column, row, slice) of DICOM files, in order, to NIfTI's millimetres; None for files that state no place."""
    if geometry.affine is not None or not geometry.paths:
        return geometry.affine
    first, last = read_header(geometry.paths[0]), read_header(geometry.paths[-1])
    if first.spacing is None or first.position is None or first.orientation is None:
        return None
    across, down = np.reshape(first.orientation, (2, 3))
    step = np.cross(across, down) * (first.thickness or 1.0)
    if len(geometry.paths) > 1:
        step = (np.array(last.geometry()[1]) - first.position) / (len(geometry.paths) - 1)
    return dicom_affine(across * first.spacing[1], down * first.spacing[0], step, np.array(first.position))
