"""Metrics of the saliency, the mean of the samples, against the mean of the raters: Dice and calibration.

A pixel matters only by how many samples and how many raters mark it, so each case is first reduced to a small table of
pixel counts, exact whole numbers, and every metric is a sum over that table.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from berdiff.errors import InputError
from berdiff.metrics.inputs import binary, check
from berdiff.targets.targets import likeliest, more_than

SOFT_DICE_THRESHOLDS = (0.1, 0.3, 0.5, 0.7, 0.9)
# A saliency of 0 or 1 would make one contrary pixel cost infinitely much.
NLL_EPS = 1e-6


@dataclass(frozen=True, eq=False)
class Votes:
    """Pixels of B cases and K targets, counted by their votes."""

    pixels: Tensor  # (B, K, n + 1, R + 1) int64: how many pixels i samples and j raters mark
    raters: Tensor  # (B,): how many of the R raters a case has

    @classmethod
    def of(cls, samples: Tensor, masks: Tensor, raters: Tensor | None = None) -> "Votes":
        """samples `(B, n, K, *S)`, masks `(B, R, K, *S)`, raters `(B,)` or None for R everywhere."""
        raters = check(samples, masks, raters)
        b, n, k = samples.shape[:3]
        r = masks.shape[1]
        cell = votes(samples, "samples").astype(np.int64) * (r + 1) + _rated(masks, raters)
        cell += (np.arange(b * k) * (n + 1) * (r + 1)).reshape(b, k, *[1] * (cell.ndim - 2))
        pixels = np.bincount(cell.ravel(), minlength=b * k * (n + 1) * (r + 1)).reshape(b, k, n + 1, r + 1)
        return cls(torch.as_tensor(pixels), raters)

    @property
    def n(self) -> int:
        """How many samples there are."""
        return self.pixels.shape[2] - 1

    @property
    def saliency(self) -> Tensor:
        """The share of the samples in each row of the table `(1, 1, n + 1, 1)`."""
        return (torch.arange(self.n + 1).double() / self.n).reshape(1, 1, -1, 1)

    @property
    def rater_mean(self) -> Tensor:
        """The share of the raters in each column of the table `(B, 1, 1, R + 1)`."""
        marks = torch.arange(self.pixels.shape[3]).double()
        return (marks / self.raters[:, None]).reshape(-1, 1, 1, len(marks))

    def dice_counts(self, threshold: float = 0.5) -> Tensor:
        """Pixels `(B, K, 3)` in both, in the saliency above the threshold, in the rater mean above it."""
        predicted, truth = more_than(self.saliency, threshold), more_than(self.rater_mean, threshold)
        chosen = [predicted & truth, predicted, truth]
        return torch.stack([(self.pixels * cells).sum((-2, -1)) for cells in chosen], -1)

    def soft_dice(self) -> Tensor:
        """Mean over thresholds of the Dice of saliency against rater mean, both cut there: `(B, K)`."""
        return torch.stack([dice_from_counts(self.dice_counts(cut)) for cut in SOFT_DICE_THRESHOLDS]).mean(0)

    def ece(self, bins: int = 10) -> Tensor:
        """Bin i holds the saliencies in [i / bins, (i + 1) / bins), the last one also 1."""
        gap = (self.pixels * (self.saliency - self.rater_mean)).sum(-1)  # (B, K, n + 1)
        # in whole numbers, so that no saliency is rounded into the wrong bin
        index = (torch.arange(self.n + 1) * bins // self.n).clamp(max=bins - 1)
        total = torch.zeros(*gap.shape[:2], bins, dtype=gap.dtype).index_add_(-1, index, gap)
        return total.abs().sum(-1) / self._all()

    def brier(self) -> Tensor:
        """Mean squared difference of saliency and rater mean: `(B, K)`."""
        return self._mean((self.saliency - self.rater_mean).square())

    def nll(self, eps: float = NLL_EPS) -> Tensor:
        """Cross-entropy of the raters under the saliency kept in [eps, 1 - eps], nats per pixel: `(B, K)`."""
        p, y = self.saliency.clamp(eps, 1 - eps), self.rater_mean
        return -self._mean(y * p.log() + (1 - y) * (1 - p).log())

    def _mean(self, values: Tensor) -> Tensor:
        return (self.pixels * values).sum((-2, -1)) / self._all()

    def _all(self) -> Tensor:
        return self.pixels.sum((-2, -1))


def votes(masks: Tensor, name: str = "masks") -> np.ndarray:
    """(B, m, K, *S) -> (B, K, *S): how many of the m masks mark a pixel, in the smallest integers that hold it."""
    return np.add.reduce(binary(masks, name).numpy(), axis=1, dtype=np.min_scalar_type(masks.shape[1]))


def _rated(masks: Tensor, raters: Tensor) -> np.ndarray:
    """`votes` of each case's own raters."""
    present = (torch.arange(masks.shape[1]) < raters[:, None]).to(masks.dtype)
    return votes(masks.cpu() * expanded(present, masks.ndim), "masks")


def expanded(values: Tensor, ndim: int) -> Tensor:
    """With axes of 1 behind, up to `ndim` of them."""
    return values.reshape(*values.shape, *[1] * (ndim - values.ndim))


def dice_from_counts(counts: Tensor) -> Tensor:
    """Counts `(..., 3)` of `dice_counts` -> Dice `(...)` float64; two empty masks have Dice 1."""
    both, predicted, truth = counts.double().unbind(-1)
    total = predicted + truth
    return torch.where(total > 0, 2 * both / total.clamp(min=1), 1.0)


def saliency(samples: Tensor) -> Tensor:
    """samples `(B, n, K, *S)` -> the share of samples that mark a pixel `(B, K, *S)` float64."""
    return torch.as_tensor(votes(samples, "samples").astype(np.float64) / samples.shape[1])


def dice_counts(samples: Tensor, masks: Tensor, raters: Tensor | None = None) -> Tensor:
    """Pixels `(B, K, 3)` int64 that are in both, in the saliency above 0.5, in the raters' majority.

    Counts add up over slices, so the Dice of a volume is `dice_from_counts` of their sum.
    """
    return Votes.of(samples, masks, raters).dice_counts()


def likeliest_counts(samples: Tensor, masks: Tensor, raters: Tensor | None = None) -> Tensor:
    """`dice_counts` of exclusive targets: pixels `(B, K, 3)` int64 that are in both, in the likeliest class of the
    samples (`likeliest`), in the raters' majority.
    """
    raters = check(samples, masks, raters)
    marks = votes(samples, "samples").astype(np.int64)  # (B, K, *S)
    if marks.size and marks.sum(1).max() > samples.shape[1]:
        raise InputError("samples: of exclusive targets a pixel has two")
    predicted = likeliest(marks, samples.shape[1])
    truth = more_than(_rated(masks, raters) / expanded(raters, marks.ndim).numpy())
    chosen = (predicted & truth, predicted, truth)
    return torch.stack([torch.as_tensor(of).flatten(2).sum(-1) for of in chosen], -1)
