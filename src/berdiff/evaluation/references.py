"""Reference points: what needs no model, from the raters' own masks, of the same cases on the whole image."""

import re
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from berdiff.evaluation.scores import choose_sets, of_samples, score, score_samples, subset_sizes
from berdiff.inference.settings import SetRule
from berdiff.metrics import Compared, Pairs, ged_limit
from berdiff.metrics.finding import finding_distance, finding_shares
from berdiff.metrics.pairs import matched_iou
from berdiff.metrics.registry import Values
from berdiff.seeds import rng_of

EXACT, PERFECT, ONE_RATER = "exact model", "perfect sampler", "one rater, repeated"
MAJORITY, EMPTY = "raters' majority", "empty mask"
# draws of the simulated perfect sampler for each case; over a test set their noise is far below the interval
HM_IOU_DRAWS = 16


def reference_scores(
    masks: Tensor,
    raters: Tensor,
    names: Sequence[str],
    n: int,
    seed: int,
    rule: SetRule = "independent",
    pool: int | None = None,
) -> dict[str, Values]:
    """The limit of a model, and four ways of answering with the raters' own masks or with nothing.

    masks `(B, R, K, *S)`, raters `(B,)`. `rule` and `pool` (None: n) are those of the model's sets of n masks.
    """
    pool, own = pool or n, Compared(masks, masks, raters)
    present = torch.arange(masks.shape[1]) < raters[:, None]
    majority = torch.stack([2 * of[here].sum(0) > here.sum() for of, here in zip(masks, present, strict=True)])
    majority = majority.to(torch.uint8).unsqueeze(1)
    return {
        EXACT: _exact_model(own.pairs, n, rule, pool),
        PERFECT: _perfect_sampler(own, raters, names, n, seed, pool),
        ONE_RATER: _one_rater(own, raters, n, pool),
        MAJORITY: _repeated(score_samples(majority, masks, raters), n, pool),
        EMPTY: _repeated(score_samples(torch.zeros_like(majority), masks, raters), n, pool),
    }


def _exact_model(own: Pairs, n: int, rule: SetRule, pool: int) -> Values:
    """Knows p(y|x), from which the raters come, and nothing of these raters: `metrics/limit.py` has the derivation.

    A chosen set has no 1 / n: its limit is D / R. NaN where a case has one rater, so no D.
    """
    R, D, (_, q) = own.raters[:, None], own.d_raters, finding_shares(own)
    out = {f"ged_{m}": ged_limit(D, R, m if rule == "independent" else None) for m in subset_sizes(n)}
    if pool > 1:
        out[f"ged_{pool}_unbiased"] = ged_limit(D, R)
    return out | {"finding_ged": ged_limit(finding_distance(q, R), R, pool), "d_sy": D, "d_ss": D}


def _perfect_sampler(own: Compared, raters: Tensor, names: Sequence[str], n: int, seed: int, pool: int) -> Values:
    """Samples drawn from the case's own raters, with replacement: the best that a model can do on average.

    GED is the exact expectation: d_SY = d_YY, and of n draws two are the same draw with probability 1 / n, so
    E GED_n = 2 d_YY - (n - 1) / n d_YY - d_YY = d_YY / n. The others are simulated, seeded by the case's name.
    """
    drawn = np.stack(
        [rng_of(seed, name).integers(r, size=(HM_IOU_DRAWS, pool)) for name, r in zip(names, raters, strict=True)]
    )  # (B, draws, pool)
    samples, pairs = own.subset(drawn[:, 0]), own.pairs
    scores = score(samples, choose_sets(samples, n, "independent"))
    out = {name: scores[name] for name in of_samples(scores)}
    out |= {f"ged_{m}": pairs.d_yy / m for m in subset_sizes(n)} | {"d_sy": pairs.d_yy, "d_ss": pairs.d_yy}
    if pool > 1:
        out[f"ged_{pool}_unbiased"] = np.zeros_like(pairs.d_yy)
    iou = pairs.iou[:, :, : pairs.n, : pairs.n]
    for i, r in enumerate(raters.tolist()):
        out[f"hm_iou_{n}"][i] = matched_iou(iou[i][:, drawn[i, :, :n], :r]).mean(-1)  # of (K, draws, n, r)
    return out


def _one_rater(own: Compared, raters: Tensor, n: int, pool: int) -> Values:
    """Each rater of a case in turn, averaged."""
    total: Values = {}
    for rater in range(own.pairs.n):
        present = (raters > rater).numpy()[:, None]
        once = score(own.subset(np.array([rater])), {1: np.zeros(1, int)})
        for name, values in _repeated(once, n, pool).items():
            total[name] = total.get(name, 0) + np.where(present, values, 0)
    return {name: values / raters.numpy()[:, None] for name, values in total.items()}


def _repeated(once: Values, n: int, pool: int) -> Values:
    """The scores of one mask, n times over: every metric is that of the one mask, whatever n."""
    ged = once["ged_1"]
    out = {f"ged_{m}": ged for m in subset_sizes(n)} | ({f"ged_{pool}_unbiased": ged} if pool > 1 else {})
    others = [name for name in of_samples(once) if name not in ("ged_1", "d_ss")]
    return (
        out | {re.sub(r"_1(?![0-9a-z])", f"_{n}", name): once[name] for name in others} | {"d_ss": np.zeros_like(ged)}
    )
