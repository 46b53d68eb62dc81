"""Places of lung without a nodule, as a table for `berdiff segment --centers`: what a model says where nothing is.

    python -m benchmarks.normal_lung SERIES lung.csv --finding 7 366 316
    berdiff segment lidc SERIES --centers lung.csv --out out/lung

A place is a voxel whose surroundings of 21x21 pixels are lung (nine tenths below -500 HU and not the air around the
patient), in a window of the network's size inside the image, and farther than 40 mm from the finding.
"""

import csv
from pathlib import Path

import numpy as np
import tyro
from scipy import ndimage
from tyro.conf import Positional

from berdiff.data.dicom import read_series

SIDE, AIR, SHARE, FAR, MARGIN = 21, -500.0, 0.9, 40.0, 32


def places(hu: np.ndarray, far: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Random (z, y, x) of a volume (Z, H, W) in Hounsfield units with lung around them, where `far` is True."""
    air = hu < AIR
    pieces, _ = ndimage.label(air)
    border = np.concatenate([pieces[:, [0, -1]].ravel(), pieces[:, :, [0, -1]].ravel()])
    lung = air & ~np.isin(pieces, np.unique(border))
    found = ndimage.uniform_filter(lung.astype(np.float32), (0, SIDE, SIDE)) >= SHARE
    inside = np.zeros_like(found)
    inside[:, MARGIN:-MARGIN, MARGIN:-MARGIN] = True
    return np.random.default_rng(seed).permutation(np.argwhere(found & inside & far))[:count]


def main(
    series: Positional[Path], out: Positional[Path], finding: tuple[int, int, int], count: int = 50, seed: int = 0
) -> None:
    """Write the table for a CT series; `finding` is Z Y X, as of `berdiff segment --center`."""
    scan = read_series(series)
    axes = zip(scan.grid.shape, finding, scan.grid.spacing, strict=True)
    distances = [(np.arange(length) - at) * mm for length, at, mm in axes]
    far = np.sqrt(sum(np.square(part) for part in np.ix_(*distances))) > FAR
    with out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["case", "z", "y", "x"])
        writer.writerows([series.name, *place] for place in places(scan.values[0], far, count, seed).tolist())


if __name__ == "__main__":
    tyro.cli(main)
