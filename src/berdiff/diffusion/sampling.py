"""Algorithm 2: from noise to a mask over any sub-sequence of the steps. One loop for every kernel."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from berdiff.diffusion.kernels.base import Kernel
from berdiff.diffusion.random import Generators
from berdiff.diffusion.sampler import Sampler, time_grid

Estimate = Callable[[Tensor, int], Tensor]
"""(y_t `(B, n, K, *S)`, t) -> the network's output, like y_t."""


@dataclass(frozen=True, eq=False)
class Step:
    """What a callback gets after each step."""

    index: int  # 0 .. total - 1
    total: int
    t: int
    s: int
    y_t: Tensor
    y_s: Tensor
    y0_hat: Tensor


Callback = Callable[[Step], None]


@torch.no_grad()
def sample(
    kernel: Kernel,
    sampler: Sampler,
    estimate: Estimate,
    y_T: Tensor,
    generators: Generators,
    callback: Callback | None = None,
) -> Tensor:
    """From y_T to a mask of 0 and 1."""
    y = y_T
    grid = time_grid(kernel.schedule.T, sampler.steps, sampler.spacing)
    for index, (t, s) in enumerate(pairwise(grid)):
        y_t = y
        y, y0_hat = kernel.step(sampler, estimate(y_t, t), y_t, t, s, generators)
        if callback is not None:
            callback(Step(index, len(grid) - 1, t, s, y_t, y, y0_hat))
    return kernel.to_mask(y)
