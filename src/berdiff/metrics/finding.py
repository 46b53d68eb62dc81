"""Is there a finding at all: the share p of a case's samples that are not empty against the share q of its raters.

With the distance [one is empty, the other is not], GED over all pairs is 2 (p - q)^2: what GED would be if all masks
that are not empty were alike. ECE and R^2 are of many cases; both follow from sums over cases, which a bootstrap can
resample.
"""

import numpy as np
from typing_extensions import TypedDict

from berdiff.metrics.pairs import Pairs

BINS = 10


class Bin(TypedDict):
    """The cases whose p is in [low, high), in the last bin also 1."""

    low: float
    high: float
    cases: int
    p: float | None  # means; None where there are no cases
    q: float | None


def finding_shares(pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
    """(p, q), each `(B, K)`: the share of the samples and of the case's raters that mark anything."""
    marked = pairs.area > 0
    return marked[..., : pairs.n].mean(-1), np.einsum("bkr,br->bk", marked[..., pairs.n :], pairs.weight)


def finding_ged(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """GED of the decision alone: 2 p (1 - q) + 2 q (1 - p) - 2 p (1 - p) - 2 q (1 - q) = 2 (p - q)^2."""
    return 2 * (p - q) ** 2


def finding_distance(q: np.ndarray, R: np.ndarray) -> np.ndarray:
    """The D of this decision, how often two different raters of R disagree; NaN where there is one rater."""
    return 2 * q * (1 - q) * R / np.where(R > 1, R - 1, np.nan)


def finding_sums(p: np.ndarray, q: np.ndarray, bins: int = BINS) -> np.ndarray:
    """What adds up over cases `(N, 4 + bins)`: 1, q, q^2, (p - q)^2, and p - q in the column of p's bin."""
    gaps = np.zeros((len(p), bins))
    gaps[np.arange(len(p)), _bin(p, bins)] = p - q
    return np.concatenate([np.stack([np.ones_like(q), q, q**2, (p - q) ** 2], 1), gaps], 1)


def finding_ece(sums: np.ndarray) -> np.ndarray:
    """Expected calibration error, of sums `(..., 4 + bins)`: |mean p - mean q| of each bin, weighted by its cases."""
    return np.abs(finding_gaps(sums)).sum(-1) / sums[..., 0]


def finding_gaps(sums: np.ndarray) -> np.ndarray:
    """The columns `(..., bins)` of sums `(..., 4 + bins)` that p - q adds up to in each bin."""
    return sums[..., 4:]


def finding_r2(sums: np.ndarray) -> np.ndarray:
    """1 - E[(p - q)^2] / Var(q), of sums `(..., 4 + bins)`; NaN where q does not vary."""
    count, q, q_squared, error = (sums[..., i] for i in range(4))
    spread = q_squared - q**2 / count
    return 1 - error / np.where(spread > 1e-9 * count, spread, np.nan)


def reliability(p: np.ndarray, q: np.ndarray, bins: int = BINS) -> list[Bin]:
    """Cases `(N,)` by their p: in a calibrated model both means of a bin agree."""
    place = _bin(p, bins)
    out: list[Bin] = []
    for i in range(bins):
        here = place == i
        of_p, of_q = (float(x[here].mean()) if here.any() else None for x in (p, q))
        out.append({"low": i / bins, "high": (i + 1) / bins, "cases": int(here.sum()), "p": of_p, "q": of_q})
    return out


def _bin(p: np.ndarray, bins: int) -> np.ndarray:
    return np.minimum((p * bins).astype(np.int64), bins - 1)
