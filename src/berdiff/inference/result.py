"""What a segmentation gives: the samples, where they lie, and what follows from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from berdiff.inference import summary
from berdiff.inference.summary import Representative

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Kind = Literal["png", "nifti", "dicom", "npy", "store", "array"]  # "png" is any picture: PNG, JPG or TIFF
Range = tuple[int, int]  # [first, last + 1)


@dataclass(frozen=True, eq=False)
class Source:
    """Where an image came from, and how to put an array back on its grid.

    A volume's arrays are upright, (slice, row, column) from feet, front and the patient's right, whatever the order in
    the file; `to_stored` turns them back exactly. 2D images are always as stored.
    """

    kind: Kind
    paths: tuple[Path, ...] = ()  # the files; of a DICOM series in the order of `to_stored`'s first axis
    shape: tuple[int, ...] = ()  # of the stored grid: (H, W); NIfTI (X, Y, Z); DICOM series (Z, rows, columns)
    affine: np.ndarray | None = None  # (4, 4), NIfTI volumes: stored voxel -> mm, exactly as in the file
    header: Any = None  # NIfTI: the nibabel header, for units, codes and descriptions
    back: np.ndarray | None = None  # volumes: nibabel's orientation (column, row, slice) -> the stored (X, Y, Z)

    def to_stored(self, array: np.ndarray) -> np.ndarray:
        """(..., Z, H, W) or (..., H, W) -> the same leading axes, then the source's own grid (`shape`)."""
        if self.back is None:
            return array
        from nibabel.orientations import apply_orientation

        leading = array.shape[:-3]
        planes = array.reshape(-1, *array.shape[-3:])
        turned = np.stack([apply_orientation(volume.T, self.back) for volume in planes])  # (., X, Y, Z)
        if self.kind == "dicom":
            turned = turned.transpose(0, 3, 2, 1)
        return np.ascontiguousarray(turned.reshape(*leading, *turned.shape[1:]))


@dataclass(frozen=True, eq=False)
class Result:
    """n masks of one image or volume, on the whole image's grid: 0 outside the region of interest."""

    name: str
    samples: np.ndarray  # (n, K, H, W) or (n, K, Z, H, W) uint8 of 0 and 1
    image: np.ndarray  # (C, H, W) or (C, Z, H, W) float32 in [0, 1], as shown to the network
    spacing: tuple[float, ...]  # mm a pixel along the last axes: (row, column) or (slice, row, column); nan if unknown
    source: Source
    targets: tuple[str, ...]  # a name for each of the K targets
    roi: tuple[Range, ...] | None = None  # the part that was segmented, a range for each of the last axes; None: all
    readers: np.ndarray | None = None  # (R, K, H, W) uint8: the readers' masks, where a store has them
    settings: Mapping[str, Any] = field(default_factory=dict)  # model, samples, sampler, seed, ... in plain JSON types
    notes: tuple[str, ...] = ()  # to be shown wherever the result is

    @property
    def volume(self) -> bool:
        """Whether it is a volume, and not one 2D image."""
        return self.samples.ndim == 5

    @cached_property
    def saliency(self) -> np.ndarray:
        """(K, [Z,] H, W) float32: the share of the samples in which a pixel is marked."""
        return self.samples.mean(0, dtype=np.float32)

    @cached_property
    def variance(self) -> np.ndarray:
        """(K, [Z,] H, W) float32 over the samples: of 0 and 1, p (1 - p)."""
        return self.saliency * (1 - self.saliency)

    def mask(self, threshold: float = 0.5) -> np.ndarray:
        """(K, [Z,] H, W) uint8: marked in at least this share of the samples."""
        return (self.saliency >= np.float32(threshold)).astype(np.uint8)

    def contours(self, levels: Sequence[float] = (0.25, 0.5, 0.75)) -> np.ndarray:
        """(L, K, [Z,] H, W) uint8: `mask` at each level. Each lies inside the one before it."""
        return np.stack([self.mask(level) for level in levels])

    def representatives(self, k: int = 3) -> list[Representative]:
        """At most k of the samples that stand for all, each with its frequency, the most frequent first."""
        return summary.representatives(self.samples, k)

    def measurements(self) -> dict[str, dict[str, Any]]:
        """For each target: the probability of a finding, area or volume, and longest diameter, with quantiles."""
        return self._measurements

    @cached_property
    def _measurements(self) -> dict[str, dict[str, Any]]:
        return {
            target: summary.measure(self.samples[:, number], self.spacing) for number, target in enumerate(self.targets)
        }

    def plot(self) -> "Figure":
        """The panel: image, readers where known, samples, saliency, variance and representatives."""
        from berdiff.inference.pictures import panel  # matplotlib takes its time

        return panel(self)
