"""Results made by hand, and CT series with all that real ones carry, for the tests of what is written."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pydicom
from pydicom.data import get_testdata_file
from pydicom.uid import generate_uid

from berdiff.data.image import Grid, Source
from berdiff.data.reading import read_images
from berdiff.inference.result import Result

SETTINGS = {"model": "tiny", "sampler": {"rule": "ddim", "steps": [9, 4]}, "seed": 3}


def result_2d(
    n: int = 16,
    size: tuple[int, int] = (20, 24),
    spacing: tuple[float, float] = (0.5, 0.8),
    targets: tuple[str, ...] = ("nodule",),
    raters: int = 0,
    channels: int = 1,
    **changes: object,
) -> Result:
    """Samples are lopsided blobs, one of them empty, so that a flip, a turn or a swap cannot go unseen."""
    rng = np.random.default_rng(0)
    samples = np.zeros((n, len(targets), *size), np.uint8)
    for i in range(1, n):
        for k in range(len(targets)):
            samples[i, k] = blob(size, rng)
    marked = np.stack([[blob(size, rng) for _ in targets] for _ in range(raters)]) if raters else None
    fields = {
        "name": "a",
        "image": rng.random((channels, *size), np.float32),
        "grid": Grid(size, spacing, source=Source("png", (Path("a.png"),), size)),
        "raters": marked,
        "notes": ("real readers, simulated CT",),
        "pool": samples,
        "targets": targets,
        "settings": SETTINGS,
    }
    return Result(**{**fields, **changes})  # type: ignore[arg-type]


def part_of(result: Result, *ranges: tuple[int, int]) -> Result:
    """The same of a region alone."""
    grid = result.grid.part(ranges)
    return replace(
        result, grid=grid, image=result.image[(..., *grid.box)], pool=result.pool[(..., *grid.box)], scan=result.image
    )


def chosen_2d(rule: str = "representative", chosen: tuple[int, ...] = (5, 2, 7, 0), **changes: object) -> Result:
    """A set of 4 masks out of a pool of 16."""
    more = {"set": rule, "pool": 16, "samples": len(chosen)}
    return result_2d(chosen=chosen, settings={**SETTINGS, **more}, **changes)  # type: ignore[arg-type]


ORIENTATIONS = {
    "axial": (1, 0, 0, 0, 1, 0),
    "head down": (1, 0, 0, 0, -1, 0),
    "sagittal": (0, 1, 0, 0, 0, -1),
    "oblique": (0.8, 0.6, 0, -0.48, 0.64, 0.6),
}
REGIONS = ("whole tumour", "tumour core", "enhancing tumour")


def several_2d(kind: str, n: int = 8, size: tuple[int, int] = (20, 24), **changes: object) -> Result:
    """Three targets in each sample as `kind` has them: rings around a place of its own; the first sample is empty."""
    rng = np.random.default_rng(1)
    rows, columns = np.indices(size)
    pool = np.zeros((n, 3, *size), np.uint8)
    for i in range(1, n):
        y, x = rng.uniform((8, 10), (11, 14))
        distance = np.hypot(rows - y, columns - x)
        discs = np.stack([distance < radius for radius in np.sort(rng.uniform(1, 8, 3))[::-1]])
        if kind == "exclusive":
            discs[:2] &= ~discs[1:]
        if kind == "independent":
            discs[1] = np.roll(discs[1], 5, axis=-1)
        pool[i] = discs
    several = {"pool": pool, "raters": pool[[2, 3]], "targets": REGIONS, "kind": kind}
    return replace(result_2d(size=size), **{**several, **changes})  # type: ignore[arg-type]


def blob(size: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """An L: a bar down and a shorter one to the right at its foot."""
    mask = np.zeros(size, np.uint8)
    top, left = rng.integers(1, 5, 2)
    height, width = rng.integers(6, 12, 2)
    mask[top : top + height, left : left + 2] = 1
    mask[top + height - 2 : top + height, left : left + width] = 1
    return mask


def volume_result(
    image: np.ndarray, spacing: tuple[float, ...], grid: Grid | None = None, n: int = 4, kind: str = ""
) -> Result:
    """A result whose sample i marks what is brighter than a threshold of its own: known on any grid.

    image (Z, H, W), upright, of whole numbers 0..99. With a `kind`, three such targets: a nested one begins 10 above
    the one before it, and an exclusive one ends where that one begins.
    """
    masks = np.stack([image > threshold(i) for i in range(n)])[:, None]
    if kind:
        masks = np.stack([[image > threshold(i) + 10 * k - 30 for k in range(3)] for i in range(n)])
        if kind == "exclusive":
            masks[:, :2] &= ~masks[:, 1:]
    return Result(
        name="volume",
        image=(image[None] / 100).astype(np.float32),
        grid=grid or Grid(image.shape, spacing, source=Source("array", shape=image.shape)),
        pool=masks.astype(np.uint8),
        targets=REGIONS if kind else ("whole tumour",),
        kind=kind or "independent",  # type: ignore[arg-type]
        settings=SETTINGS,
    )


def threshold(i: int) -> int:
    return 60 + 8 * i


def file_result(*paths: Path, n: int = 4, kind: str = "") -> Result:
    """What `berdiff segment` would hold for a volume of files, with samples by threshold."""
    file = read_images(paths, 1)
    return volume_result(file.values[0], file.grid.spacing, file.grid, n, kind)


def grid_of(*paths: Path) -> Grid:
    return read_images(paths, 1).grid


def write_series(
    folder: Path, values: np.ndarray, orientation: tuple[float, ...] = (1, 0, 0, 0, 1, 0), shuffle: int | None = None
) -> list[Path]:
    """A CT of values (Z, H, W), 2.5 mm between slices, as pydicom's own CT_small.dcm has its tags.

    File names and instance numbers are in an order of their own where `shuffle` is a seed.
    """
    across, down = np.reshape(orientation, (2, 3)).astype(float)
    series, frame = generate_uid(), generate_uid()
    names = np.arange(len(values)) if shuffle is None else np.random.default_rng(shuffle).permutation(len(values))
    paths = []
    for z, (number, plane) in enumerate(zip(names, values, strict=True)):
        data = pydicom.dcmread(str(get_testdata_file("CT_small.dcm")))
        del data[0x0043, 0x104E]  # private, and of no defined type
        data.SOPInstanceUID = data.file_meta.MediaStorageSOPInstanceUID = generate_uid()
        data.SeriesInstanceUID, data.FrameOfReferenceUID = series, frame
        data.InstanceNumber = int(number) + 1
        data.ImageOrientationPatient = [float(f"{v:.8f}") for v in (*across, *down)]
        position = np.array([-40.0, 12.5, 100.0]) + 2.5 * z * np.cross(across, down)
        data.ImagePositionPatient = [float(f"{v:.6f}") for v in position]
        data.PixelSpacing, data.SliceThickness = [0.7, 0.6], 2.5
        data.Rows, data.Columns = plane.shape
        data.RescaleIntercept, data.RescaleSlope = -1024, 1
        data.PixelData = (plane + 1024).astype("<i2").tobytes()
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{number:03d}.dcm"
        data.save_as(path)
        paths.append(path)
    return sorted(paths)
