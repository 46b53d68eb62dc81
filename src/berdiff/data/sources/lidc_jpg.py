"""LIDC as CIMD keeps it: <split>/<i>/image_<i>.jpg with label0_.jpg to label3_.jpg beside it, all lossy JPG.

The folders name no patient. Every slice counts as a patient of its own, the split is the layout's, and the store says
so: whether a patient is in two of its splits cannot be known.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from berdiff.data.case import Case, Reading
from berdiff.data.images import read_image, read_mask
from berdiff.data.paths import inside
from berdiff.errors import InputError

SPLIT_FOLDERS = {
    "training": "train",
    "train": "train",
    "validation": "val",
    "val": "val",
    "testing": "test",
    "test": "test",
}


@dataclass(frozen=True)
class Options:
    threshold: int = 127
    """Grey values above it are the nodule: JPG blurs 0 and 255."""
    readers: int = 4
    """How many labels every slice has."""


def read(path: Path, options: Options) -> Reading:
    if not path.is_dir():
        raise InputError(f"{path}: expected a folder, found {'a file' if path.exists() else 'nothing'}")
    if not 0 <= options.threshold < 255:
        raise InputError(f"--threshold: expected 0 to 254, found {options.threshold}")
    found = [
        (split, folder)
        for name, split in SPLIT_FOLDERS.items()
        for folder in sorted((path / name).glob("*/"), key=lambda folder: (len(folder.name), folder.name))
    ]
    if not found:
        raise InputError(f"{path}: expected training/<i>/image_<i>.jpg or testing/<i>/image_<i>.jpg, found none")
    height, width = read_image(_image(path, found[0][1]), channels=1).shape[1:]
    return Reading(
        channels=("ct",),
        targets=("nodule",),
        raters=options.readers,
        size=(height, width),
        dtype="uint8",
        total=len(found),
        cases=_cases(path, found, (height, width), options),
        notes=("patients unknown: the source names none",),
        patients_known=False,
    )


def _image(path: Path, folder: Path) -> Path:
    files = sorted(folder.glob("image_*.jpg"))
    if len(files) != 1:
        raise InputError(f"{folder}: expected one image_<i>.jpg, found {len(files)}")
    return inside(path, files[0])


def _cases(path: Path, found: list[tuple[str, Path]], size: tuple[int, int], options: Options) -> Iterator[Case]:
    for split, folder in found:
        file = _image(path, folder)
        image = read_image(file, channels=1)
        if image.shape[1:] != size:
            raise InputError(f"{file}: expected a slice of {size[0]}x{size[1]}, found {image.shape[1:]}")
        masks = [
            read_mask(inside(path, folder / f"label{k}_.jpg"), size, options.threshold) for k in range(options.readers)
        ]
        name = folder.relative_to(path).as_posix()
        yield Case(
            name=name,
            patient=name,
            image=image,
            masks=np.stack(masks)[:, None],
            volume=name,
            source=file.relative_to(path).as_posix(),
            split=split,
        )
