"""The values of one case: what a model's samples score against its raters, on the whole image."""

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from berdiff import metrics
from berdiff.inference.sets import choose_set, set_rng
from berdiff.inference.settings import SetRule
from berdiff.metrics.finding import finding_ged, finding_shares

Scores = dict[str, np.ndarray]  # metric -> (B, K)
Sets = dict[int, np.ndarray]  # m -> the places of the set of m masks in the pool, (B, m), or (m,) for every case

# Columns of a case that are not metrics of the samples: pixels for the Dice of a volume, how far the raters disagree,
# and the shares of the samples and of the raters that are not empty
PIXELS = ("pixels_both", "pixels_predicted", "pixels_majority")
LIKELIEST_PIXELS = ("pixels_both_likeliest", "pixels_likeliest", "pixels_majority")  # of exclusive targets alone
RATERS = ("d_yy", "d_raters")
FINDING = ("finding_samples", "finding_raters")
SIZE_GAPS = ("size_gap_samples", "size_gap_raters")  # of volumes alone: how far two of them differ in size
OTHER = (*PIXELS, *RATERS, *FINDING)

SUBSETS = (1, 4, 8, 16)


def subset_sizes(n: int) -> tuple[int, ...]:
    """The sample counts GED is given at: the paper's, as far as n goes, and n."""
    return (*(m for m in SUBSETS if m < n), n)


def choose_sets(
    pool: Tensor, pairs: metrics.Pairs, n: int, rule: SetRule, names: Sequence[str] = (), seed: int = 0
) -> Sets:
    """The sets of 1, 4, ... n masks out of pools `(B, P, K, H, W)`, whose overlaps are known: `pairs`."""
    if rule == "independent":
        return {m: np.arange(m) for m in subset_sizes(n)}
    distance = 1 - pairs.iou[:, :, : pairs.n, : pairs.n].mean(1)
    each = list(zip(pool.numpy(), names, distance, strict=True))
    return {
        m: np.stack([choose_set(masks, m, rule, set_rng(seed, name), d) for masks, name, d in each])
        for m in subset_sizes(n)
    }


def score(pairs: metrics.Pairs, votes: metrics.Votes, sets: Mapping[int, np.ndarray]) -> Scores:
    """Everything about a pool of samples and its sets of 1, 4, ... n masks.

    GED, HM-IoU and D_max are of the sets. All that asks how probable something is takes the whole pool, whose masks
    are independent.
    """
    n, pool = max(sets), pairs.n
    chosen = {m: pairs.subset(places) for m, places in sets.items()}
    out: Scores = {f"ged_{m}": of.ged() for m, of in chosen.items()}
    if pool > 1:
        out[f"ged_{pool}_unbiased"] = pairs.ged_unbiased()
    counts, (p, q) = votes.dice_counts(), finding_shares(pairs)
    return out | {
        f"hm_iou_{n}": chosen[n].hm_iou(),
        "dice": metrics.dice_from_counts(counts).numpy(),
        "soft_dice": votes.soft_dice().numpy(),
        f"d_max_{n}": chosen[n].d_max(),
        "ece": votes.ece().numpy(),
        "brier": votes.brier().numpy(),
        "nll": votes.nll().numpy(),
        "finding_ged": finding_ged(p, q),
        "d_sy": pairs.d_sy(),
        "d_ss": pairs.d_ss_distinct(),
        **{name: count.numpy() for name, count in zip(PIXELS, counts.unbind(-1), strict=True)},
        **dict(zip((*RATERS, *FINDING), (pairs.d_yy, pairs.d_raters, p, q), strict=True)),
    }


def score_likeliest(samples: Tensor, masks: Tensor, raters: Tensor) -> Scores:
    """Of exclusive targets: Dice of the likeliest class, the background among them, against the raters' majority."""
    counts = metrics.likeliest_counts(samples, masks, raters)
    both, predicted, _ = counts.numpy().transpose(2, 0, 1)
    dice = metrics.dice_from_counts(counts).numpy()
    return {"dice_likeliest": dice, **dict(zip(LIKELIEST_PIXELS, (both, predicted), strict=False))}


def score_samples(samples: Tensor, masks: Tensor, raters: Tensor) -> Scores:
    """Of independent samples `(B, n, K, H, W)` against masks `(B, R, K, H, W)`, raters `(B,)`; a set is the first."""
    pairs, votes = metrics.Pairs.of(samples, masks, raters), metrics.Votes.of(samples, masks, raters)
    return score(pairs, votes, choose_sets(samples, pairs, pairs.n, "independent"))


def metric_names(scores: Scores) -> list[str]:
    return [name for name in scores if name not in OTHER]
