"""GED, HM-IoU, Dice and calibration, by written conventions (docs/metrics.md).

samples `(B, n, K, H, W)` and masks `(B, R, K, H, W)` of 0 and 1 -> one value per case and target, `(B, K)`. The
empty or non-empty decision over many cases is in `berdiff.metrics.finding`.
"""

from berdiff.metrics.limit import ged_limit
from berdiff.metrics.pairs import Pairs, d_max, ged, ged_unbiased, hm_iou
from berdiff.metrics.votes import (
    Votes,
    brier,
    dice,
    dice_counts,
    dice_from_counts,
    ece,
    likeliest,
    likeliest_counts,
    more_than,
    nll,
    saliency,
    soft_dice,
)

__all__ = [
    "Pairs",
    "Votes",
    "brier",
    "d_max",
    "dice",
    "dice_counts",
    "dice_from_counts",
    "ece",
    "ged",
    "ged_limit",
    "ged_unbiased",
    "hm_iou",
    "likeliest",
    "likeliest_counts",
    "more_than",
    "nll",
    "saliency",
    "soft_dice",
]
