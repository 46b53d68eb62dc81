"""Nested targets: the links that make probabilities of masks, each inside the one before it, of K outputs; the kernel.

c_k = sigma(l_k) is the probability of target k at a pixel inside target k - 1 (every pixel is inside target 0), so
p_1 = c_1 and p_k = p_{k-1} c_k. Targets are the third dimension, `(B, N, K, *S)`, the outermost first.
At K = 1 everything here is the Bernoulli kernel's, to the bit.
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from berdiff.diffusion.bernoulli import draw, draw_level
from berdiff.diffusion.kernels.bernoulli import Bernoulli, draw_nonempty, step_prob
from berdiff.diffusion.losses import Weighted, kl_loss, weighted_sum
from berdiff.diffusion.random import Generators
from berdiff.diffusion.sampler import Sampler
from berdiff.diffusion.schedule import NoiseSchedule, Time

TARGET = 2
"""The dimension of the targets; behind it come the spatial ones."""


def probs(inside: Tensor) -> Tensor:
    """p_k = p_{k-1} c_k from c. One product after the other: rounded too, no p_k is above the one before it."""
    return torch.stack(list(accumulate(inside.unbind(TARGET), torch.mul)), TARGET)


def inside(p: Tensor) -> Tensor:
    """c_k = p_k / p_{k-1}, the inverse of `probs`; 0 where nothing is left to be inside of."""
    return (p / _outer(p)).nan_to_num(0).clamp(0, 1)


def logits(output: Tensor) -> Tensor:
    """L_k = log p_k - log(1 - p_k) from the logits l_k of c_k, finite wherever they are.

    1 / p_k = (1 + e^-L_{k-1}) (1 + e^-l_k), so e^-L_k = e^-l_k + e^-L_{k-1} (1 + e^-l_k).
    """

    def link(L: Tensor, l_k: Tensor) -> Tensor:
        return -torch.logaddexp(-l_k, F.softplus(-l_k) - L)

    return torch.stack(list(accumulate(output.unbind(TARGET), link)), TARGET)


def bce_loss(y: Tensor, output: Tensor) -> Tensor:
    """y^{k-1} BCE(c_k, y^k), elementwise, y^0 = 1: summed over the targets it is -log P(y) of a nested mask y."""
    return _outer(y) * F.binary_cross_entropy_with_logits(output, y, reduction="none")


def target_weights(inner_weight: float, like: Tensor) -> Tensor | None:
    """(K, 1, ...): inner_weight^{k-1} for the loss of target k of `like`; None where all count the same.

    The loss of c_k counts pixels inside target k - 1 alone. Each c_k has a loss of its own, so no weight moves the
    minimum; but without one a target inside a small target hardly moves the network.
    """
    if inner_weight == 1:
        return None
    place = torch.arange(like.shape[TARGET], device=like.device, dtype=like.dtype)
    return inner_weight ** place.reshape(-1, *[1] * (like.ndim - 3))


def _outer(y: Tensor) -> Tensor:
    """Of each target the one around it; of the first, everything."""
    around = y.narrow(TARGET, 0, y.shape[TARGET] - 1)
    return torch.cat([torch.ones_like(y.narrow(TARGET, 0, 1)), around], TARGET)


# --- the kernel ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Nested(Bernoulli):
    """Every mask that is drawn is nested. The noise is the Bernoulli kernel's, of each target by itself, so y_t is not;
    the estimate of y0 is, by the links above."""

    prediction: Literal["mask"] = "mask"  # flips are not nested
    inner_weight: float = 1.0  # of a target's loss over that of the target around it

    def loss(
        self, output: Tensor, y0: Tensor, y_t: Tensor, eps: Tensor, t: Time, weight: Tensor | None = None
    ) -> dict[str, Tensor]:
        """L_BCE is -log P(y0) of the nested mask as a whole, over K; L_KL is of each target by itself.

        That is with an `inner_weight` of 1; else both are sums over the targets with their weights.
        """
        of_targets = target_weights(self.inner_weight, output)
        terms: Weighted = {
            "kl": (self.lambda_kl, lambda: kl_loss(self.schedule, y_t, y0, logits(output), t, t - 1, self.posterior)),
            "bce": (self.lambda_bce, lambda: bce_loss(y0, output)),
        }
        return weighted_sum(terms, weight, of_targets)

    def step(
        self, sampler: Sampler, output: Tensor, y_t: Tensor, t: int, s: int, generators: Generators
    ) -> tuple[Tensor, Tensor]:
        """One level or one threshold for all targets nests, since p_k falls with k; independent noise has its chain."""
        c = output.sigmoid()
        y0_hat = y0 = probs(c)
        if s == 0 and self.nonempty:
            return draw_nonempty(y0_hat, sampler, generators), y0_hat
        threshold = s == 0 and sampler.last_step == "threshold"
        if sampler.noise == "independent" and not threshold:
            return draw_chain(self.schedule, sampler, y_t, c, t, s, generators), y0_hat
        if not threshold:
            y0 = draw_level(y0_hat, generators, sampler.smallest)
        return draw(step_prob(self.schedule, sampler, y_t, y0, t, s), generators), y0_hat

    def to_mean(self, output: Tensor) -> Tensor:
        return probs(output.sigmoid())

    def from_mean(self, mean: Tensor) -> Tensor:
        return inside(mean.clamp(0, 1)).logit()


def draw_chain(
    schedule: NoiseSchedule, sampler: Sampler, y_t: Tensor, inside: Tensor, t: int, s: int, generators: Generators
) -> Tensor:
    """y_s `(B, N, K, *S)` of independent pixels; at each the sum over all nested y0 of P(y0) P(y_s | y_t, y0).

    Target by target: the usual step from p_k = P(y0 = 1 | y_s so far) of the target around it, times c_k. At s = 0 that
    is 0 wherever the target around it was not drawn: the mask is
    """
    masks: list[Tensor] = []
    outer = torch.ones_like(inside[:, :, 0])
    for y, c in zip(y_t.unbind(2), inside.unbind(2), strict=True):
        p = outer * c
        masks.append(draw(step_prob(schedule, sampler, y, p, t, s), generators))
        outer = seen(schedule, sampler, y, p, masks[-1], t, s)
    return torch.stack(masks, 2)


def seen(schedule: NoiseSchedule, sampler: Sampler, y_t: Tensor, p: Tensor, y_s: Tensor, t: int, s: int) -> Tensor:
    """Bayes: P(y0 = 1 | y_s), from p = P(y0 = 1). In float64: a y_s that is seldom drawn tells most.

    DDPM's soft form takes p for what is known before y_t is looked at, and then y_s alone speaks of y0: q(y_s | y0).
    """
    like = y_t.double()
    if sampler.rule == "ddpm" and sampler.posterior == "soft":
        b: float = schedule.pair(t, s, like)[1]
        ones = [torch.full_like(like, b * y0 + (1 - b) / 2) for y0 in (0, 1)]
    else:
        ones = [step_prob(schedule, sampler, like, torch.full_like(like, y0), t, s) for y0 in (0, 1)]
    of_0, of_1 = (torch.where(y_s == 1, one, 1 - one) for one in ones)
    joint = p * of_1
    return (joint / (joint + (1 - p) * of_0)).to(p.dtype)
