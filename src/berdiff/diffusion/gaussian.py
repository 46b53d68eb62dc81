"""The other kernel: Gaussian noise on masks scaled to {-1, 1}, epsilon-prediction (table 2, SegDiff, MedSegDiff).

The same schedule, the same explicit pair (t, s); only the noise differs.
"""

from typing import Any

import torch
from torch import Tensor

from berdiff.diffusion.random import Generators, normal
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
