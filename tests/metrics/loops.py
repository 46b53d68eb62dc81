"""Slow, obvious implementations of one case, one target: masks are lists of 2D NumPy arrays, visited pair by pair."""

import math

import numpy as np


def iou(a, b):
    union = np.logical_or(a, b).sum()
    return 1.0 if union == 0 else np.logical_and(a, b).sum() / union


def dice(a, b):
    total = a.sum() + b.sum()
    return 1.0 if total == 0 else 2 * np.logical_and(a, b).sum() / total


def mean_distance(xs, ys, distinct=False):
    pairs = [(i, j) for i in range(len(xs)) for j in range(len(ys)) if not (distinct and i == j)]
    return sum(1 - iou(xs[i], ys[j]) for i, j in pairs) / len(pairs)


def ged(samples, raters):
    return 2 * mean_distance(samples, raters) - mean_distance(samples, samples) - mean_distance(raters, raters)


def ged_unbiased(samples, raters):
    own = mean_distance(samples, samples, distinct=True)
    return 2 * mean_distance(samples, raters) - own - mean_distance(raters, raters)


def hm_iou_by_flow(samples, raters):
    """The same optimum as a transport plan: each sample sends 1/n, each rater receives 1/R; a linear programme."""
    from scipy.optimize import linprog

    n, r = len(samples), len(raters)
    gain = np.array([[iou(s, y) for y in raters] for s in samples])
    sends = np.kron(np.eye(n), np.ones(r))
    receives = np.kron(np.ones(n), np.eye(r))
    total = np.concatenate([np.full(n, 1 / n), np.full(r, 1 / r)])
    return -linprog(-gain.ravel(), A_eq=np.vstack([sends, receives]), b_eq=total).fun


def d_max(samples, raters):
    return sum(max(dice(s, y) for s in samples) for y in raters) / len(raters)


def soft_dice(samples, raters):
    p, y = np.mean(samples, axis=0), np.mean(raters, axis=0)
    return sum(dice(p > cut, y > cut) for cut in (0.1, 0.3, 0.5, 0.7, 0.9)) / 5


def majority_dice(samples, raters):
    height, width = samples[0].shape
    p, y = np.zeros((height, width), bool), np.zeros((height, width), bool)
    for i in range(height):
        for j in range(width):
            p[i, j] = 2 * sum(int(s[i, j]) for s in samples) > len(samples)
            y[i, j] = 2 * sum(int(m[i, j]) for m in raters) > len(raters)
    return dice(p, y)


def ece(samples, raters, bins=10):
    pixels: dict[int, list[tuple[float, float]]] = {}
    height, width = samples[0].shape
    for i in range(height):
        for j in range(width):
            votes = sum(int(s[i, j]) for s in samples)
            index = min(bins * votes // len(samples), bins - 1)
            pixels.setdefault(index, []).append((votes / len(samples), np.mean([m[i, j] for m in raters])))
    gaps = [len(b) * abs(np.mean([p for p, _ in b]) - np.mean([y for _, y in b])) for b in pixels.values()]
    return sum(gaps) / (height * width)


def brier(samples, raters):
    return ((np.mean(samples, axis=0) - np.mean(raters, axis=0)) ** 2).mean()


def nll(samples, raters, eps=1e-6):
    total = 0.0
    p = np.mean(samples, axis=0)
    for m in raters:  # the raters one by one: their mean cross-entropy is that of their mean
        for q, y in zip(p.ravel(), m.ravel(), strict=True):
            q = min(max(q, eps), 1 - eps)
            total -= math.log(q) if y else math.log(1 - q)
    return total / (len(raters) * p.size)
