"""Bernoulli noise on 0/1 masks: the paper's kernel (eqs. 1-10)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from berdiff.diffusion.bernoulli import draw, draw_level, q_sample, reverse_mean, sigma_max, sigma_post
from berdiff.diffusion.kernels.base import Kernel
from berdiff.diffusion.losses import Prediction, estimate_logits, total_loss
from berdiff.diffusion.random import Generators
from berdiff.diffusion.sampler import Posterior, Sampler
from berdiff.diffusion.schedule import NoiseSchedule, Time


@dataclass(frozen=True, eq=False)
class Bernoulli(Kernel):
    """The noise of the paper: each pixel of a mask is flipped with a probability that grows with t."""

    prediction: Prediction = "noise"  # what the network's logits are of
    lambda_kl: float = 1.0
    lambda_bce: float = 1.0
    posterior: Posterior = "soft"  # the form of eq. 7 in L_KL
    nonempty: bool = False  # y0 is known to have a marked pixel, so the last step is conditioned on that

    def prior(self, shape: Sequence[int], generators: Generators, like: Tensor) -> Tensor:
        """y_T ~ B(1/2)."""
        return draw(torch.full(tuple(shape), 0.5, dtype=like.dtype, device=like.device), generators)

    def q_sample(self, y0: Tensor, t: Time, generators: Generators) -> tuple[Tensor, Tensor]:
        return q_sample(self.schedule, y0, t, generators)

    def loss(
        self, output: Tensor, y0: Tensor, y_t: Tensor, eps: Tensor, t: Time, weight: Tensor | None = None
    ) -> dict[str, Tensor]:
        weights = self.lambda_kl, self.lambda_bce
        return total_loss(self.schedule, output, y0, y_t, eps, t, self.prediction, *weights, self.posterior, weight)

    def step(
        self, sampler: Sampler, output: Tensor, y_t: Tensor, t: int, s: int, generators: Generators
    ) -> tuple[Tensor, Tensor]:
        """With shared noise a hard y0 is drawn first, by one level for the whole mask, and the step follows it.

        A step is linear in y0 (but for the soft posterior), so each pixel's law is the same; only now the pixels agree
        whether they are in doubt together. In two or three steps that is most of what there is to draw; in ten it is
        too much, and in the limit the two are the same (docs/deviations.md).
        """
        y0_hat = y0 = estimate_logits(self.schedule, self.prediction, output, y_t, t).sigmoid()
        if s == 0 and self.nonempty:
            return draw_nonempty(y0_hat, sampler, generators), y0_hat
        if not (s == 0 and sampler.last_step == "threshold"):
            if sampler.noise == "shared":
                y0 = draw_level(y0_hat, generators, sampler.smallest)
            elif self.prediction == "prior" and sampler.rule == "ddpm" and sampler.posterior == "soft":
                y0 = output.sigmoid()  # the soft form adds the pixel's own evidence itself
        return draw(step_prob(self.schedule, sampler, y_t, y0, t, s), generators), y0_hat

    def check(self, sampler: Sampler) -> None:
        if sampler.smallest > 1 and not self.nonempty:  # a level above all pixels is then an answer, not a gap
            raise ValueError(f"smallest: expected 1 without a hurdle, found {sampler.smallest}")
        if self.nonempty and sampler.last_step == "sample" and sampler.noise == "independent":
            raise ValueError("noise: expected shared where a hurdle's last step is sampled, found independent")

    def empty_output(self, y_t: Tensor) -> Tensor:
        """The output that says: no pixel is marked."""
        # infinite logits as they are: to compute them, logit(0), is as slow as a convolution
        return (2 * y_t - 1) * torch.inf if self.prediction == "noise" else torch.full_like(y_t, -torch.inf)

    def to_mean(self, output: Tensor) -> Tensor:
        """Probabilities. With the noise as prediction too that is the mean of the estimated masks, since
        |y_t - eps_hat| is linear in eps_hat for the one y_t that all tiles see."""
        return output.sigmoid()

    def from_mean(self, mean: Tensor) -> Tensor:
        return mean.clamp(0, 1).logit()  # rounding leaves it a hair outside at the ends


def draw_nonempty(y0_hat: Tensor, sampler: Sampler, generators: Generators) -> Tensor:
    """The last step, from the estimate `(B, N, K, *S)`, given that some pixel of the mask is marked.

    Sampled, by shared noise, it is the law of a draw from the estimate without its empty outcome. Thresholded, the cut
    is 1/2, or half of the largest probability where fewer than `smallest` pixels reach 1/2. Where no pixel has a
    probability above 0 the mask stays empty.
    """
    largest = y0_hat.flatten(2).amax(2).reshape(*y0_hat.shape[:2], *[1] * (y0_hat.ndim - 2))
    if sampler.last_step == "threshold":
        few = (y0_hat >= 0.5).any(2).flatten(2).sum(2).reshape(largest.shape) < sampler.smallest
        cut = torch.where(few, largest / 2, 0.5)
        return ((y0_hat >= cut) & (y0_hat > 0)).to(y0_hat.dtype)
    return draw_level((y0_hat / largest).nan_to_num(), generators, sampler.smallest)


def step_prob(schedule: NoiseSchedule, sampler: Sampler, y_t: Tensor, y0: Tensor, t: int, s: int) -> Tensor:
    """Algorithm 2: the probability that y_s = 1, all there is to know about one step of a sampler."""
    if s == 0 and sampler.last_step == "threshold":
        return (y0 >= 0.5).to(y_t.dtype)
    if sampler.rule == "ddpm":
        return reverse_mean(schedule, y_t, y0, t, s, sampler.posterior)
    return sigma_post(schedule, y_t, y0, t, s, sampler.sigma * sigma_max(schedule, t, s, y_t))
