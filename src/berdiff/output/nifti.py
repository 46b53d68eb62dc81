"""NIfTI files that lie exactly where their source lies."""

import gzip
from typing import Any

import numpy as np

from berdiff.data.describe import present
from berdiff.data.dicom import read_header
from berdiff.data.reading import Geometry, ImageFile
from berdiff.data.volumes import dicom_affine, turn_upright
from berdiff.inference.opening import OpenedImage
from berdiff.output.captions import NOT_CLINICAL

# What is taken over of a NIfTI source's header: numbers alone. Its texts (description, file names, name of the data
# base or of the intent, extensions) may say who the patient is, and its display range speaks of other values.
GEOMETRY = ("dim_info", "pixdim", "xyzt_units", "qform_code", "sform_code", "quatern_b", "quatern_c", "quatern_d")
GEOMETRY += ("qoffset_x", "qoffset_y", "qoffset_z", "srow_x", "srow_y", "srow_z")


def nifti_bytes(array: np.ndarray, image: OpenedImage | ImageFile, labels: str = "") -> bytes:
    """A .nii.gz of an upright `([Z,] H, W)`, or of `(m, [Z,] H, W)` as m volumes, on the grid of the image's source.

    `labels`: what the values of a label map mean; it becomes the header's comment.
    """
    import nibabel
    from nibabel.nifti1 import Nifti1Extension

    axes = len(image.spacing)
    affine, header = _header(image)
    stored = _grid(image.geometry, array.reshape(-1, *array.shape[-axes:]))  # (m, X, Y, Z)
    values = stored[0] if array.ndim == axes else np.moveaxis(stored, 0, -1)
    kind = nibabel.Nifti2Image if isinstance(header, nibabel.Nifti2Header) else nibabel.Nifti1Image
    file = kind(np.ascontiguousarray(values), affine, header)
    file.header.set_data_dtype(values.dtype)
    file.header["descrip"] = f"berdiff, {NOT_CLINICAL}"
    if labels:
        file.header.set_intent("label")
        file.header.extensions.append(Nifti1Extension("comment", labels.encode()))
    return gzip.compress(file.to_bytes(), mtime=0)  # no time of writing: the same run, the same bytes


def upright_affine(image: OpenedImage) -> np.ndarray:
    """(4, 4): (column, row, slice) of an image's own, upright array -> millimetres as NIfTI counts them."""
    from nibabel.orientations import inv_ornt_aff

    affine, _ = _header(image)
    geometry = image.geometry
    if geometry.back is None:
        return affine
    shape = geometry.shape[::-1] if geometry.kind == "dicom" else geometry.shape
    return affine @ inv_ornt_aff(turn_upright(affine), shape)


def _grid(geometry: Geometry, arrays: np.ndarray) -> np.ndarray:
    """(m, [Z,] H, W) -> (m, X, Y, Z) in the order of the source file; a picture's X is its columns."""
    stored, planar = geometry.to_stored(arrays), arrays.ndim == 3
    if geometry.kind == "nifti":  # of a plane exported as NIfTI, (H, W) is the stored order, perhaps with axes of one
        shape = tuple(geometry.header.get_data_shape())
        return stored.reshape(-1, *shape) if planar and np.prod(shape) == stored[0].size else stored
    return (stored[:, None] if planar else stored).transpose(0, 3, 2, 1)


def _header(image: OpenedImage | ImageFile) -> tuple[np.ndarray, Any]:
    """The affine (4, 4) of `_grid`'s axes and a header to start from, in which a NIfTI source has left its geometry."""
    geometry = image.geometry
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
        what = image.name if isinstance(image, OpenedImage) else "image"
        return present(place_of(geometry), what, needed), header
    known = bool(np.isfinite(image.spacing).all())
    header.set_xyzt_units("mm" if known else "unknown")
    between, row, column = (1.0, *image.spacing)[-3:] if known else (1.0, 1.0, 1.0)
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
