"""What a segmentation gives: the masks, where they lie, and what follows from them."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from berdiff.data.describe import by
from berdiff.data.image import Grid, Range
from berdiff.data.input_spec import Kind
from berdiff.inference.measurements import QUANTILES, measure
from berdiff.inference.representatives import Representative, disagreement, representatives
from berdiff.metrics import more_than
from berdiff.targets.targets import Targets, label_map

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True, eq=False, kw_only=True)
class Result:
    """The masks sampled of an image, or of a region of it: every array but `scan` and `raters` is of the region.

    Shares, maps and measurements are of the whole pool; `samples` are the masks of it to look at.
    """

    name: str
    image: np.ndarray  # (C, H, W) or (C, Z, H, W) float32 in [0, 1], as shown to the network
    grid: Grid  # where the region lies, and the way back to the grid of the files
    pool: np.ndarray  # (P, K, H, W) or (P, K, Z, H, W) uint8 of 0 and 1: all samples that were drawn
    chosen: tuple[int, ...] | None = None  # places in the pool of the masks to look at; None: all of it
    targets: tuple[str, ...]  # a name for each of the K targets
    kind: Kind = "independent"  # how the targets may lie to each other, in each sample
    settings: Mapping[str, Any] = field(default_factory=dict)  # model, samples, sampler, seed, ... in plain JSON types
    scan: np.ndarray | None = None  # (C, [Z,] H, W): all of the image, where it is at hand, for pictures alone
    raters: np.ndarray | None = None  # (R, K, [Z,] H, W) uint8: on all of the image, where a store has them
    notes: tuple[str, ...] = ()  # to be shown wherever the result is
    warnings: tuple[str, ...] = ()  # why it may be worthless: shown before the notes
    title: str = ""  # what people call the image, where that is not the name
    details: Mapping[str, str] = field(default_factory=dict)  # of a DICOM series: patient, series, date, UIDs
    channels: tuple[str, ...] = ()  # the model's names
    anonymous: bool = False  # no file may say who the patient is, or where the image lay

    @property
    def shown_name(self) -> str:
        """Its title, or else its name."""
        return self.title or self.name

    @cached_property
    def samples(self) -> np.ndarray:
        """(n, K, [Z,] H, W) uint8: the set of masks to look at."""
        return self.pool if self.chosen is None else self.pool[list(self.chosen)]

    @property
    def volume(self) -> bool:
        """Whether it is a volume, and not one 2D image."""
        return not self.grid.planar

    @property
    def one_slice(self) -> bool:
        """Whether it is one slice of a volume, which has an area and no volume."""
        return self.volume and self.grid.shape[0] == 1

    @property
    def region(self) -> tuple[Range, ...] | None:
        """Which part of the image it is, one range per last axis; None: all of it."""
        return self.grid.ranges or None

    def whole(self, array: np.ndarray) -> np.ndarray:
        """(..., [Z,] H, W) of the region -> the same on the grid of the whole image, with 0 around it."""
        return self.grid.placed(array)

    @cached_property
    def saliency(self) -> np.ndarray:
        """(K, [Z,] H, W) float32: the share of the samples in which a pixel is marked."""
        return self.pool.mean(0, dtype=np.float32)

    @cached_property
    def variance(self) -> np.ndarray:
        """(K, [Z,] H, W) float32 over the samples: of 0 and 1, p (1 - p)."""
        return self.saliency * (1 - self.saliency)

    def mask(self, threshold: float = 0.5) -> np.ndarray:
        """(K, [Z,] H, W) uint8: marked in more than this share of the samples."""
        return more_than(self.saliency, threshold).astype(np.uint8)

    @property
    def one_map(self) -> bool:
        """Whether a label map can hold the targets: several of them, nested or exclusive."""
        return Targets(self.targets, self.kind).one_map

    def majority(self) -> np.ndarray:
        """(K, [Z,] H, W) uint8: `mask`; of exclusive targets, each where it is the likeliest class, background too."""
        return Targets(self.targets, self.kind).answer(self.pool)

    def label_map(self) -> np.ndarray:
        """([Z,] H, W) uint8: the majority as 0 for the background and k + 1 for target k; of nested targets the
        innermost. For independent targets, which may overlap, there is none."""
        if not self.one_map:
            raise ValueError(f"label_map: expected several nested or exclusive targets, found {self.kind} ones")
        return label_map(self.majority())

    def contours(self, levels: Sequence[float] = (0.25, 0.5, 0.75)) -> np.ndarray:
        """(L, K, [Z,] H, W) uint8: `mask` at each level. Each lies inside the one before it."""
        return np.stack([self.mask(level) for level in levels])

    def representatives(self, k: int = 3) -> list[Representative]:
        """At most k of the samples that represent all, each with its frequency, the most frequent first."""
        return representatives(self.pool, k)

    @cached_property
    def _measurements(self) -> dict[str, dict[str, Any]]:
        pool, spacing = self.pool, self.grid.spacing
        apart = disagreement(pool)
        if self.one_slice:
            pool, spacing = pool[:, :, 0], spacing[1:]
        each = ((k, target, measure(pool[:, k], spacing)) for k, target in enumerate(self.targets))
        return {target: {**measured, "disagreement": apart[k]} for k, target, measured in each}

    def measurements(self) -> dict[str, dict[str, Any]]:
        """For each target: the shares of samples that mark anything and nothing; area (of one slice too) or volume, and
        longest diameter, with quantiles among those that mark; and how much the samples disagree
        (`representatives.disagreement`)."""
        return self._measurements

    def plot(self) -> "Image":
        """The panel as a picture: image, raters where known, samples, saliency, variance and representative masks."""
        from berdiff.output.panels import result_panel  # a look outwards: how it is shown is not known here

        return result_panel(self)

    def save(
        self,
        path: str | Path,
        write: Sequence[str] = (),
        representatives: int = 3,
        anonymous: bool = False,
    ) -> list[Path]:
        """Write it, whole or not at all, and return the files.

        A new folder gets what `berdiff segment --write` writes (its kinds in `write`; none: by the kind of input). A
        name that ends in .nii.gz, .png, .html, .json or .npz gets that alone: the mask, the panel, the report, the
        measurements, or the arrays.
        """
        from berdiff.output.exports import save  # as in `plot`

        return save(self, path, write, representatives, anonymous)

    def __repr__(self) -> str:
        """Its grid; of each target how many samples mark it, and the size among those that do."""
        solid, spacing = self.volume and not self.one_slice, self.grid.spacing
        axes = spacing if solid else spacing[-2:]
        known = bool(np.isfinite(axes).all())
        unit = ("mm^3" if solid else "mm^2") if known else ("voxels" if solid else "pixels")
        mm = f", {'x'.join(f'{length:.3g}' for length in spacing)} mm" if np.isfinite(spacing).all() else ""
        whole = f" of {by(self.grid.whole.shape)}" if self.grid.whole else ""
        lines = [f"Result {self.name}: {by(self.grid.shape)}{whole} {'voxels' if self.volume else 'pixels'}{mm}"]
        lines.append(f"  {len(self.pool)} samples by the model {self.settings.get('model', 'without a name')}")
        for k, target in enumerate(self.targets):
            counts = self.pool[:, k].reshape(len(self.pool), -1).sum(1, dtype=np.int64)
            line = f"  {target}: marked by {(counts > 0).mean():.0%} of the samples"
            if counts.any():
                sizes = counts[counts > 0] * (float(np.prod(axes)) if known else 1)
                low, middle, high = (f"{size:.4g}" for size in np.quantile(sizes, QUANTILES))
                line += f", {'volume' if solid else 'area'} there {middle} {unit} (5 to 95 %: {low} to {high})"
            lines.append(line)
        return "\n".join(lines)

    def _repr_png_(self) -> bytes:
        """What a notebook shows: the panel."""
        picture = io.BytesIO()
        self.plot().save(picture, format="png")
        return picture.getvalue()
