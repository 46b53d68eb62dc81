"""One file a layout. Each offers a frozen dataclass `Options` and `read(path, options) -> Reading`."""

from importlib import import_module
from types import ModuleType

from berdiff.errors import InputError

# name on the command line -> what it reads; the module is berdiff.data.sources.<name>, imported when asked for
SOURCES = {
    "lidc-readers": "LIDC's real readers over a simulated CT; needs no files",
    "lidc-dicom": "raw LIDC-IDRI DICOM folders and the readers' contours",
    "lidc-crops": "the 180x180 PNG crops (v2)",
    "lidc-hdf5": "data_lidc.hdf5 (v1)",
    "lidc-pickle": "data_lidc.pickle (v1)",
    "lidc-png": "the PNG tree LIDC-IDRI-<number>/nodule-Y/{images,mask-0..3}",
    "lidc-jpg": "folders of JPGs, image_<i>.jpg and label0_.jpg to label3_.jpg",
    "brats": "BraTS cases, the Decathlon's 4D files, or 2D slices",
    "folder": "anyone's images and masks",
}


def source(name: str) -> ModuleType:
    if name not in SOURCES:
        raise InputError(f"source: expected one of {', '.join(SOURCES)}, found {name!r}")
    return import_module(f"berdiff.data.sources.{name.replace('-', '_')}")
