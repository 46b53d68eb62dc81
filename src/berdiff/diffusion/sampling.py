"""Algorithm 2: from noise to a mask over any sub-sequence of the steps, by DDPM's or DDIM's rule."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from berdiff.diffusion.bernoulli import Posterior, draw, draw_level, reverse_mean, sigma_max, sigma_post
from berdiff.diffusion.random import Generators
from berdiff.diffusion.schedule import NoiseSchedule


@dataclass(frozen=True)
class Sampler:
    """How to walk back. The defaults are the paper's: ten uniform steps of DDIM, the last one thresholded."""

    steps: int | tuple[int, ...] = 10  # how many, or the very steps t, falling
    rule: Literal["ddim", "ddpm"] = "ddim"
    posterior: Posterior = "soft"  # of DDPM's rule: the paper's soft form, or the exact marginal
    sigma: float = 1.0  # of DDIM's rule: sigma_t as a share of its largest value
    spacing: Literal["uniform", "quadratic"] = "uniform"
    last_step: Literal["threshold", "sample"] = "threshold"
    latent: Literal["pixel", "shared"] = "pixel"  # what is drawn: each pixel by itself, or all by one level a mask

    def __post_init__(self) -> None:
        for name, allowed in (
            ("rule", ("ddim", "ddpm")),
            ("posterior", ("soft", "marginal")),
            ("spacing", ("uniform", "quadratic")),
            ("last_step", ("threshold", "sample")),
            ("latent", ("pixel", "shared")),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}: expected one of {', '.join(allowed)}, found {getattr(self, name)!r}")
        if not 0 <= self.sigma <= 1:
            raise ValueError(f"sigma: expected a share of the largest value in [0, 1], found {self.sigma}")


def time_grid(T: int, steps: int | Sequence[int], spacing: str = "uniform") -> tuple[int, ...]:
    """Falling t, ending in 0: `steps` of them from T down (quadratic: denser near 0), or the given ones."""
    if isinstance(steps, int):
        if not 1 <= steps <= T:
            raise ValueError(f"steps: expected 1 <= steps <= T = {T}, found {steps}")
        u = [1 - i / steps for i in range(steps + 1)]
        grid = [round(T * (v if spacing == "uniform" else v * v)) for v in u]
        for i in range(steps, 0, -1):  # rounding must not merge two steps
            grid[i - 1] = max(grid[i - 1], grid[i] + 1)
        return tuple(grid)
    grid = tuple(int(t) for t in steps)
    if not grid or grid[0] > T or grid[-1] < 1 or any(s >= t for t, s in pairwise(grid)):
        raise ValueError(f"steps: expected falling values in 1..T = {T}, found {list(grid)}")
    return (*grid, 0)


def ddpm_step(
    schedule: NoiseSchedule, y_t: Tensor, y0_hat: Tensor, t: int, s: int, posterior: Posterior = "soft"
) -> Tensor:
    """DDPM's line of algorithm 2, as the probability that y_s = 1."""
    return reverse_mean(schedule, y_t, y0_hat, t, s, posterior)


def ddim_step(schedule: NoiseSchedule, y_t: Tensor, y0_hat: Tensor, t: int, s: int, sigma: float = 1.0) -> Tensor:
    """DDIM's line of algorithm 2, as the probability that y_s = 1; sigma as a share of its largest value."""
    return sigma_post(schedule, y_t, y0_hat, t, s, sigma * sigma_max(schedule, t, s, y_t))


def step_prob(schedule: NoiseSchedule, sampler: Sampler, y_t: Tensor, y0_hat: Tensor, t: int, s: int) -> Tensor:
    """The probability that y_s = 1: all there is to know about one step of a sampler."""
    if s == 0 and sampler.last_step == "threshold":
        return (y0_hat >= 0.5).to(y_t.dtype)
    if sampler.rule == "ddpm":
        return ddpm_step(schedule, y_t, y0_hat, t, s, sampler.posterior)
    return ddim_step(schedule, y_t, y0_hat, t, s, sampler.sigma)


@dataclass(frozen=True, eq=False)
class Step:
    """What a callback is told after each step."""

    index: int  # 0 .. total - 1
    total: int
    t: int
    s: int
    y_s: Tensor
    y0_hat: Tensor


Callback = Callable[[Step], None]


def walk(
    y_T: Tensor,
    grid: Sequence[int],
    step: Callable[[Tensor, int, int], tuple[Tensor, Tensor]],
    callback: Callback | None = None,
) -> Tensor:
    """The one loop, for either kernel: step(y_t, t, s) -> (y_s, y0_hat) over the pairs of the grid."""
    y = y_T
    for index, (t, s) in enumerate(pairwise(grid)):
        y, y0_hat = step(y, t, s)
        if callback is not None:
            callback(Step(index, len(grid) - 1, t, s, y, y0_hat))
    return y


@torch.no_grad()
def sample(
    schedule: NoiseSchedule,
    sampler: Sampler,
    predict: Callable[[Tensor, int], Tensor],
    y_T: Tensor,
    generator: Generators,
    callback: Callback | None = None,
) -> Tensor:
    """Algorithm 2: from y_T to y_0. predict(y_t, t) is the estimated mask, the probability that y0 = 1.

    With a shared latent, a hard y0 is drawn first, by one level for the whole mask, and the step follows it. A step is
    linear in y0 (but for the soft posterior), so each pixel's law is the same; only now the pixels agree whether they
    are in doubt together. In two or three steps that is most of what there is to draw; in ten it is too much, and in
    the limit the two are the same (docs/deviations.md).
    """

    def step(y_t: Tensor, t: int, s: int) -> tuple[Tensor, Tensor]:
        y0_hat = y0 = predict(y_t, t)
        if sampler.latent == "shared" and not (s == 0 and sampler.last_step == "threshold"):
            y0 = draw_level(y0_hat, generator)
        return draw(step_prob(schedule, sampler, y_t, y0, t, s), generator), y0_hat

    return walk(y_T, time_grid(schedule.T, sampler.steps, sampler.spacing), step, callback)


def initial_noise(shape: Sequence[int], generator: Generators, like: Tensor) -> Tensor:
    """y_T ~ B(1/2)."""
    return draw(torch.full(tuple(shape), 0.5, dtype=like.dtype, device=like.device), generator)


def sample_generators(
    seed: int, keys: Sequence[str], n: int, device: torch.device | str = "cpu"
) -> list[torch.Generator]:
    """One generator for each of n samples of each key (a case's name), image-major.

    A sample depends on the seed, its key and its number alone: not on the batch, the order or n.
    """
    return [torch.Generator(device).manual_seed(_seed_of(f"{seed}|{key}|{i}")) for key in keys for i in range(n)]


def spawn_generators(generator: torch.Generator, count: int) -> list[torch.Generator]:
    """`count` generators seeded from one."""
    seeds = torch.randint(2**62, (count,), generator=generator, device=generator.device)
    return [torch.Generator(generator.device).manual_seed(seed) for seed in seeds.tolist()]


def _seed_of(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
