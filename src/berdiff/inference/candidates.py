"""Findings by a mask of candidates, such as a detector's."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from berdiff.data.describe import expect
from berdiff.data.reading import read_labels
from berdiff.inference.finding import Finding
from berdiff.inference.inputs import Input
from berdiff.inference.opening import ReadInput

MOST = 1000  # findings in one mask; more are the specks of one that was thresholded too low
SUFFIXES = (".nii.gz", ".nii", ".png")


class Candidates:
    """Masks on the grids of the inputs; every connected piece, by face, edge or corner, is a finding."""

    kind = "candidates"

    def __init__(self, path: Path) -> None:
        expect(path.exists(), path, "a mask, or a folder of masks", "nothing there")
        self.path = path

    def choose(self, inputs: Sequence[Input], every: bool) -> list[Input]:
        fits = self.path.is_dir() or len(inputs) == 1
        expect(fits, self.path, f"a folder with a mask for each of {len(inputs)} inputs", "a file")
        return list(inputs)

    def asked(self, item: Input) -> Any:
        mask = self._mask(item)
        return {"mask": str(mask.resolve()), "bytes": mask.stat().st_size}

    def find(self, item: Input, read: ReadInput) -> list[Finding]:
        mask = self._mask(item)
        expect(read.file is not None, mask, "an input of image files, which have a grid", f"a case of {read.what}")
        assert read.file is not None
        labels = read_labels(mask, read.file)
        whole = labels.dtype.kind in "biu" or (labels == np.rint(labels)).all()
        expect(whole, mask, "a mask of whole numbers", "fractions")
        centers = piece_centers(labels != 0, read.grid.spacing, mask)
        return [Finding(f"finding-{i}", at[-len(read.shape) :]) for i, at in enumerate(centers, 1)]

    def _mask(self, item: Input) -> Path:
        if self.path.is_file():
            return self.path
        found = [path for suffix in SUFFIXES if (path := self.path / f"{item.name}{suffix}").is_file()]
        expected = f"one mask of it, {self.path / item.name}.nii.gz"
        expect(len(found) == 1, item.what, expected, ", ".join(path.name for path in found) or "none")
        return found[0]


def piece_centers(mask: np.ndarray, spacing: Sequence[float], where: object) -> list[tuple[int, ...]]:
    """Of each connected piece of a mask `(Z, H, W)`, in the order of their first voxels: its voxel that lies nearest to
    its centre of mass."""
    from scipy import ndimage

    pieces = np.zeros(mask.shape, np.int32)
    ndimage.label(mask, structure=np.ones((3, 3, 3)), output=pieces)
    count = int(pieces.max())
    expect(count, where, "a mask with at least one marked voxel", "an empty one")
    expect(count <= MOST, where, f"a mask of at most {MOST} connected pieces", count)
    scale = np.array([1.0, *spacing])[-3:]
    scale = scale if np.isfinite(scale).all() else np.ones(3)
    centers: list[tuple[int, ...]] = []
    for number, box in enumerate(ndimage.find_objects(pieces), 1):
        voxels = np.argwhere(pieces[box] == number)
        away = ((voxels - voxels.mean(0)) * scale) ** 2
        nearest = voxels[away.sum(1).argmin()] + [axis.start for axis in box]
        centers.append(tuple(nearest.tolist()))
    return centers
