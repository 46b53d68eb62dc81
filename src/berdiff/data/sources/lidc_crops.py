"""LIDC v2, the 180x180 PNG crops at 0.5 mm that the paper's repository points to.

lidc_crops_<split>/<split>/images/LIDC-IDRI-<number>/z-<z>_c<k>.png
lidc_crops_<split>/<split>/gt/LIDC-IDRI-<number>/z-<z>_c<k>_l0.png to _l3.png    0 and 255
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from berdiff.data.case import SPLITS, Case, Reading
from berdiff.data.fitting import centre
from berdiff.data.images import read_image, read_mask
from berdiff.data.paths import inside
from berdiff.errors import InputError


@dataclass(frozen=True)
class Options:
    size: int = 128
    """The centre that is kept, in pixels; 180 keeps all."""
    readers: int = 4
    """How many masks every crop has."""


def read(path: Path, options: Options) -> Reading:
    if not path.is_dir():
        raise InputError(f"{path}: expected a folder, found {'a file' if path.exists() else 'nothing'}")
    found = [(split, image) for split in SPLITS for image in _images(path, split)]
    if not found:
        raise InputError(f"{path}: expected crops lidc_crops_train/train/images/*/*.png, found none")
    height, width = read_image(found[0][1], channels=1).shape[1:]
    if not 0 < options.size <= min(height, width):
        raise InputError(f"--size: expected 1 to {min(height, width)}, the size of the crops, found {options.size}")
    return Reading(
        channels=("ct",),
        targets=("nodule",),
        raters=options.readers,
        size=(options.size, options.size),
        dtype="uint8",
        total=len(found),
        cases=_cases(path, found, (height, width), options),
    )


def _images(path: Path, split: str) -> Iterator[Path]:
    for base in (path / f"lidc_crops_{split}" / split, path / split):
        if (base / "images").is_dir():
            yield from sorted((base / "images").glob("*/*.png"))
            return


def _cases(path: Path, found: list[tuple[str, Path]], size: tuple[int, int], options: Options) -> Iterator[Case]:
    for split, file in found:
        image = read_image(inside(path, file), channels=1)
        if image.dtype != np.uint8 or image.shape[1:] != size:
            raise InputError(
                f"{file}: expected an 8-bit crop of {size[0]}x{size[1]}, found {image.dtype} of {image.shape[1:]}"
            )
        patient = file.parent.name
        labels = file.parents[2] / "gt" / patient
        masks = [
            read_mask(inside(path, labels / f"{file.stem}_l{reader}.png"), size) for reader in range(options.readers)
        ]
        kept = (options.size, options.size)
        yield Case(
            name=f"{patient}/{file.stem}",
            patient=patient,
            image=centre(image, kept),
            masks=centre(np.stack(masks)[:, None], kept),
            volume=patient,
            spacing=(0.5, 0.5),
            source=file.relative_to(path).as_posix(),
            split=split,
        )
