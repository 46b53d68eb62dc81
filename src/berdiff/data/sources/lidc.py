"""What the LIDC layouts share: one channel, one target, and slices that are pictures or lie around a nodule."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from berdiff.data.case import Case, Reading
from berdiff.data.contours import READERS, Nodule
from berdiff.data.describe import by, expect
from berdiff.data.fitting import Fit, fit_image, fit_labels, fit_spacing
from berdiff.data.images import read_mask, read_picture
from berdiff.data.input_spec import Intensity
from berdiff.data.paths import expect_folder, inside

# what most have in common; the others replace it
LidcReading = partial(
    Reading,
    channels=("ct",),
    targets=("nodule",),
    intensity=Intensity(),
    raters=READERS,
    dtype="uint8",
    modality="ct",
    crops=True,
)


@dataclass(frozen=True)
class PictureSlice:
    """A slice that is a picture, with a picture for each rater's mask."""

    name: str
    patient: str
    image: Path
    masks: list[Path]
    volume: str
    split: str = ""


def read_pictures(
    root: Path,
    slices: Iterable[PictureSlice],
    expected: str,
    size: int | None = None,
    fit: Fit = "crop",
    spacing: float = float("nan"),
    threshold: float | None = None,
    **fields: Any,
) -> Reading:
    """8-bit pictures of one size, which `fit` brings to `size`, with masks of 0 and 255, or of what is above
    `threshold`; `expected` names the files for the error where there are none."""
    expect_folder(root)
    found = list(slices)
    expect(found, root, expected)
    stored = read_picture(inside(root, found[0].image), channels=1).shape[1:]
    fits = size is None or fit == "resize" or size <= min(stored)
    expect(fits, "--size", f"1 to {min(stored)}, the size of the pictures", size, "shape")
    wanted = stored if size is None else (size, size)
    mm = fit_spacing((spacing, spacing), stored, wanted, fit)

    def case(one: PictureSlice) -> Case:
        image = read_picture(inside(root, one.image), channels=1)
        fits = image.dtype == np.uint8 and image.shape[1:] == stored
        expect(fits, one.image, f"an 8-bit slice of {by(stored)}", f"{image.dtype} of {by(image.shape[1:])}", "shape")
        masks = np.stack([read_mask(inside(root, mask), stored, threshold) for mask in one.masks])[:, None]
        image, masks = fit_image(image, wanted, fit), fit_labels(masks, wanted, fit)
        source = one.image.relative_to(root).as_posix()
        return Case(one.name, one.patient, image, masks, one.volume, mm, source, one.split)

    return LidcReading(raters=len(found[0].masks), size=wanted, total=len(found), cases=map(case, found), **fields)


def natural_order(path: Path) -> list[tuple[int, str]]:
    """nodule-2 before nodule-10."""
    return [(len(part), part) for part in path.parts]


def names(nodule: Nodule, z: float) -> tuple[str, str]:
    """Of the volume and of the case."""
    scan = nodule.scan
    volume = f"{scan.patient}/scan-{scan.number}/nodule-{nodule.number}"
    return volume, f"{volume}/slice-{int(np.abs(scan.zs - z).argmin())}"


def nodule_case(nodule: Nodule, z: float, image: np.ndarray, masks: np.ndarray, spacing: float, source: str) -> Case:
    """A slice (H, W) around a nodule with masks (R, H, W)."""
    volume, name = names(nodule, z)
    return Case(name, nodule.scan.patient, image[None], masks[:, None], volume, (spacing, spacing), source)
