"""Metrics of the saliency, the mean of the samples, against the mean of the readers: Dice and calibration.

"More than" is the one rule for turning a mean into a mask, for samples and readers alike, as the public code of soft
Dice does: at 0.5 it is the majority, and two readers of four are not one.
"""

import torch
from torch import Tensor

from berdiff.metrics.inputs import binary, check

SOFT_DICE_THRESHOLDS = (0.1, 0.3, 0.5, 0.7, 0.9)
# A saliency of 0 or 1 would make one contrary pixel cost infinitely much.
NLL_EPS = 1e-6


def saliency(samples: Tensor) -> Tensor:
    """samples `(B, n, K, H, W)` -> the share of samples that mark a pixel `(B, K, H, W)` float64."""
    return binary(samples, "samples").sum(1, dtype=torch.int64).double() / samples.shape[1]


def reader_mean(masks: Tensor, raters: Tensor) -> Tensor:
    """masks `(B, R, K, H, W)`, readers `(B,)` -> the share of readers that mark a pixel `(B, K, H, W)` float64."""
    present = torch.arange(masks.shape[1]) < raters[:, None]
    marked = (binary(masks, "masks") * present[:, :, None, None, None]).sum(1, dtype=torch.int64)
    return marked.double() / raters[:, None, None, None]


def dice_counts(samples: Tensor, masks: Tensor, raters: Tensor | None = None, threshold: float = 0.5) -> Tensor:
    """Pixels `(B, K, 3)` int64 that are in both, in the thresholded saliency, in the readers' majority.

    Counts add up over slices, so the Dice of a volume is `dice_from_counts` of their sum.
    """
    p, y = _means(samples, masks, raters)
    return _counts(p > threshold, y > threshold)


def dice_from_counts(counts: Tensor) -> Tensor:
    """Counts `(..., 3)` of `dice_counts` -> Dice `(...)` float64; two empty masks have Dice 1."""
    both, predicted, truth = counts.double().unbind(-1)
    total = predicted + truth
    return torch.where(total > 0, 2 * both / total.clamp(min=1), 1.0)


def dice(samples: Tensor, masks: Tensor, raters: Tensor | None = None) -> Tensor:
    """Dice of the saliency above 0.5 against the readers' majority (one reader: that reader): `(B, K)` float64."""
    return dice_from_counts(dice_counts(samples, masks, raters))


def soft_dice(samples: Tensor, masks: Tensor, raters: Tensor | None = None) -> Tensor:
    """Mean over thresholds of the Dice of saliency against reader mean, both cut there: `(B, K)` float64."""
    p, y = _means(samples, masks, raters)
    return torch.stack([dice_from_counts(_counts(p > cut, y > cut)) for cut in SOFT_DICE_THRESHOLDS]).mean(0)


def ece(samples: Tensor, masks: Tensor, raters: Tensor | None = None, bins: int = 10) -> Tensor:
    """Expected calibration error of the saliency over the pixels of one case: `(B, K)` float64.

    Bin i holds the saliencies in [i / bins, (i + 1) / bins), the last one also 1.
    """
    p, y = _means(samples, masks, raters)
    n = samples.shape[1]
    votes = (p * n).round().to(torch.int64)  # whole numbers, so that no saliency is rounded into the wrong bin
    index = (votes * bins // n).clamp(max=bins - 1).flatten(2)
    gap = torch.zeros(*p.shape[:2], bins, dtype=torch.float64).scatter_add_(-1, index, (p - y).flatten(2))
    return gap.abs().sum(-1) / index.shape[-1]


def brier(samples: Tensor, masks: Tensor, raters: Tensor | None = None) -> Tensor:
    """Mean squared difference of saliency and reader mean over the pixels of one case: `(B, K)` float64."""
    p, y = _means(samples, masks, raters)
    return (p - y).square().mean((-2, -1))


def nll(samples: Tensor, masks: Tensor, raters: Tensor | None = None, eps: float = NLL_EPS) -> Tensor:
    """Cross-entropy of the readers under the saliency, kept in [eps, 1 - eps], nats a pixel: `(B, K)` float64."""
    p, y = _means(samples, masks, raters)
    p = p.clamp(eps, 1 - eps)
    return -(y * p.log() + (1 - y) * (1 - p).log()).mean((-2, -1))


def _means(samples: Tensor, masks: Tensor, raters: Tensor | None) -> tuple[Tensor, Tensor]:
    raters = check(samples, masks, raters)
    return saliency(samples), reader_mean(masks, raters)


def _counts(predicted: Tensor, truth: Tensor) -> Tensor:
    return torch.stack([(predicted & truth).sum((-2, -1)), predicted.sum((-2, -1)), truth.sum((-2, -1))], dim=-1)
