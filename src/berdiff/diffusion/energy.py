"""The energy score of masks against raters: the proper score behind GED, as a loss (docs/equations.md).

E = 2 d(S, Y) - d(S, S'), in expectation the least where masks S are distributed as the raters' Y. A distance of sets
does not ask how large they are: a nodule of 20 pixels counts as much as one of 600, unlike in a mean over pixels.
"""

import torch
from torch import Tensor

SOFTNESS = 0.5  # of a level set's border, in logits: a hard set has no gradient
NOTHING = 1e-3  # pixels: two empty sets are then alike, not 0 / 0


def soft_level_sets(p: Tensor, u: Tensor) -> Tensor:
    """Probabilities p `(B, K, *S)` and levels u in (0, 1) `(B, J)` -> `(B, J, K, pixels)`: what lies above u max p.

    Below the largest probability, so that each set has a pixel.
    """
    B, J = u.shape
    p = p.flatten(2).clamp(1e-6, 1 - 1e-6)
    levels = (u * p.detach().flatten(1).amax(1, keepdim=True)).clamp(1e-4, 1 - 1e-4)
    return ((p.unsqueeze(1).logit() - levels.logit().reshape(B, J, 1, 1)) / SOFTNESS).sigmoid()


def jaccard_distance(a: Tensor, b: Tensor) -> Tensor:
    """Soft sets `(B, I, K, P)`, `(B, J, K, P)` -> `(B, I, J)`: 1 - sum min / sum max, the mean over targets."""
    both = torch.minimum(a.unsqueeze(2), b.unsqueeze(1)).sum(-1)
    either = a.sum(-1).unsqueeze(2) + b.sum(-1).unsqueeze(1) - both
    return (1 - (both + NOTHING) / (either + NOTHING)).mean(-1)


def energy_score(S: Tensor, S2: Tensor, Y: Tensor, weight: Tensor) -> Tensor:
    """Two independent sets of masks `(B, J, K, P)` and raters `(B, R, K, P)` with weights `(B, R)` -> `(B,)`.

    d(S, S') is taken across the two sets: the masks of one are spread evenly over the levels, so two of them are
    farther apart than two independent ones, and the least would lie at too much spread. Of raters whose weights are
    all 0 the score is 0: there is nothing to learn from them.
    """
    known = weight.sum(1)
    share = weight / known.clamp(min=1e-9).unsqueeze(1)
    d_SY = sum((jaccard_distance(of, Y).mean(1) * share).sum(1) for of in (S, S2))  # twice the mean
    return torch.where(known > 0, d_SY - jaccard_distance(S, S2).mean((1, 2)), 0.0)


def stratified_levels(u: Tensor) -> Tensor:
    """Uniform numbers `(..., J)` -> levels of which each J-th part of [0, 1) has one."""
    return (torch.arange(u.shape[-1], device=u.device) + u) / u.shape[-1]
