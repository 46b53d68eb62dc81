"""NIfTI files that lie exactly where their source lies."""

import io
import zlib
from typing import Any

import numpy as np

from berdiff.data.describe import present
from berdiff.data.image import Grid, Source
from berdiff.output.captions import NOT_CLINICAL

# What is taken over of a NIfTI source's header: numbers alone. Its texts (description, file names, name of the data
# base or of the intent, extensions) may say who the patient is, and its display range speaks of other values.
GEOMETRY = ("dim_info", "pixdim", "xyzt_units", "qform_code", "sform_code", "quatern_b", "quatern_c", "quatern_d")
GEOMETRY += ("qoffset_x", "qoffset_y", "qoffset_z", "srow_x", "srow_y", "srow_z")


def nifti_bytes(array: np.ndarray, grid: Grid, labels: str = "") -> bytes:
    """A .nii.gz of an upright `([Z,] H, W)` on `grid`, or of `(m, [Z,] H, W)` as m volumes; all of the source's grid.

    `labels`: what the values of a label map mean; it becomes the header's comment.
    """
    import nibabel
    from nibabel.nifti1 import Nifti1Extension

    affine, header = _header(grid)
    volumes = array.reshape(-1, *grid.shape)
    shape = _in_file_order(np.broadcast_to(array.dtype.type(0), (grid.whole or grid).shape), grid).shape
    if array.ndim > len(grid.shape):
        shape = (*shape, len(volumes))
    kind = nibabel.Nifti2Image if isinstance(header, nibabel.Nifti2Header) else nibabel.Nifti1Image
    file = kind(np.broadcast_to(array.dtype.type(0), shape), affine, header)
    file.header.set_data_dtype(array.dtype)
    file.header["descrip"] = f"berdiff, {NOT_CLINICAL}"
    if labels:
        file.header.set_intent("label")
        file.header.extensions.append(Nifti1Extension("comment", labels.encode()))
    file.header.set_slope_inter(1, 0)
    begin = io.BytesIO()
    file.header.write_to(begin)
    # one volume after the other: all samples of a scan, on its whole grid, would be gigabytes
    packer = zlib.compressobj(9, wbits=31)  # gzip without a time of writing: the same run, the same bytes
    parts = [packer.compress(begin.getvalue().ljust(file.header.get_data_offset(), b"\0"))]
    for volume in volumes:
        stored = _in_file_order(grid.placed(volume), grid).astype(file.header.get_data_dtype(), copy=False)
        parts.append(packer.compress(stored.tobytes("F")))
    return b"".join([*parts, packer.flush()])


def _in_file_order(array: np.ndarray, grid: Grid) -> np.ndarray:
    """([Z,] H, W) of the whole image -> (X, Y, Z) in the order of the source file; a picture's X is its columns."""
    stored, source = grid.source.to_stored(array), grid.source
    if source.kind == "nifti":  # of a plane exported as NIfTI, (H, W) is the stored order, perhaps with axes of one
        shape = tuple(source.header.get_data_shape())
        return stored.reshape(shape) if grid.planar and np.prod(shape) == stored.size else stored
    return (stored[None] if grid.planar else stored).transpose(2, 1, 0)


def _header(grid: Grid) -> tuple[np.ndarray, Any]:
    """The affine (4, 4) of `_in_file_order`'s axes and a header to start from, in which a NIfTI source has left its
    geometry."""
    from nibabel import Nifti1Header

    source = grid.source
    if source.kind == "nifti":
        header = type(source.header)(endianness=source.header.endianness)
        header.set_data_shape(source.header.get_data_shape())
        for field in GEOMETRY:
            header[field] = source.header[field]
        return present(source.affine, "image", "the affine of its file"), header
    header = Nifti1Header()
    if source.kind == "dicom":
        header.set_xyzt_units("mm")
        return place_of(source), header
    known = bool(np.isfinite(grid.spacing).all())
    header.set_xyzt_units("mm" if known else "unknown")
    between, row, column = (1.0, *grid.spacing)[-3:] if known else (1.0, 1.0, 1.0)
    # As the picture is looked at: columns run to the patient's left, rows to the back, slices up.
    return np.diag([-column, -row, between, 1.0]), header


def place_of(source: Source) -> np.ndarray:
    """(column, row, slice) of DICOM files, in order, to NIfTI's millimetres; InputError where they state no place."""
    what = source.paths[0].name if source.paths else "image"
    return present(source.affine, what, "the DICOM tags PixelSpacing, ImagePositionPatient and ImageOrientationPatient")
