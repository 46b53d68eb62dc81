"""GED 16 and HM-IoU 16 of a whole LIDC test set: `berdiff.metrics` against pair-by-pair NumPy, in one run.

The loop is what public evaluation code does: one `logical_and` and one `logical_or` a pair, every pair of GED visited
once a matrix entry, the matched IoUs by SciPy on the repeated square. It is timed on a few cases, evenly spread, and
scaled to all of them; ours is timed on all. Both see the same masks and must give the same numbers.
"""

import math
import time
from collections.abc import Callable

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from berdiff import metrics

CASES, SAMPLES, READERS, SIZE = 1622, 16, 4, 128
LOOPED = 48  # cases the loop is timed on


def nodules(rng: np.random.Generator, cases: int, masks: int) -> np.ndarray:
    """Disc-like nodules near the centre, of LIDC's sizes; 38 % of the masks are empty: (cases, masks, 1, H, W)."""
    axis = np.arange(SIZE) - SIZE / 2
    centre = rng.normal(0, 3, (cases, 1, 2)) + rng.normal(0, 1, (cases, masks, 2))
    radius = np.clip(rng.lognormal(1.9, 0.45, (cases, 1)) * rng.uniform(0.8, 1.2, (cases, masks)), 2, 30)
    radius *= rng.random((cases, masks)) > 0.38
    out = np.empty((cases, masks, 1, SIZE, SIZE), np.uint8)
    for i in range(cases):
        rows, columns = axis[:, None] - centre[i, :, :1, None], axis - centre[i, :, 1:, None]
        out[i, :, 0] = rows**2 + columns**2 < radius[i, :, None, None] ** 2
    return out


def iou(a: np.ndarray, b: np.ndarray) -> float:
    union = np.logical_or(a, b).sum()
    return 1.0 if union == 0 else np.logical_and(a, b).sum() / union


def looped(samples: np.ndarray, masks: np.ndarray) -> tuple[float, float]:
    """(GED, HM-IoU) of one case, masks (n, H, W) and (R, H, W)."""
    d_sy = np.mean([1 - iou(s, y) for s in samples for y in masks])
    d_ss = np.mean([1 - iou(s, t) for s in samples for t in samples])
    d_yy = np.mean([1 - iou(y, z) for y in masks for z in masks])
    side = math.lcm(len(samples), len(masks))
    matrix = np.array([[iou(s, y) for y in masks] for s in samples])
    square = np.repeat(np.repeat(matrix, side // len(samples), 0), side // len(masks), 1)
    rows, columns = linear_sum_assignment(-square)
    return 2 * d_sy - d_ss - d_yy, square[rows, columns].mean()


def best_of(repeats: int, work: Callable[[], np.ndarray]) -> tuple[float, np.ndarray]:
    """(seconds of the fastest run, its result): the same courtesy for both sides."""
    fastest, result = math.inf, np.empty(0)
    for _ in range(repeats):
        started = time.perf_counter()
        result = work()
        fastest = min(fastest, time.perf_counter() - started)
    return fastest, result


def metrics_vs_loops() -> dict[str, float]:
    """How many times faster, the seconds of each for all cases, and the largest difference of their values."""
    rng = np.random.default_rng(0)
    samples, masks = nodules(rng, CASES, SAMPLES), nodules(rng, CASES, READERS)
    s, y = torch.from_numpy(samples), torch.from_numpy(masks)
    chosen = np.linspace(0, CASES - 1, LOOPED).astype(int)

    def loop() -> np.ndarray:
        return np.array([looped(samples[i, :, 0], masks[i, :, 0]) for i in chosen])

    def ours() -> np.ndarray:
        pairs = metrics.Pairs.of(s, y)
        return np.stack([pairs.ged()[:, 0], pairs.hm_iou()[:, 0]], 1)

    loop_seconds, slow = best_of(3, loop)
    loop_seconds *= CASES / LOOPED
    our_seconds, fast = best_of(3, ours)
    difference = float(np.abs(fast[chosen] - slow).max())
    if difference > 1e-9:
        raise RuntimeError(f"the loop and the metrics differ by {difference}")
    return {
        "metrics_vs_loops": loop_seconds / our_seconds,
        "loops_s": loop_seconds,
        "metrics_s": our_seconds,
        "largest_difference": difference,
    }


if __name__ == "__main__":
    for name, value in metrics_vs_loops().items():
        print(f"{name}: {value:.3g}")
