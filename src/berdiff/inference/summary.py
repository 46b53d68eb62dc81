"""Many masks in a few numbers: which of them stand for all, and how large the finding is."""

from itertools import combinations
from math import comb
from typing import Any, NamedTuple

import numpy as np

QUANTILES = (0.05, 0.5, 0.95)
_MOST_SUBSETS = 20_000  # up to here every choice of medoids is tried


class Representative(NamedTuple):
    """A sample that stands for those it is the nearest to."""

    mask: np.ndarray  # (K, [Z,] H, W) uint8
    frequency: float  # the share of the samples that are nearest to it; all frequencies add up to 1
    index: int  # its place among the samples


# --- which masks stand for all ---------------------------------------------------------------------------------------


def representatives(samples: np.ndarray, k: int = 3) -> list[Representative]:
    """The k medoids of samples `(n, K, [Z,] H, W)` by 1 - IoU (averaged over targets), the most frequent first.

    Fewer than k where fewer samples differ. A sample that is equally near to two goes to the one of lower index.
    """
    if k < 1:
        raise ValueError(f"k: expected at least 1 representative, found {k}")
    distance = iou_distance(samples)
    first, copies = _distinct(distance)
    k = min(k, len(first))
    among = distance[np.ix_(first, first)]
    chosen = first[_medoids(among, copies, k)]
    nearest = distance[:, chosen].argmin(1)
    counts = np.bincount(nearest, minlength=k)
    order = sorted(range(k), key=lambda i: (-counts[i], chosen[i]))
    return [Representative(samples[chosen[i]], float(counts[i] / len(samples)), int(chosen[i])) for i in order]


def iou_distance(samples: np.ndarray) -> np.ndarray:
    """(n, n): 1 - IoU of each two samples, averaged over the targets; two empty masks have IoU 1."""
    import torch

    from berdiff.metrics.pairs import Pairs

    n, targets = samples.shape[:2]
    stacked = torch.from_numpy(np.ascontiguousarray(samples)).reshape(1, n, targets, -1, samples.shape[-1])
    return 1 - Pairs.of(stacked, stacked[:, :1]).iou[0, :, :n, :n].mean(0)


def _distinct(distance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first of each set of equal samples, and how many there are of each."""
    of_sample = (distance == 0).argmax(1)
    return np.unique(of_sample, return_counts=True)


def _medoids(distance: np.ndarray, copies: np.ndarray, k: int) -> np.ndarray:
    """The k places (rising) with the least sum of distances of all to the nearest: exact where that is affordable."""
    if comb(len(distance), k) <= _MOST_SUBSETS:
        subsets = np.array(list(combinations(range(len(distance)), k)))
        cost = copies @ distance[:, subsets].min(-1)
        return subsets[cost.argmin()]
    return _swapped(distance, copies, k)


def _swapped(distance: np.ndarray, copies: np.ndarray, k: int) -> np.ndarray:
    """Build greedily, then swap while it helps (Kaufman and Rousseeuw's PAM): no swap of one medoid is better."""
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


# --- how large it is -------------------------------------------------------------------------------------------------


def measure(masks: np.ndarray, spacing: tuple[float, ...]) -> dict[str, Any]:
    """Of masks `(n, [Z,] H, W)` of one target, over all n samples (an empty one has size 0):

    `finding_probability`: the share that is not empty;
    `area` (of a volume: `volume`) and `longest_diameter`: {"unit", "q05", "q50", "q95"}.

    Where the spacing is unknown the unit is the pixel ("px", "px^2"; of a volume "voxel"). It is the pixel for the
    whole of a measure or not at all: a volume with known pixels but unknown slices has its diameters in mm.
    """
    known = bool(np.isfinite(spacing).all())
    known_plane = bool(np.isfinite(spacing[-2:]).all())
    plane = spacing[-2:] if known_plane else (1.0, 1.0)
    counts = masks.reshape(len(masks), -1).sum(1, dtype=np.int64)
    if masks.ndim == 4:
        size, unit = "volume", "mm^3" if known else "voxel"
    else:
        size, unit = "area", "mm^2" if known else "px^2"
    sizes = counts * float(np.prod(spacing)) if known else counts.astype(float)
    diameters = np.array([longest_diameter(mask, (plane[0], plane[1])) for mask in masks])
    return {
        "finding_probability": float((counts > 0).mean()),
        size: {"unit": unit, **_quantiles(sizes)},
        "longest_diameter": {"unit": "mm" if known_plane else "px", **_quantiles(diameters)},
    }


def longest_diameter(mask: np.ndarray, spacing: tuple[float, float]) -> float:
    """The longest in-plane diameter of a mask `([Z,] H, W)`, in the unit of `spacing` (row, column); 0 if it is empty.

    It is the largest distance of two pixel corners of one connected piece (by edge or corner) in one slice: from outer
    edge to outer edge, as calipers have it, so that a single pixel has the length of its diagonal.
    """
    from scipy import ndimage

    longest = 0.0
    for plane in mask if mask.ndim == 3 else mask[None]:
        if not plane.any():
            continue
        pieces = np.zeros(plane.shape, np.int32)
        ndimage.label(plane, structure=np.ones((3, 3)), output=pieces)
        boxes = ndimage.find_objects(pieces)
        sides = np.array([[rows.stop - rows.start, columns.stop - columns.start] for rows, columns in boxes])
        most = np.hypot(*(sides * spacing).T)  # a piece is no longer than the diagonal of its box
        for place in np.argsort(-most, kind="stable"):
            if most[place] <= longest:
                break  # nor is any after it: a mask of many specks costs no more than one of few
            longest = max(longest, _caliper(pieces[boxes[place]] == place + 1, spacing))
    return longest


def _caliper(piece: np.ndarray, spacing: tuple[float, float]) -> float:
    """The largest distance of two corners. Only a row's outermost corners can be ends of it."""
    rows = np.flatnonzero(piece.any(1))
    left = piece[rows].argmax(1)
    right = piece.shape[1] - piece[rows, ::-1].argmax(1)
    ends = np.stack([np.concatenate([rows, rows, rows + 1, rows + 1]), np.concatenate([left, right, left, right])], 1)
    points = np.unique(ends, axis=0) * np.asarray(spacing)
    return float(np.sqrt(((points[:, None] - points[None]) ** 2).sum(-1).max()))


def _quantiles(values: np.ndarray) -> dict[str, float]:
    return {f"q{round(100 * q):02d}": float(np.quantile(values, q)) for q in QUANTILES}
