"""Small folders of images and masks for tests."""

import nibabel
import numpy as np
import tifffile
from PIL import Image

from berdiff.data.sources.folder import Options, read

LPS = np.diag([-0.5, -0.75, 2, 1])
H, W = 12, 16


def picture(seed=0, shape=(H, W), dtype=np.uint8):
    return np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def blob(seed=0, shape=(H, W)):
    """A binary mask of 0 and 255, another for each seed."""
    return 255 * np.random.default_rng(1000 + seed).integers(0, 2, shape, np.uint8)


def save(path, array, affine=LPS):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name.endswith((".nii", ".nii.gz")):
        nibabel.save(nibabel.Nifti1Image(array.T if array.ndim == 3 else array, affine), path)
    elif path.suffix == ".npy":
        np.save(path, array)
    elif path.suffix == ".tif":
        tifffile.imwrite(path, array)
    else:
        Image.fromarray(array).save(path)
    return path


def simple(root, n=3, suffix=".png"):
    for i in range(n):
        save(root / "images" / f"c{i}{suffix}", picture(i))
        save(root / "masks" / f"c{i}{suffix}", blob(i))
    return root


def cases(root, **options):
    return list(read(root, Options(**options)).cases)
