"""Read NIfTI files as upright slices; a file that is not what it should be is named in one sentence."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np

from berdiff.data.describe import by, check, decoding, expect, some_values
from berdiff.data.image import UNKNOWN, Grid, Image, Source, upright, upright_shape
from berdiff.data.limits import check_size
from berdiff.data.numbers import finite
from berdiff.data.paths import expect_file

SUFFIXES = (".nii", ".nii.gz")
MAX_EXTENSIONS = 2**24  # bytes between the header and the voxels, which nibabel reads with the header


def shape_of(path: str | Path, ndim: int = 3) -> tuple[int, ...]:
    """The shape `read_volume` will give, from the header alone, so that all files can be checked first."""
    path = Path(path)
    image = _open(path)
    return upright_shape(_squeezed(path, image, ndim), image.affine, path)


def stored_shape(path: str | Path) -> tuple[int, ...]:
    """The shape in the header, as stored."""
    return tuple(_open(Path(path)).shape)


def read_nifti(path: Path, several: bool = False) -> Image:
    """A plane or a volume; with `several`, of several channels where the file has them."""
    image = _open(path)
    if image.ndim == 2:
        return _plane(path, image)
    return _volume(path, image, 4 if several and image.ndim > 3 and image.shape[3] > 1 else 3)


def read_volume(path: str | Path, ndim: int = 3) -> Image:
    """A 3D file, or with `ndim` 4 a file of several channels."""
    return _volume(Path(path), _open(Path(path)), ndim)


def read_plane(path: str | Path) -> np.ndarray:
    """A file of one 2D slice as (H, W)."""
    return _plane(Path(path), _open(Path(path))).values[0, 0]


def _volume(path: Path, image: Any, ndim: int) -> Image:
    values = _values(path, image, ndim)
    source = Source("nifti", (path,), image.shape[:3], image.affine, image.header)
    return upright(values, source, path)


def _plane(path: Path, image: Any) -> Image:
    """Such files are exported pictures: rows first, and no orientation to trust."""
    values = np.ascontiguousarray(_values(path, image, 2))
    source = Source("nifti", (path,), image.shape[:3], image.affine, image.header)
    return Image(values[None, None], Grid(values.shape, UNKNOWN, source=source))


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
        expect(isinstance(image, nibabel.Nifti1Pair), path, "a NIfTI file", type(image).__name__, "kind")
        dtype, shape, scale = image.get_data_dtype(), image.shape, (image.dataobj.slope, image.dataobj.inter)
    expect(dtype.kind in "iuf", path, "one number per voxel", dtype, "kind")
    expect(shape and min(shape) > 0, path, "a shape of at least one voxel", f"the shape {by(shape)}", "shape")
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
            near = offset <= length + MAX_EXTENSIONS
            check(near, f"{path}: voxel data starts at byte {offset:.0f}, far behind the header", "damaged")


def _squeezed(path: Path, image: Any, ndim: int) -> tuple[int, ...]:
    """The shape as stored, with `ndim` dimensions: trailing dimensions of one are only another way to write it."""
    shape = tuple(image.shape)
    while len(shape) > ndim and shape[-1] == 1:
        shape = shape[:-1]
    expect(len(shape) == ndim, path, f"{ndim} dimensions", f"the shape {by(image.shape)}", "shape")
    return shape


def _values(path: Path, image: Any, ndim: int) -> np.ndarray:
    """An array of `ndim` dimensions, as stored."""
    shape = _squeezed(path, image, ndim)
    with decoding(path, "a whole NIfTI file", "a damaged one"):
        values = np.asanyarray(image.dataobj)
    return finite(values, path).reshape(shape)
