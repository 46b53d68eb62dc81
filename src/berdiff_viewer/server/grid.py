"""Between an image's upright array and the voxels (i, j, k) that other programs count: those of its NIfTI file."""

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import nibabel
import numpy as np
from nibabel import orientations

from berdiff.data.describe import check, decoding
from berdiff.data.image import Image, Source
from berdiff.data.reading import read_labels
from berdiff.output.nifti import nifti_bytes


def upright_place(ijk: Sequence[float], source: Source, shape: tuple[int, ...], what: str = "foreground") -> list[int]:
    """([z,] y, x) in an upright array of `shape` of the voxel (i, j[, k]) of the NIfTI file on the image's own grid."""
    check(len(ijk) in (2, 3), f"{what}: a point needs three numbers (i, j, k), not {len(ijk)}", "shape")
    i, j, k = (*(round(value) for value in ijk), 0)[:3]
    if len(shape) == 2:
        # a plane that was stored as NIfTI has its rows first; of all other planes, i counts columns
        place = [i, j] if source.kind == "nifti" else [j, i]
    elif source.back is None:
        place = [k, j, i]
    else:
        x, y, z, _ = cast(Any, orientations).inv_ornt_aff(source.back, shape[::-1]) @ (i, j, k, 1)
        place = [round(z), round(y), round(x)]
    inside = all(0 <= at < length for at, length in zip(place, shape, strict=True))
    check(inside, f"{what}: the voxel ({i}, {j}, {k}) is outside the image", "place")
    return place


def labels_from_grid(path: Path, image: Image) -> np.ndarray:
    """(Z, H, W): the way back, for a label map that a client drew on what `nifti_bytes` gave it of the image."""
    if image.grid.affine is not None:
        return read_labels(path, image)
    index = np.arange(image.values[0].size, dtype=np.int32).reshape(image.values.shape[2 if image.grid.planar else 1 :])
    grid = nibabel.Nifti1Image.from_bytes(gzip.decompress(nifti_bytes(index, image.grid)))
    with decoding(path, "a whole label map", "a damaged one"):
        image_file = cast(Any, nibabel).load(path)
        labels = np.asarray(image_file.dataobj)
    placed = labels.size == index.size and np.allclose(image_file.affine, np.asarray(grid.affine), atol=1e-3)
    check(placed, f"{path}: the label map is not on the grid of the image that the server gave", "place")
    upright = np.zeros(index.size, labels.dtype)
    upright[np.asarray(grid.dataobj).ravel("F").astype(np.int64)] = labels.ravel("F")
    return upright.reshape(image.values.shape[1:])


def nrrd(nifti: bytes, compress: bool, dtype: str) -> bytes:
    """The label map of a .nii.gz as NRRD; it counts mm to the left and back, where NIfTI has right and front."""
    image = nibabel.Nifti1Image.from_bytes(gzip.decompress(nifti))
    affine = np.diag([-1.0, -1, 1, 1]) @ np.asarray(image.affine)
    values = np.asarray(image.dataobj).astype("<u2" if dtype == "uint16" else "u1")

    def vector(numbers: np.ndarray) -> str:
        return f"({','.join(repr(float(number)) for number in numbers)})"

    header = [
        "NRRD0004",
        f"type: {'uint16' if dtype == 'uint16' else 'uint8'}",
        "dimension: 3",
        "space: left-posterior-superior",
        f"sizes: {' '.join(map(str, values.shape))}",
        f"space directions: {' '.join(vector(column) for column in affine[:3, :3].T)}",
        "kinds: domain domain domain",
        "endian: little",
        f"encoding: {'gzip' if compress else 'raw'}",
        f"space origin: {vector(affine[:3, 3])}",
    ]
    data = values.tobytes("F")
    return "\n".join(header).encode() + b"\n\n" + (gzip.compress(data, mtime=0) if compress else data)
