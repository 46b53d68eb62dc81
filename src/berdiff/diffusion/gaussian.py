"""The other kernel: Gaussian noise on masks scaled to {-1, 1}, epsilon-prediction (table 2, SegDiff, MedSegDiff).

The same schedule, the same explicit pair (t, s); only the noise differs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from berdiff.diffusion.kernels.base import Kernel
from berdiff.diffusion.losses import over_masks
from berdiff.diffusion.random import Generators, normal
from berdiff.diffusion.sampler import GaussianSampler, Sampler
from berdiff.diffusion.schedule import NoiseSchedule, Time, cast, sqrt


def to_signal(mask: Tensor) -> Tensor:
    """A 0/1 mask as -1/1, centred like the noise."""
    return 2 * mask - 1


def to_mask(y: Tensor) -> Tensor:
    """Back to 0/1: the sign."""
    return (y > 0).to(y.dtype)


def q_sample(schedule: NoiseSchedule, y0: Tensor, t: Time, generators: Generators) -> tuple[Tensor, Tensor]:
    """(y_t, eps) with y_t = sqrt(alpha_bar_t) y0 + sqrt(1 - alpha_bar_t) eps."""
    schedule.check(t)
    alpha_bar_t = schedule.at(t, y0)
    signal, noise = cast(y0, sqrt(alpha_bar_t), sqrt(1 - alpha_bar_t))
    eps = normal(y0.shape, generators, y0)
    return signal * y0 + noise * eps, eps


def predict_y0(schedule: NoiseSchedule, y_t: Tensor, eps_hat: Tensor, t: Time) -> Tensor:
    """The estimated signal from the estimated noise, clipped to where signals live.

    Where alpha_bar_t = 0 all of y_t is noise and tells nothing of the signal: 0, the middle.
    """
    alpha_bar_t = schedule.at(t, y_t)
    signal, noise = cast(y_t, sqrt(alpha_bar_t), sqrt(1 - alpha_bar_t))
    if not isinstance(signal, Tensor):
        return ((y_t - noise * eps_hat) / signal).clamp(-1, 1) if signal > 0 else torch.zeros_like(y_t)
    return torch.where(signal > 0, (y_t - noise * eps_hat) / signal, 0).clamp(-1, 1)


def posterior(schedule: NoiseSchedule, y_t: Tensor, y0: Tensor, t: Time, s: Time) -> tuple[Tensor, Any]:
    """(mean, variance) of q(y_s | y_t, y0) for any s < t: DDPM's rule."""
    a, b, alpha_bar_t = schedule.pair(t, s, y_t)
    of_y0, of_y_t, variance = cast(
        y_t,
        sqrt(b) * (1 - a) / (1 - alpha_bar_t),
        sqrt(a) * (1 - b) / (1 - alpha_bar_t),
        (1 - b) * (1 - a) / (1 - alpha_bar_t),
    )
    return of_y0 * y0 + of_y_t * y_t, variance


def ddim_moments(
    schedule: NoiseSchedule, y_t: Tensor, y0: Tensor, t: Time, s: Time, eta: float = 0.0
) -> tuple[Tensor, Any]:
    """(mean, variance) of DDIM's step; eta = 0 is deterministic, eta = 1 is DDPM's posterior."""
    a, b, alpha_bar_t = schedule.pair(t, s, y_t)
    variance = eta**2 * (1 - b) * (1 - a) / (1 - alpha_bar_t)
    share = (1 - b - variance) / (1 - alpha_bar_t)  # and eps = (y_t - signal * y0) / noise
    of_eps = sqrt(share.clamp(min=0) if isinstance(share, Tensor) else max(share, 0.0))
    of_y0, of_y_t, variance = cast(y_t, sqrt(b) - of_eps * sqrt(alpha_bar_t), of_eps, variance)
    return of_y0 * y0 + of_y_t * y_t, variance


# --- the kernel ------------------------------------------------------------------------------------------------------


class SignedKernel(Kernel):
    """Noise on masks as -1 and 1, and N(0, 1) at T. The network sees y_t itself."""

    signed: ClassVar[bool] = True

    def prior(self, shape: Sequence[int], generators: Generators, like: Tensor) -> Tensor:
        return normal(shape, generators, like)

    def to_mask(self, y_0: Tensor) -> Tensor:
        return to_mask(y_0)


@dataclass(frozen=True, eq=False)
class Gaussian(SignedKernel):
    """The squared error of the estimated noise, or of the mask as -1 and 1; means of either are estimates too.

    `Sampler.sigma` is DDIM's eta: 0 is DDIM as it is usually run, where all chance lies in y_T; 1 has DDPM's variance.
    """

    options: ClassVar[type[Sampler]] = GaussianSampler
    prediction: Literal["noise", "mask"] = "noise"

    def q_sample(self, y0: Tensor, t: Time, generators: Generators) -> tuple[Tensor, Tensor]:
        return q_sample(self.schedule, to_signal(y0), t, generators)

    def loss(
        self, output: Tensor, y0: Tensor, y_t: Tensor, eps: Tensor, t: Time, weight: Tensor | None = None
    ) -> dict[str, Tensor]:
        target = eps if self.prediction == "noise" else to_signal(y0)
        mse = over_masks((output - target).square(), weight)
        return {"loss": mse, "mse": mse}

    def step(
        self, sampler: Sampler, output: Tensor, y_t: Tensor, t: int, s: int, generators: Generators
    ) -> tuple[Tensor, Tensor]:
        if self.prediction == "noise":
            y0_hat = predict_y0(self.schedule, y_t, output, t)
        else:  # not by way of the noise: where alpha_bar_t = 0 nothing leads back from it
            y0_hat = output.clamp(-1, 1)
        if sampler.rule == "ddpm":
            mean, variance = posterior(self.schedule, y_t, y0_hat, t, s)
        else:
            mean, variance = ddim_moments(self.schedule, y_t, y0_hat, t, s, sampler.sigma)
        return mean + sqrt(variance) * normal(y_t.shape, generators, y_t), y0_hat
