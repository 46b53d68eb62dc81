"""The energy score of masks against raters: the proper score behind GED, as a loss (docs/equations.md).

E = 2 d(S, Y) - d(S, S'), in expectation the least where masks S are distributed as the raters' Y. A distance of sets
does not ask how large they are: a nodule of 20 pixels counts as much as one of 600, unlike in a mean over pixels.
"""

import torch
from torch import Tensor

SOFTNESS = 0.5  # of a level set's border, in logits: a hard set has no gradient
NOTHING = 1e-3  # pixels: two empty sets are then alike, not 0 / 0


def soft_level_sets(p: Tensor, u: Tensor) -> Tensor:
    """Probabilities p `(B, K, H, W)` and levels u in (0, 1) `(B, J)` -> `(B, J, K, H W)`: what lies above u max p.

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


def energy_score(S: Tensor, Y: Tensor, weight: Tensor) -> Tensor:
    """Masks `(B, J, K, P)` and raters `(B, R, K, P)` with weights `(B, R)` -> `(B,)`; J is at least 2."""
    J = S.shape[1]
    d_SY = (jaccard_distance(S, Y).mean(1) * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
    d_SS = jaccard_distance(S, S)
    d_SS = (d_SS.sum((1, 2)) - d_SS.diagonal(dim1=1, dim2=2).sum(1)) / (J * (J - 1))  # of two different ones
    return 2 * d_SY - d_SS
