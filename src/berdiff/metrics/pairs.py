"""Metrics that compare masks two by two: GED, HM-IoU and D_max, all from one matrix of overlaps per case.

No pair is ever visited in Python. The intersections of all n samples and R raters are one matrix product of the masks
with themselves, and only over the pixels that any of the masks touches: the others add nothing to any intersection or
area, and in medical images they are most of the picture. Everything happens on the CPU, where the assignment of HM-IoU
is solved anyway.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from berdiff.errors import InputError
from berdiff.metrics.inputs import as_bytes, check, not_binary

# Sums of 0 and 1 are exact in float32 up to here, in whatever order a matrix product adds them.
EXACT_IN_FLOAT32 = 2**24


@dataclass(frozen=True, eq=False)
class Pairs:
    """All overlaps of B cases and K targets. Index 0..n-1 of the last two axes are samples, the rest are raters."""

    intersections: np.ndarray  # (B, K, n + R, n + R), pixels; the diagonal holds the areas
    n: int
    raters: np.ndarray  # (B,): how many of the R raters a case has

    @classmethod
    def of(cls, samples: Tensor, masks: Tensor, raters: Tensor | None = None) -> "Pairs":
        """samples `(B, n, K, *S)`, masks `(B, R, K, *S)`, raters `(B,)` or None for R everywhere."""
        raters = check(samples, masks, raters)
        s, y = _flat(as_bytes(samples, "samples")), _flat(as_bytes(masks, "masks"))
        (b, k, n, _), r = s.shape, y.shape[2]
        intersections = np.empty((b, k, n + r, n + r))
        for place in np.ndindex(b, k):
            intersections[place] = _overlaps(s[place], y[place])
        return cls(intersections, n, raters.numpy())

    def subset(self, places: np.ndarray) -> "Pairs":
        """The samples at `places`, `(B, m)` or `(m,)` for every case, against the same raters; one may come twice."""
        count, last = len(self.intersections), int(self.intersections.shape[-1])
        chosen = np.broadcast_to(places, (count, np.shape(places)[-1]))
        index = np.concatenate([chosen, np.broadcast_to(np.arange(self.n, last), (count, last - self.n))], 1)
        rows = np.take_along_axis(self.intersections, index[:, None, :, None], 2)
        return Pairs(np.take_along_axis(rows, index[:, None, None, :], 3), chosen.shape[1], self.raters)

    @cached_property
    def area(self) -> np.ndarray:
        """(B, K, n + R), pixels."""
        return np.diagonal(self.intersections, axis1=-2, axis2=-1)

    @cached_property
    def iou(self) -> np.ndarray:
        """(B, K, n + R, n + R); two empty masks have IoU 1."""
        union = self.area[..., :, None] + self.area[..., None, :] - self.intersections
        return _ratio(self.intersections, union)

    @cached_property
    def weight(self) -> np.ndarray:
        """(B, R): 1 / raters for the raters of a case, 0 for the padding."""
        rater = np.arange(int(self.intersections.shape[-1]) - self.n)
        return np.asarray((rater < self.raters[:, None]) / self.raters[:, None])

    def d_sy(self) -> np.ndarray:
        """(B, K): mean distance 1 - IoU of a sample to a rater."""
        return 1 - np.einsum("bkr,br->bk", self.iou[:, :, : self.n, self.n :].mean(-2), self.weight)

    def d_ss(self) -> np.ndarray:
        """(B, K): mean distance of two samples over ALL pairs, each with itself included."""
        return 1 - self.iou[:, :, : self.n, : self.n].mean((-2, -1))

    def d_ss_distinct(self) -> np.ndarray:
        """(B, K): mean distance of two different samples; NaN where there is one."""
        return _over_distinct(self.d_ss(), self.n)

    @cached_property
    def d_yy(self) -> np.ndarray:
        """(B, K): mean distance of two raters over ALL pairs, each with itself included."""
        iou = self.iou[:, :, self.n :, self.n :]
        return 1 - np.einsum("bkqr,bq,br->bk", iou, self.weight, self.weight)

    @cached_property
    def d_raters(self) -> np.ndarray:
        """(B, K): D, the mean distance of two different raters; NaN where a case has one."""
        return _over_distinct(self.d_yy, self.raters[:, None])

    def size_gaps(self) -> tuple[np.ndarray, np.ndarray]:
        """(B, K) twice: the mean difference in pixels between the sizes of two different samples, and of two different
        raters; NaN where there is one. Unlike a standard deviation it does not depend on how many there are."""
        samples, raters = self.area[..., : self.n], self.area[..., self.n :]
        of_samples = np.abs(samples[..., :, None] - samples[..., None, :]).mean((-2, -1))
        gaps = np.abs(raters[..., :, None] - raters[..., None, :])
        of_raters = np.einsum("bkqr,bq,br->bk", gaps, self.weight, self.weight)
        return _over_distinct(of_samples, self.n), _over_distinct(of_raters, self.raters[:, None])

    def ged(self) -> np.ndarray:
        """(B, K): the squared generalised energy distance with d = 1 - IoU, over all pairs (V-statistic)."""
        return 2 * self.d_sy() - self.d_ss() - self.d_yy

    def ged_unbiased(self) -> np.ndarray:
        """(B, K): GED with the samples' own term over distinct pairs: its expectation does not depend on n >= 2. It may
        be negative for one case."""
        if self.n < 2:
            raise InputError("samples: the unbiased GED needs at least 2", "shape")
        return 2 * self.d_sy() - self.d_ss_distinct() - self.d_yy

    def hm_iou(self) -> np.ndarray:
        """(B, K): mean IoU of the best one-to-one matching, after repeating both sides to their lcm."""
        out = np.empty(self.intersections.shape[:2])
        for r in np.unique(self.raters):
            chosen = self.raters == r
            out[chosen] = matched_iou(self.iou[chosen, :, : self.n, self.n : self.n + r])
        return out

    def d_max(self) -> np.ndarray:
        """(B, K): each rater's best Dice among the samples, averaged; grows with n, so compare at equal n only."""
        total = self.area[..., : self.n, None] + self.area[..., None, self.n :]
        dice = _ratio(2 * self.intersections[:, :, : self.n, self.n :], total)
        return np.einsum("bkr,br->bk", dice.max(-2), self.weight)


