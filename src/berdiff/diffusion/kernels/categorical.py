"""Categorical noise on masks of K exclusive targets: the paper's kernel with C = K + 1 states per pixel."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from berdiff.diffusion import categorical
from berdiff.diffusion.bernoulli import sigma_max, xor
from berdiff.diffusion.categorical import log_probs, probs, targets, with_background
from berdiff.diffusion.kernels.base import Kernel
from berdiff.diffusion.links import LINKS
from berdiff.diffusion.losses import Weighted, weighted_sum
from berdiff.diffusion.random import Generators
from berdiff.diffusion.sampler import Posterior, Sampler
from berdiff.diffusion.schedule import NoiseSchedule, Time


@dataclass(frozen=True, eq=False)
class Categorical(Kernel):
    """The network sees y_t as K channels, all 0 in the background, and its K outputs are logits of the mask relative to
    the background. At K = 1 it is the Bernoulli kernel with the mask as prediction."""

    lambda_kl: float = 1.0
    lambda_bce: float = 1.0  # weight of the cross-entropy, here of C classes
    posterior: Posterior = "soft"  # the form of eq. 7 in L_KL

    def prior(self, shape: Sequence[int], generators: Generators, like: Tensor) -> Tensor:
        """y_T ~ Cat(1/C)."""
        B, N, K, *space = shape
        p = torch.ones((B, N, K + 1, *space), dtype=like.dtype, device=like.device)
        return categorical.draw(p, generators)

    def q_sample(self, y0: Tensor, t: Time, generators: Generators) -> tuple[Tensor, Tensor]:
        """eps marks the channels that noise has changed; nothing here is learnt from it."""
        y_t = categorical.draw(categorical.q_marginal(self.schedule, with_background(y0), t), generators).to(y0.dtype)
        return y_t, xor(y0, y_t)

    def loss(
        self, output: Tensor, y0: Tensor, y_t: Tensor, eps: Tensor, t: Time, weight: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Eq. 10; s = t - 1."""
        log_p, y0, y_t = log_probs(output), with_background(y0), with_background(y_t)
        terms: Weighted = {
            "kl": (
                self.lambda_kl,
                lambda: categorical.kl_loss(self.schedule, y_t, y0, log_p, t, t - 1, self.posterior),
            ),
            "ce": (self.lambda_bce, lambda: categorical.ce_loss(y0, log_p)),
        }
        return weighted_sum(terms, weight)

    def step(
        self, sampler: Sampler, output: Tensor, y_t: Tensor, t: int, s: int, generators: Generators
    ) -> tuple[Tensor, Tensor]:
        """With shared noise a hard y0 is drawn first, by one number per class and mask, and the step follows it."""
        y0 = y0_hat = probs(output)
        if sampler.noise == "shared" and not (s == 0 and sampler.last_step == "threshold"):
            y0 = with_background(categorical.draw_shared(y0_hat, generators))
        p = step_probs(self.schedule, sampler, with_background(y_t), y0, t, s)
        return categorical.draw(p, generators), targets(y0_hat)

    def to_mean(self, output: Tensor) -> Tensor:
        """Probabilities of the targets."""
        return LINKS["exclusive"].probs(output)

    def from_mean(self, mean: Tensor) -> Tensor:
        return LINKS["exclusive"].logits(mean)

    def check(self, sampler: Sampler) -> None:
        if sampler.smallest > 1:
            raise ValueError(f"smallest: expected 1 with a categorical kernel, found {sampler.smallest}")


def step_probs(schedule: NoiseSchedule, sampler: Sampler, y_t: Tensor, y0: Tensor, t: int, s: int) -> Tensor:
    """Algorithm 2: the probabilities of all classes of y_s, from all classes of y_t and y0."""
    if s == 0 and sampler.last_step == "threshold":
        return with_background(categorical.most_likely(y0)).to(y_t.dtype)
    if sampler.rule == "ddpm":
        return categorical.reverse_mean(schedule, y_t, y0, t, s, sampler.posterior)
    return categorical.sigma_post(schedule, y_t, y0, t, s, sampler.sigma * sigma_max(schedule, t, s, y_t))
