"""The values of one case: what a model's samples score, and what the raters' own masks would (reference points)."""

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from berdiff import metrics
from berdiff.metrics.pairs import matched_iou
from berdiff.metrics.votes import votes as marked_by

Scores = dict[str, np.ndarray]  # metric -> (B, K)

# Columns of a case that are not metrics: pixels for the Dice of a volume, and the raters' own disagreement
PIXELS = ("pixels_both", "pixels_predicted", "pixels_majority")
OTHER = (*PIXELS, "d_yy")

SUBSETS = (1, 4, 8, 16)
PERFECT, ONE_RATER, MAJORITY, EMPTY = "perfect sampler", "one rater, repeated", "raters' majority", "empty mask"
# draws of the simulated perfect sampler for each case; over a test set their noise is far below the interval
HM_IOU_DRAWS = 16


def subset_sizes(n: int) -> tuple[int, ...]:
    """The sample counts GED is given at: the paper's, as far as n goes, and n."""
    return (*(m for m in SUBSETS if m < n), n)


def score_samples(samples: Tensor, masks: Tensor, raters: Tensor) -> Scores:
    """Everything about samples `(B, n, K, H, W)` against masks `(B, R, K, H, W)`, raters `(B,)`.

    GED at fewer samples takes the first of the same draw.
    """
    n = samples.shape[1]
    pairs = metrics.Pairs.of(samples, masks, raters)
    out: Scores = {f"ged_{m}": pairs.ged(m) for m in subset_sizes(n)}
    if n > 1:
        out[f"ged_{n}_unbiased"] = pairs.ged_unbiased()
    votes = metrics.Votes.of(samples, masks, raters)
    counts = votes.dice_counts()
    return out | {
        f"hm_iou_{n}": pairs.hm_iou(),
        "dice": metrics.dice_from_counts(counts).numpy(),
        "soft_dice": votes.soft_dice().numpy(),
        f"d_max_{n}": pairs.d_max(),
        "ece": votes.ece().numpy(),
        "brier": votes.brier().numpy(),
        "nll": votes.nll().numpy(),
        **{name: count.numpy() for name, count in zip(PIXELS, counts.unbind(-1), strict=True)},
        "d_yy": pairs.d_yy,
    }


def metric_names(scores: Scores) -> list[str]:
    return [name for name in scores if name not in OTHER]


def reference_scores(masks: Tensor, raters: Tensor, names: Sequence[str], n: int, seed: int) -> dict[str, Scores]:
    """What needs no model: four ways of answering with the raters' own masks, or with nothing, and their metrics."""
    marks = torch.from_numpy(marked_by(masks).astype(np.int64))
    majority = (2 * marks > raters[:, None, None, None]).to(torch.uint8).unsqueeze(1)
    return {
        PERFECT: _perfect_sampler(masks, raters, names, n, seed),
        ONE_RATER: _one_rater(masks, raters, n),
        MAJORITY: _repeated(majority, masks, raters, n),
        EMPTY: _repeated(torch.zeros_like(majority), masks, raters, n),
    }


def _repeated(answer: Tensor, masks: Tensor, raters: Tensor, n: int) -> Scores:
    """n times the same mask `(B, 1, K, H, W)`: every metric is that of the one mask, whatever n."""
    once = score_samples(answer, masks, raters)
    names = metric_names(once)
    out = {f"ged_{m}": once["ged_1"] for m in subset_sizes(n)}
    if n > 1:
        out[f"ged_{n}_unbiased"] = once["ged_1"]
    return out | {name.replace("_1", f"_{n}"): once[name] for name in names if name != "ged_1"}


def _one_rater(masks: Tensor, raters: Tensor, n: int) -> Scores:
    """Each rater of a case in turn, averaged."""
    total: Scores = {}
    for rater in range(masks.shape[1]):
        present = (raters > rater).numpy()[:, None]
        for name, values in _repeated(masks[:, rater : rater + 1], masks, raters, n).items():
            total[name] = total.get(name, 0) + np.where(present, values, 0)
    return {name: values / raters.numpy()[:, None] for name, values in total.items()}


def _perfect_sampler(masks: Tensor, raters: Tensor, names: Sequence[str], n: int, seed: int) -> Scores:
    """Samples drawn from the case's own raters, with replacement: the best that a model can do on average.

    GED is the exact expectation: d_SY = d_YY, and of n draws two are the same draw with probability 1 / n, so
    E GED_n = 2 d_YY - (n - 1) / n d_YY - d_YY = d_YY / n. The others are simulated, seeded by the case's name.
    """
    drawn = np.stack(
        [_case_rng(seed, name).integers(r, size=(HM_IOU_DRAWS, n)) for name, r in zip(names, raters, strict=True)]
    )  # (B, draws, n)
    cases = np.arange(len(masks))[:, None]
    samples = masks[torch.from_numpy(cases), torch.from_numpy(drawn[:, 0])]
    scores = score_samples(samples, masks, raters)
    out = {name: scores[name] for name in metric_names(scores)}
    for m in subset_sizes(n):
        out[f"ged_{m}"] = scores["d_yy"] / m
    if n > 1:
        out[f"ged_{n}_unbiased"] = np.zeros_like(scores["d_yy"])
    iou = metrics.Pairs.of(masks, masks, raters).iou[:, :, : masks.shape[1], : masks.shape[1]]
    for i, r in enumerate(raters.tolist()):
        of_drawn = iou[i][:, drawn[i], :r]  # (K, draws, n, r)
        out[f"hm_iou_{n}"][i] = matched_iou(of_drawn).mean(-1)
    return out


def _case_rng(seed: int, name: str) -> np.random.Generator:
    """Depends on the case alone, not on the batch it comes in."""
    digest = hashlib.sha256(f"{seed}|{name}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big"))
