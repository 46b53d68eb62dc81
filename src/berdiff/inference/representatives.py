"""Which few of many masks represent them all."""

from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np
import torch

from berdiff.metrics.pairs import Pairs

MAX_SUBSETS = 20_000  # up to here every choice of medoids is tried


class Representative(NamedTuple):
    """A sample that represents those it is the nearest to."""

    mask: np.ndarray  # (K, [Z,] H, W) uint8
    frequency: float  # the share of the samples that are nearest to it; all frequencies add up to 1
    index: int  # its place among the samples, which are the whole pool


def representatives(samples: np.ndarray, k: int = 3) -> list[Representative]:
    """The k medoids of samples `(n, K, [Z,] H, W)` by 1 - IoU (averaged over targets), the most frequent first; fewer
    where fewer samples differ. Of two equally near, the one of lower index counts."""
    if k < 1:
        raise ValueError(f"k: expected at least 1 representative, found {k}")
    distance = iou_distance(samples)
    # the first of each set of equal samples, and how many there are of each
    first, copies = np.unique((distance == 0).argmax(1), return_counts=True)
    k = min(k, len(first))
    chosen = first[_medoids(distance[np.ix_(first, first)], copies, k)]
    counts = np.bincount(distance[:, chosen].argmin(1), minlength=k)
    order = sorted(range(k), key=lambda i: (-counts[i], chosen[i]))
    return [Representative(samples[chosen[i]], float(counts[i] / len(samples)), int(chosen[i])) for i in order]


def iou_distance(samples: np.ndarray) -> np.ndarray:
    """(n, n): 1 - IoU of each two samples, averaged over the targets; two empty masks have IoU 1."""
    n = len(samples)
    return 1 - _pairs(samples).iou[0, :, :n, :n].mean(0)


def disagreement(samples: np.ndarray) -> list[float | None]:
    """For each target of samples `(n, K, [Z,] H, W)`, the mean of 1 - IoU over all pairs of different samples: 0 where
    all are the same (two empty masks are), 1 where no two share a pixel. None for one sample, which has no other."""
    each = _pairs(samples).d_ss_distinct()[0]
    return [None if np.isnan(value) else float(value) for value in each]


def _pairs(samples: np.ndarray) -> Pairs:
    n, targets = samples.shape[:2]
    stacked = torch.from_numpy(np.ascontiguousarray(samples)).reshape(1, n, targets, -1, samples.shape[-1])
    return Pairs.of(stacked, stacked[:, :1])


def _medoids(distance: np.ndarray, copies: np.ndarray, k: int) -> np.ndarray:
    """The k places (rising) with the smallest sum of distances to the nearest: exact where that is affordable."""
    if comb(len(distance), k) <= MAX_SUBSETS:
        subsets = np.array(list(combinations(range(len(distance)), k)))
        cost = copies @ distance[:, subsets].min(-1)
        return subsets[cost.argmin()]
    # Build greedily, then swap while it helps (Kaufman and Rousseeuw's PAM): no swap of one medoid is better.
    chosen: list[int] = []
    nearest = np.full(len(distance), np.inf)
    for _ in range(k):
        cost = copies @ np.minimum(nearest[:, None], distance)
        cost[chosen] = np.inf
        chosen.append(int(cost.argmin()))
        nearest = np.minimum(nearest, distance[:, chosen[-1]])
    best = float(copies @ nearest)
    while True:
        costs = np.empty((k, len(distance)))
        for place in range(k):
            others = distance[:, [c for i, c in enumerate(chosen) if i != place]].min(1, initial=np.inf)
            costs[place] = copies @ np.minimum(others[:, None], distance)
        place, new = np.unravel_index(costs.argmin(), costs.shape)
        if costs[place, new] >= best - 1e-9:  # rounding must not keep it going
            return np.sort(chosen)
        chosen[place], best = int(new), float(costs[place, new])
