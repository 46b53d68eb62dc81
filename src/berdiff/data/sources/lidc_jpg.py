"""LIDC as CIMD keeps it: <split>/<i>/image_<i>.jpg with label0_.jpg to label3_.jpg beside it, all lossy JPG.

The folders name no patient. Every slice counts as a patient of its own, the split is the layout's, and the store
notes it: whether a patient is in two of its splits cannot be known.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Lt

from berdiff.data.case import Reading
from berdiff.data.describe import expect
from berdiff.data.paths import SPLIT_FOLDERS
from berdiff.data.sources.lidc import PictureSlice, natural_order, read_pictures


@dataclass(frozen=True)
class Options:
    threshold: Annotated[int, Ge(0), Lt(255)] = 127  # Grey values above it are the nodule: JPG blurs 0 and 255.
    readers: Annotated[int, Ge(1)] = 4  # How many labels every slice has.


def read(path: Path, options: Options) -> Reading:
    expected = "training/<i>/image_<i>.jpg or testing/<i>/image_<i>.jpg"
    unknown = {"notes": ("patients unknown: the source names none",), "patients_known": False}
    return read_pictures(path, _slices(path, options.readers), expected, threshold=options.threshold, **unknown)


def _slices(path: Path, readers: int) -> Iterator[PictureSlice]:
    for parent, split in SPLIT_FOLDERS.items():
        for folder in sorted((path / parent).glob("*/"), key=natural_order):
            files = sorted(folder.glob("image_*.jpg"))
            expect(len(files) == 1, folder, "one image_<i>.jpg", len(files), "missing")
            name = folder.relative_to(path).as_posix()
            masks = [folder / f"label{k}_.jpg" for k in range(readers)]
            yield PictureSlice(name, name, files[0], masks, name, split)
