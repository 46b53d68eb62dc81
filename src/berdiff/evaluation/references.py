"""Reference points: what needs no model, from the raters' own masks, of the same cases on the whole image."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from berdiff.evaluation.scores import Scores, choose_sets, metric_names, score, score_samples, subset_sizes
from berdiff.inference.sets import rng_of
from berdiff.inference.settings import SetRule
from berdiff.metrics import Pairs, Votes, ged_limit, more_than
from berdiff.metrics.finding import finding_distance, finding_shares
from berdiff.metrics.pairs import matched_iou
from berdiff.metrics.votes import votes as marked_by

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
) -> dict[str, Scores]:
    """The limit of a model, and four ways of answering with the raters' own masks or with nothing.

    masks `(B, R, K, H, W)`, raters `(B,)`. `rule` and `pool` (None: n) are those of the model's sets of n masks.
    """
    pool, own = pool or n, Pairs.of(masks, masks, raters)
    marks = torch.from_numpy(marked_by(masks).astype(np.int64))
    majority = more_than(marks / raters[:, None, None, None]).to(torch.uint8).unsqueeze(1)
    return {
        EXACT: _exact_model(own, n, rule, pool),
        PERFECT: _perfect_sampler(own, masks, raters, names, n, seed, pool),
        ONE_RATER: _one_rater(own, masks, raters, n, pool),
        MAJORITY: _repeated(score_samples(majority, masks, raters), n, pool),
        EMPTY: _repeated(score_samples(torch.zeros_like(majority), masks, raters), n, pool),
    }


def _exact_model(own: Pairs, n: int, rule: SetRule, pool: int) -> Scores:
    """Knows p(y|x), from which the raters come, and nothing of these raters: `metrics/limit.py` has the derivation.

    A chosen set has no 1 / n: its limit is D / R. NaN where a case has one rater, so no D.
    """
    R, D, (_, q) = own.raters[:, None], own.d_raters, finding_shares(own)
    out = {f"ged_{m}": ged_limit(D, R, m if rule == "independent" else None) for m in subset_sizes(n)}
    if pool > 1:
        out[f"ged_{pool}_unbiased"] = ged_limit(D, R)
    return out | {"finding_ged": ged_limit(finding_distance(q, R), R, pool), "d_sy": D, "d_ss": D}


def _perfect_sampler(
    own: Pairs, masks: Tensor, raters: Tensor, names: Sequence[str], n: int, seed: int, pool: int
) -> Scores:
    """Samples drawn from the case's own raters, with replacement: the best that a model can do on average.

    GED is the exact expectation: d_SY = d_YY, and of n draws two are the same draw with probability 1 / n, so
    E GED_n = 2 d_YY - (n - 1) / n d_YY - d_YY = d_YY / n. The others are simulated, seeded by the case's name.
    """
    drawn = np.stack(
        [rng_of(seed, name).integers(r, size=(HM_IOU_DRAWS, pool)) for name, r in zip(names, raters, strict=True)]
    )  # (B, draws, pool)
    samples = masks[torch.arange(len(masks))[:, None], torch.from_numpy(drawn[:, 0])]
    pairs = own.subset(drawn[:, 0])
    scores = score(pairs, Votes.of(samples, masks, raters), choose_sets(samples, pairs, n, "independent"))
    out = {name: scores[name] for name in metric_names(scores)}
    out |= {f"ged_{m}": own.d_yy / m for m in subset_sizes(n)} | {"d_sy": own.d_yy, "d_ss": own.d_yy}
    if pool > 1:
        out[f"ged_{pool}_unbiased"] = np.zeros_like(own.d_yy)
    iou = own.iou[:, :, : own.n, : own.n]
    for i, r in enumerate(raters.tolist()):
        out[f"hm_iou_{n}"][i] = matched_iou(iou[i][:, drawn[i, :, :n], :r]).mean(-1)  # of (K, draws, n, r)
    return out


def _one_rater(own: Pairs, masks: Tensor, raters: Tensor, n: int, pool: int) -> Scores:
    """Each rater of a case in turn, averaged."""
    total: Scores = {}
    for rater in range(own.n):
        present = (raters > rater).numpy()[:, None]
        once = score(own.subset(np.array([rater])), Votes.of(masks[:, [rater]], masks, raters), {1: np.zeros(1, int)})
        for name, values in _repeated(once, n, pool).items():
            total[name] = total.get(name, 0) + np.where(present, values, 0)
    return {name: values / raters.numpy()[:, None] for name, values in total.items()}


def _repeated(once: Scores, n: int, pool: int) -> Scores:
    """The scores of one mask, n times over: every metric is that of the one mask, whatever n."""
    ged = once["ged_1"]
    out = {f"ged_{m}": ged for m in subset_sizes(n)} | ({f"ged_{pool}_unbiased": ged} if pool > 1 else {})
    others = [name for name in metric_names(once) if name not in ("ged_1", "d_ss")]
    return out | {name.replace("_1", f"_{n}"): once[name] for name in others} | {"d_ss": np.zeros_like(ged)}
