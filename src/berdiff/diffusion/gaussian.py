"""The other kernel: Gaussian noise on masks scaled to {-1, 1}, epsilon-prediction (table 2, SegDiff, MedSegDiff).

The same schedule, the same explicit pair (t, s), the same loop; only the noise differs.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from berdiff.diffusion.bernoulli import Generators
from berdiff.diffusion.sampling import Callback, Sampler, time_grid, walk
from berdiff.diffusion.schedule import NoiseSchedule, Time


def to_signal(mask: Tensor) -> Tensor:
    """A 0/1 mask as -1/1, centred like the noise."""
    return 2 * mask - 1


def to_mask(y: Tensor) -> Tensor:
    """Back to 0/1: the sign."""
    return (y > 0).to(y.dtype)


def normal(shape: Sequence[int], generator: Generators, like: Tensor) -> Tensor:
    """Standard normal noise; with many generators, one for each mask of the leading dimensions."""
    if isinstance(generator, torch.Generator):
        return torch.randn(tuple(shape), generator=generator, dtype=like.dtype, device=like.device)
    pixels = like.new_empty(tuple(shape)).numel() // len(generator)
    rows = [torch.randn(pixels, generator=g, dtype=like.dtype, device=like.device) for g in generator]
    return torch.stack(rows).reshape(tuple(shape))


def q_sample(schedule: NoiseSchedule, y0: Tensor, t: Time, generator: Generators) -> tuple[Tensor, Tensor]:
    """(y_t, eps) with y_t = sqrt(alpha_bar_t) y0 + sqrt(1 - alpha_bar_t) eps."""
    schedule.check(t)
    alpha_bar_t = schedule.at(t, y0)
    eps = normal(y0.shape, generator, y0)
    return alpha_bar_t.sqrt() * y0 + (1 - alpha_bar_t).sqrt() * eps, eps


def predict_y0(schedule: NoiseSchedule, y_t: Tensor, eps_hat: Tensor, t: Time) -> Tensor:
    """The estimated signal from the estimated noise, clipped to where signals live."""
    alpha_bar_t = schedule.at(t, y_t)
    return ((y_t - (1 - alpha_bar_t).sqrt() * eps_hat) / alpha_bar_t.sqrt()).clamp(-1, 1)


def posterior(schedule: NoiseSchedule, y_t: Tensor, y0: Tensor, t: Time, s: Time) -> tuple[Tensor, Tensor]:
    """(mean, variance) of q(y_s | y_t, y0) for any s < t: DDPM's rule."""
    a, b, alpha_bar_t = schedule.pair(t, s, y_t)
    mean = (b.sqrt() * (1 - a) * y0 + a.sqrt() * (1 - b) * y_t) / (1 - alpha_bar_t)
    return mean, (1 - b) * (1 - a) / (1 - alpha_bar_t)


def ddim_moments(
    schedule: NoiseSchedule, y_t: Tensor, y0: Tensor, t: Time, s: Time, eta: float = 0.0
) -> tuple[Tensor, Tensor]:
    """(mean, variance) of DDIM's step; eta = 0 is deterministic, eta = 1 is DDPM's posterior."""
    _, b, alpha_bar_t = schedule.pair(t, s, y_t)
    _, variance = posterior(schedule, y_t, y0, t, s)
    variance = eta**2 * variance
    eps = (y_t - alpha_bar_t.sqrt() * y0) / (1 - alpha_bar_t).sqrt()
    return b.sqrt() * y0 + (1 - b - variance).clamp(min=0).sqrt() * eps, variance


@torch.no_grad()
def sample(
    schedule: NoiseSchedule,
    sampler: Sampler,
    predict_eps: Callable[[Tensor, int], Tensor],
    y_T: Tensor,
    generator: Generators,
    callback: Callback | None = None,
) -> Tensor:
    """From y_T ~ N(0, 1) to a 0/1 mask. `sampler.sigma` is DDIM's eta; the last step has no noise, then the sign."""

    def step(y_t: Tensor, t: int, s: int) -> tuple[Tensor, Tensor]:
        y0_hat = predict_y0(schedule, y_t, predict_eps(y_t, t), t)
        if sampler.rule == "ddpm":
            mean, variance = posterior(schedule, y_t, y0_hat, t, s)
        else:
            mean, variance = ddim_moments(schedule, y_t, y0_hat, t, s, sampler.sigma)
        return mean + variance.sqrt() * normal(y_t.shape, generator, y_t), y0_hat

    return to_mask(walk(y_T, time_grid(schedule.T, sampler.steps, sampler.spacing), step, callback))
