"""LIDC as the common PNG tree: LIDC-IDRI-<number>/nodule-Y/images/slice-Z.png, and mask-0 to mask-3 beside images."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from berdiff.data.case import Case, Reading
from berdiff.data.images import read_image, read_mask
from berdiff.data.paths import inside
from berdiff.errors import InputError


@dataclass(frozen=True)
class Options:
    readers: int = 4
    """How many mask folders every nodule has."""


def read(path: Path, options: Options) -> Reading:
    if not path.is_dir():
        raise InputError(f"{path}: expected a folder, found {'a file' if path.exists() else 'nothing'}")
    # the tree is usually packed in one more folder, LIDC-IDRI-slices
    files = sorted([*path.glob("*/nodule-*/images/*.png"), *path.glob("*/*/nodule-*/images/*.png")], key=_order)
    if not files:
        raise InputError(f"{path}: expected LIDC-IDRI-<number>/nodule-Y/images/slice-Z.png, found none")
    height, width = read_image(inside(path, files[0]), channels=1).shape[1:]
    return Reading(
        channels=("ct",),
        targets=("nodule",),
        raters=options.readers,
        size=(height, width),
        dtype="uint8",
        total=len(files),
        cases=_cases(path, files, (height, width), options.readers),
    )


def _cases(path: Path, files: list[Path], size: tuple[int, int], readers: int) -> Iterator[Case]:
    for file in files:
        image = read_image(inside(path, file), channels=1)
        if image.dtype != np.uint8 or image.shape[1:] != size:
            raise InputError(
                f"{file}: expected an 8-bit slice of {size[0]}x{size[1]}, found {image.dtype} of {image.shape[1:]}"
            )
        nodule = file.parents[1]
        extra = nodule / f"mask-{readers}"
        if extra.exists():
            raise InputError(f"{nodule}: expected {readers} mask folders, found {extra.name} too; see --readers")
        masks = [read_mask(inside(path, nodule / f"mask-{k}" / file.name), size) for k in range(readers)]
        patient = nodule.parent.name
        yield Case(
            name=f"{patient}/{nodule.name}/{file.stem}",
            patient=patient,
            image=image,
            masks=np.stack(masks)[:, None],
            volume=f"{patient}/{nodule.name}",
            source=file.relative_to(path).as_posix(),
        )


def _order(file: Path) -> list[str | int]:
    """nodule-2 before nodule-10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", file.as_posix())]
