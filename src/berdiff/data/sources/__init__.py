"""One file per layout. It offers a frozen dataclass `Options` of what the user can choose and
`read(path, options) -> Reading`; where it reads no files it has `NEEDS_PATH = False`, and `path` is None.

A source of another package joins by the entry-point group `berdiff.sources`: NAME = "its.module".
"""

from collections.abc import Callable
from types import ModuleType

from berdiff.errors import InputError
from berdiff.plugins import Registry

_PURPOSES = {  # here and not in the modules, which need h5py, nibabel or pydicom to be imported
    "lidc-readers": "LIDC's real readers over a simulated CT; needs no files",
    "lidc-dicom": "raw LIDC-IDRI DICOM folders and the readers' contours",
    "lidc-crops": "the 180x180 PNG crops (v2)",
    "lidc-hdf5": "data_lidc.hdf5 (v1)",
    "lidc-pickle": "data_lidc.pickle (v1)",
    "lidc-png": "the PNG tree LIDC-IDRI-<number>/nodule-Y/{images,mask-0..3}",
    "lidc-jpg": "folders of JPGs, image_<i>.jpg and label0_.jpg to label3_.jpg",
    "brats": "BraTS cases, the Decathlon's 4D files, or 2D slices",
    "brats-h5": "BraTS 2020 as Kaggle has it, volume_<v>_slice_<s>.h5",
    "nnunet": "nnU-Net's raw data: imagesTr, labelsTr, dataset.json",
    "folder": "anyone's images and masks",
    "hdf5": "anyone's HDF5 file: images and labels, or a channel per rater",
    "stores": "prepared stores, joined into one",
}
SOURCES = Registry("berdiff.sources", {name: f"{__name__}.{name.replace('-', '_')}" for name in _PURPOSES})
find_source: Callable[[str], ModuleType] = SOURCES.load


def purposes() -> dict[str, str]:
    """Every source and what it reads; of another package's, the first line of its module's docstring."""
    return {name: _PURPOSES.get(name) or _first_line(name) for name in SOURCES.names()}


def _first_line(name: str) -> str:
    try:
        return (find_source(name).__doc__ or "").strip().partition("\n")[0]
    except InputError as error:  # the others can still be used
        return str(error)
