"""GED, HM-IoU, Dice and calibration, by written conventions (docs/metrics.md).

samples `(B, n, K, *S)` and masks `(B, R, K, *S)` of 0 and 1, slices or volumes -> one value per case and target,
`(B, K)`. The empty or non-empty decision over many cases is in `berdiff.metrics.finding`.
"""

from berdiff.metrics.limit import ged_limit
from berdiff.metrics.pairs import Pairs
from berdiff.metrics.registry import (  # fmt: skip
    Compared,
    Metric,
    all_metrics,
    brier,
    d_max,
    dice,
    ece,
    find_metric,
    ged,
    ged_unbiased,
    hm_iou,
    nll,
    soft_dice,
)
from berdiff.metrics.votes import Votes, dice_counts, dice_from_counts, likeliest_counts, saliency
from berdiff.targets.targets import likeliest, more_than

__all__ = [
    "Compared", "Metric", "Pairs", "Votes", "all_metrics", "brier", "d_max", "dice", "dice_counts", "dice_from_counts",
    "ece", "find_metric", "ged", "ged_limit", "ged_unbiased", "hm_iou", "likeliest", "likeliest_counts", "more_than",
    "nll", "saliency", "soft_dice",
]  # fmt: skip
