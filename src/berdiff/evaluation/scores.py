"""The values of one case: what a model's samples score against its raters, on the whole image."""

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from berdiff.inference.sets import choose_set, set_rng
from berdiff.inference.settings import SetRule
from berdiff.metrics import Compared, all_metrics
from berdiff.metrics.finding import finding_shares
from berdiff.metrics.registry import Values
from berdiff.targets.kinds import Kind

Sets = dict[int, np.ndarray]  # m -> the places of the set of m masks in the pool, (B, m), or (m,) for every case

FINDING = ("finding_samples", "finding_raters")  # the shares of the samples and of the raters that are not empty
SIZE_GAPS = ("size_gap_samples", "size_gap_raters")  # of volumes alone: how far two of them differ in size

SUBSETS = (1, 4, 8, 16)


def subset_sizes(n: int) -> tuple[int, ...]:
    """The sample counts GED is given at: the paper's, as far as n goes, and n."""
    return (*(m for m in SUBSETS if m < n), n)


def choose_sets(pool: Compared, n: int, rule: SetRule, names: Sequence[str] = (), seed: int = 0) -> Sets:
    """The sets of 1, 4, ... n masks out of the samples of each case."""
    if rule == "independent":
        return {m: np.arange(m) for m in subset_sizes(n)}
    distance = 1 - pool.pairs.iou[:, :, : pool.pairs.n, : pool.pairs.n].mean(1)
    each = list(zip(pool.samples.numpy(), names, distance, strict=True))
    return {
        m: np.stack([choose_set(masks, m, rule, set_rng(seed, name), d) for masks, name, d in each])
        for m in subset_sizes(n)
    }


def score(pool: Compared, sets: Mapping[int, np.ndarray], kind: Kind = "independent") -> Values:
    """Every metric of a pool of samples and its sets of 1, 4, ... n masks; `kind` is that of the targets.

    Metrics of sets aside, all is of the whole pool, whose masks are independent.
    """
    n, size = max(sets), pool.pairs.n
    chosen = {m: pool if np.array_equal(places, np.arange(size)) else pool.subset(places) for m, places in sets.items()}
    out: Values = {}
    for metric in all_metrics():
        if metric.function is None or size < metric.least or metric.kind not in (None, kind):
            continue
        for of in chosen.values() if metric.of == "sets" else [chosen[n] if metric.of == "set" else pool]:
            out |= metric.columns(of)
    return out | dict(zip(FINDING, finding_shares(pool.pairs), strict=True))


def score_samples(samples: Tensor, masks: Tensor, raters: Tensor) -> Values:
    """Of independent samples `(B, n, K, *S)` against masks `(B, R, K, *S)`, raters `(B,)`; a set is the first."""
    pool = Compared(samples, masks, raters)
    return score(pool, choose_sets(pool, samples.shape[1], "independent"))


def of_samples(scores: Values) -> list[str]:
    """The metrics among the columns that depend on the samples."""
    others = {*FINDING, *(metric.name for metric in all_metrics() if metric.of == "raters")}
    others |= {name for metric in all_metrics() for name in metric.pixels or ()}
    return [name for name in scores if name not in others]
