"""Bernoulli noise on targets of which each lies inside the one before it: every mask that is drawn is nested.

The noise is the Bernoulli kernel's, of each target by itself, so y_t is not nested; the estimate of y0 is, by the links
of `diffusion/nested.py`. With one target this is the Bernoulli kernel, to the bit.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from berdiff.diffusion import nested
from berdiff.diffusion.bernoulli import draw, draw_level
from berdiff.diffusion.kernels.bernoulli import Bernoulli, draw_nonempty, step_prob
from berdiff.diffusion.links import LINKS
from berdiff.diffusion.losses import over_masks, total_loss
from berdiff.diffusion.random import Generators
from berdiff.diffusion.sampler import Sampler
from berdiff.diffusion.schedule import NoiseSchedule, Time


@dataclass(frozen=True, eq=False)
class Nested(Bernoulli):
    prediction: Literal["mask"] = "mask"  # flips are not nested
    inner_weight: float = 1.0  # of a target's loss over that of the target around it

    def loss(
        self, output: Tensor, y0: Tensor, y_t: Tensor, eps: Tensor, t: Time, weight: Tensor | None = None
    ) -> dict[str, Tensor]:
        """L_BCE is -log P(y0) of the nested mask as a whole, over K; L_KL is of each target by itself.

        That is with an `inner_weight` of 1; else both are sums over the targets with their weights.
        """
        of_targets = nested.target_weights(self.inner_weight, output)
        of_kl = "mask", self.lambda_kl, 0.0, self.posterior, weight, of_targets
        terms = total_loss(self.schedule, nested.logits(output), y0, y_t, eps, t, *of_kl)
        if self.lambda_bce:
            terms["bce"] = over_masks(nested.bce_loss(y0, output), weight, of_targets)
            terms["loss"] = terms["loss"] + self.lambda_bce * terms["bce"]
        return terms

    def step(
        self, sampler: Sampler, output: Tensor, y_t: Tensor, t: int, s: int, generators: Generators
    ) -> tuple[Tensor, Tensor]:
        """One level or one threshold for all targets nests, since p_k falls with k; independent noise has its chain."""
        inside = output.sigmoid()
        y0_hat = y0 = nested.probs(inside)
        if s == 0 and self.nonempty:
            return draw_nonempty(y0_hat, sampler, generators), y0_hat
        threshold = s == 0 and sampler.last_step == "threshold"
        if sampler.noise == "independent" and not threshold:
            return draw_chain(self.schedule, sampler, y_t, inside, t, s, generators), y0_hat
        if not threshold:
            y0 = draw_level(y0_hat, generators, sampler.smallest)
        return draw(step_prob(self.schedule, sampler, y_t, y0, t, s), generators), y0_hat

    def to_mean(self, output: Tensor) -> Tensor:
        return LINKS["nested"].probs(output)

    def from_mean(self, mean: Tensor) -> Tensor:
        return LINKS["nested"].logits(mean)


def draw_chain(
    schedule: NoiseSchedule, sampler: Sampler, y_t: Tensor, inside: Tensor, t: int, s: int, generators: Generators
) -> Tensor:
    """y_s `(B, N, K, *S)` of independent pixels; at each the sum over all nested y0 of P(y0) P(y_s | y_t, y0).

    Target by target: the usual step from p_k = P(y0 = 1 | y_s so far) of the target around it, times c_k. At s = 0 that
    is 0 wherever the target around it was not drawn: the mask is nested.
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
