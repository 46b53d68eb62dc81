"""LIDC v2, the 180x180 PNG crops at 0.5 mm that the paper's repository points to.

lidc_crops_<split>/<split>/images/LIDC-IDRI-<number>/z-<z>_c<k>.png
lidc_crops_<split>/<split>/gt/LIDC-IDRI-<number>/z-<z>_c<k>_l0.png to _l3.png    0 and 255
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from annotated_types import Ge

from berdiff.data.case import SPLITS, Reading
from berdiff.data.fitting import Fit
from berdiff.data.sources.lidc import PictureSlice, read_pictures


@dataclass(frozen=True)
class Options:
    size: Annotated[int, Ge(1)] = 128
    """Height and width of the prepared slices, in pixels; 180 keeps the crops as they are."""
    fit: Fit = "crop"
    """How to get to --size: crop the centre, which keeps 0.5 mm per pixel, or resize, which keeps the whole crop, as
    the paper does (masks: nearest pixel)."""
    readers: Annotated[int, Ge(1)] = 4  # How many masks every crop has.


def read(path: Path, options: Options) -> Reading:
    expected = "crops lidc_crops_train/train/images/*/*.png"
    return read_pictures(path, _slices(path, options.readers), expected, options.size, options.fit, spacing=0.5)


def _slices(path: Path, readers: int) -> Iterator[PictureSlice]:
    for split in SPLITS:
        base = path / f"lidc_crops_{split}" / split
        if not (base / "images").is_dir():
            base = path / split
        for file in sorted((base / "images").glob("*/*.png")):
            patient = file.parent.name
            masks = [base / "gt" / patient / f"{file.stem}_l{k}.png" for k in range(readers)]
            yield PictureSlice(f"{patient}/{file.stem}", patient, file, masks, patient, split)