def matched_iou(iou: np.ndarray) -> np.ndarray:
    """iou `(..., s, r)` -> `(...)`: the assignment is solved for each matrix, the rest is one array."""
    from scipy.optimize import linear_sum_assignment  # pyright: ignore  # no type stubs; not needed to segment

    *leading, s, r = iou.shape
    side = math.lcm(s, r)
    square = np.repeat(np.repeat(iou, side // s, axis=-2), side // r, axis=-1).reshape(-1, side, side)
    columns = np.empty((len(square), side, 1), dtype=np.intp)
    for i, matrix in enumerate(square):
        columns[i, :, 0] = linear_sum_assignment(matrix, maximize=True)[1]
    return np.take_along_axis(square, columns, -1).mean((-2, -1)).reshape(leading)


def _over_distinct(distance: np.ndarray, count: int | np.ndarray) -> np.ndarray:
    """The mean over all pairs of `count` masks, of which those of a mask with itself are 0, over distinct pairs."""
    others = np.asarray(count, dtype=np.float64) - 1
    return distance * count / np.where(others > 0, others, np.nan)


def _flat(x: Tensor) -> np.ndarray:
    """(B, m, K, *S) -> (B, K, m, pixels), in words of 8 pixels where they divide by 8; a view where K = 1."""
    flat = np.ascontiguousarray(x.transpose(1, 2).flatten(3).numpy())
    return flat.view(np.uint64) if flat.shape[-1] % 8 == 0 else flat


def _overlaps(s: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The intersections of n + R masks `(n + R, n + R)` in pixels, from words `(n, words)` and `(R, words)`."""
    touched = np.bitwise_or.reduce(s, 0)
    np.bitwise_or(touched, np.bitwise_or.reduce(y, 0), out=touched)
    where = (touched != 0).nonzero()[0]
    both = np.empty((len(s) + len(y), len(where)), s.dtype)
    np.take(s, where, 1, out=both[: len(s)], mode="clip")  # "clip" writes straight into `out`; no index is outside
    np.take(y, where, 1, out=both[len(s) :], mode="clip")
    pixels = both.view(np.uint8)
    # bits of several masks joined: above 1 if any of them is
    if len(where) and touched[where].view(np.uint8).max() > 1:
        name, x = ("samples", s) if pixels[: len(s)].max() > 1 else ("masks", y)
        raise not_binary(torch.as_tensor(x.view(np.uint8)), name)
    pixels = pixels.astype(np.float32 if pixels.shape[1] < EXACT_IN_FLOAT32 else np.float64)
    return pixels @ pixels.T


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole, and 1 where both are 0: two empty masks agree."""
    return np.divide(part, whole, out=np.ones_like(part), where=whole > 0)
