"""Gaussian noise on masks as -1 and 1: the other kernel of table 2, and what SegDiff is at heart."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from berdiff.diffusion import gaussian
from berdiff.diffusion.kernels.base import Kernel
from berdiff.diffusion.losses import over_masks
from berdiff.diffusion.random import Generators, normal
from berdiff.diffusion.sampler import GaussianSampler, Sampler
from berdiff.diffusion.schedule import Time, sqrt


@dataclass(frozen=True, eq=False)
class Gaussian(Kernel):
    """The squared error of the estimated noise, or of the mask as -1 and 1. The network sees y_t itself.

    `Sampler.sigma` is DDIM's eta: 0 is DDIM as it is usually run, where all chance lies in y_T; 1 has DDPM's variance.
    """

    options: ClassVar[type[Sampler]] = GaussianSampler
    signed: ClassVar[bool] = True
    prediction: Literal["noise", "mask"] = "noise"

    def prior(self, shape: Sequence[int], generators: Generators, like: Tensor) -> Tensor:
        """y_T ~ N(0, 1)."""
        return normal(shape, generators, like)

    def q_sample(self, y0: Tensor, t: Time, generators: Generators) -> tuple[Tensor, Tensor]:
        return gaussian.q_sample(self.schedule, gaussian.to_signal(y0), t, generators)

    def loss(
        self, output: Tensor, y0: Tensor, y_t: Tensor, eps: Tensor, t: Time, weight: Tensor | None = None
    ) -> dict[str, Tensor]:
        target = eps if self.prediction == "noise" else gaussian.to_signal(y0)
        mse = over_masks((output - target).square(), weight)
        return {"loss": mse, "mse": mse}

    def step(
        self, sampler: Sampler, output: Tensor, y_t: Tensor, t: int, s: int, generators: Generators
    ) -> tuple[Tensor, Tensor]:
        if self.prediction == "noise":
            y0_hat = gaussian.predict_y0(self.schedule, y_t, output, t)
        else:  # not by way of the noise: where alpha_bar_t = 0 nothing leads back from it
            y0_hat = output.clamp(-1, 1)
        if sampler.rule == "ddpm":
            mean, variance = gaussian.posterior(self.schedule, y_t, y0_hat, t, s)
        else:
            mean, variance = gaussian.ddim_moments(self.schedule, y_t, y0_hat, t, s, sampler.sigma)
        return mean + sqrt(variance) * normal(y_t.shape, generators, y_t), y0_hat

    def to_mask(self, y_0: Tensor) -> Tensor:
        return gaussian.to_mask(y_0)

    def to_mean(self, output: Tensor) -> Tensor:
        return output  # an estimate of a mean: means of it are estimates too

    def from_mean(self, mean: Tensor) -> Tensor:
        return mean
