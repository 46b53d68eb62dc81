"""LIDC as the common PNG tree: LIDC-IDRI-<number>/nodule-Y/images/slice-Z.png, and mask-0 to mask-3 beside images."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from annotated_types import Ge

from berdiff.data.case import Reading
from berdiff.data.describe import expect
from berdiff.data.input_spec import Intensity
from berdiff.data.sources.lidc import PictureSlice, natural_order, read_pictures


@dataclass(frozen=True)
class Options:
    readers: Annotated[int, Ge(1)] = 4  # How many mask folders every nodule has.


def read(path: Path, options: Options) -> Reading:
    expected = "LIDC-IDRI-<number>/nodule-Y/images/slice-Z.png"
    reading = read_pictures(path, _slices(path, options.readers), expected)
    # so the slices of the public set are packed, at this size; checked against the DICOM
    return replace(reading, intensity=Intensity("minmax", field=max(reading.size)))


def _slices(path: Path, readers: int) -> Iterator[PictureSlice]:
    # the tree is usually packed in one more folder, LIDC-IDRI-slices
    files = [*path.glob("*/nodule-*/images/*.png"), *path.glob("*/*/nodule-*/images/*.png")]
    for file in sorted(files, key=natural_order):
        nodule, patient = file.parents[1], file.parents[2].name
        extra = nodule / f"mask-{readers}"
        expect(not extra.exists(), nodule, f"{readers} mask folders", f"{extra.name} too; see --readers", "shape")
        masks = [nodule / f"mask-{k}" / file.name for k in range(readers)]
        volume = f"{patient}/{nodule.name}"
        yield PictureSlice(f"{volume}/{file.stem}", patient, file, masks, volume)
