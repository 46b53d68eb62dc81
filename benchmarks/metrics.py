"""GED 16 and HM-IoU 16 of a whole LIDC test set: `berdiff.metrics` against pair-by-pair NumPy, in one run.

The loop is what public evaluation code does: one `logical_and` and one `logical_or` per pair; GED visits every entry of
its three matrices, HM-IoU repeats the masks to the lcm and then visits every pair of the square. A second, leaner loop
repeats the matrix instead of the masks. They are timed on a few cases, evenly spread, and scaled to all; ours is
timed on all. All see the same masks and must give the same numbers.
"""

import math
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from berdiff import metrics

CASES, SAMPLES, READERS, SIZE = 1622, 16, 4, 128
LOOPED = 32  # cases the loop is timed on


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


def looped(samples: np.ndarray, masks: np.ndarray, lean: bool) -> tuple[float, float]:
    """(GED, HM-IoU) of one case, masks (n, H, W) and (R, H, W)."""
    d_sy = np.mean([1 - iou(s, y) for s in samples for y in masks])
    d_ss = np.mean([1 - iou(s, t) for s in samples for t in samples])
    d_yy = np.mean([1 - iou(y, z) for y in masks for z in masks])
    side = math.lcm(len(samples), len(masks))
    each_s, each_y = side // len(samples), side // len(masks)
    if lean:
        square = np.array([[iou(s, y) for y in masks] for s in samples])
        square = np.repeat(np.repeat(square, each_s, 0), each_y, 1)
    else:
        left, right = np.repeat(samples, each_s, 0), np.repeat(masks, each_y, 0)
        square = np.array([[iou(s, y) for y in right] for s in left])
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
    """How many times faster than each loop, and the seconds of each for all cases."""
    rng = np.random.default_rng(0)
    samples, masks = nodules(rng, CASES, SAMPLES), nodules(rng, CASES, READERS)
    s, y = torch.from_numpy(samples), torch.from_numpy(masks)
    chosen = np.linspace(0, CASES - 1, LOOPED).astype(int)

    def loop(lean: bool) -> np.ndarray:
        return np.array([looped(samples[i, :, 0], masks[i, :, 0], lean) for i in chosen])

    def ours() -> np.ndarray:
        pairs = metrics.Pairs.of(s, y)
        return np.stack([pairs.ged()[:, 0], pairs.hm_iou()[:, 0]], 1)

    our_seconds, fast = best_of(3, ours)
    out = {"metrics_s": our_seconds}
    for name, lean in (("loops", False), ("lean_loops", True)):
        seconds, slow = best_of(3, partial(loop, lean))
        out[f"{name}_s"] = seconds * CASES / LOOPED
        out[f"metrics_vs_{name}"] = out[f"{name}_s"] / our_seconds
        difference = float(np.abs(fast[chosen] - slow).max())
        if difference > 1e-9:
            raise RuntimeError(f"{name} and the metrics differ by {difference}")
    return out


if __name__ == "__main__":
    for name, value in metrics_vs_loops().items():
        print(f"{name}: {value:.3g}")
