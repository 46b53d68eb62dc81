"""The paper's 1D toy (appendix, "Toy example"): p(y = 1 | x) learnt by Bernoulli and by Gaussian diffusion.

Both kernels get the same 4-layer MLP, schedule, learning rate, number of steps and data. The seeds are trained side by
side, as one batched MLP: one tensor operation instead of a loop over seeds.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor, nn

from berdiff.data.case import Progress
from berdiff.diffusion import gaussian
from berdiff.diffusion.bernoulli import draw
from berdiff.diffusion.gaussian import Gaussian
from berdiff.diffusion.kernels.base import Kernel
from berdiff.diffusion.kernels.bernoulli import Bernoulli
from berdiff.diffusion.sampler import Sampler
from berdiff.diffusion.sampling import sample
from berdiff.diffusion.schedule import NoiseSchedule, linear


def smooth(x: Tensor) -> Tensor:
    """One period and a half of a sine: every probability between 0.05 and 0.95 occurs."""
    return 0.5 + 0.45 * torch.sin(3 * math.pi * x)


def jumps(x: Tensor) -> Tensor:
    """Five plateaus with jumps between them, certain regions included."""
    levels = torch.tensor([0.1, 0.8, 0.0, 0.5, 1.0], dtype=x.dtype)
    return levels[(x * len(levels)).long().clamp(max=len(levels) - 1)]


@dataclass(frozen=True)
class ToyKernel:
    kernel: Callable[[NoiseSchedule], Kernel]
    sampler: Sampler
    signal: Callable[[Tensor], Tensor]  # y_t as the network sees it, around 0


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {"smooth": smooth, "jumps": jumps}
KERNELS = {
    # the last step is sampled, so that the mean is a probability; the Gaussian's last step has no noise in it
    "bernoulli": ToyKernel(Bernoulli, Sampler(last_step="sample"), gaussian.to_signal),
    "gaussian": ToyKernel(Gaussian, Sampler(sigma=0.0), lambda y_t: y_t),  # DDIM as published
}
AT_ONCE = 5  # samples of each point that go through the network together


@dataclass(frozen=True)
class ToyConfig:
    """The paper's: 4 layers, learning rate 1e-3, 1000 points x 100 samples; it leaves the rest open."""

    seeds: int = 5
    checkpoints: tuple[int, ...] = (100, 200, 400, 800, 1600, 3200)  # iterations after which the MSE is taken
    batch: int = 256
    lr: float = 1e-3
    width: int = 64
    T: int = 1000
    steps: int = 10
    points: int = 1000
    samples: int = 100

    @property
    def grid(self) -> Tensor:
        return (torch.arange(self.points) + 0.5) / self.points


@dataclass(frozen=True, eq=False)
class ToyCurve:
    """One kernel on one function."""

    function: str
    kernel: str
    iterations: tuple[int, ...]
    mse: Tensor  # (len(iterations), seeds)
    probability: Tensor  # (seeds, points): the last estimate of p(y = 1 | x)


class SeedsMLP(nn.Module):
    """S independent 4-layer MLPs as one: inputs `(S, M)` each of y_t, x, and one t or `(S, M)` of them -> `(S, M)`."""

    FREQUENCIES = 4

    def __init__(self, seeds: int, width: int, T: int, generator: torch.Generator) -> None:
        super().__init__()
        self.T = T
        sizes = [2 + 2 * self.FREQUENCIES, width, width, width, 1]
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for fan_in, fan_out in pairwise(sizes):
            bound = fan_in**-0.5  # the default of nn.Linear
            initial = torch.rand(seeds, fan_in + 1, fan_out, generator=generator) * 2 * bound - bound
            self.weights.append(nn.Parameter(initial[:, :-1].clone()))
            self.biases.append(nn.Parameter(initial[:, -1:].clone()))

    def forward(self, signal: Tensor, t: Tensor | int, x: Tensor) -> Tensor:
        u = torch.as_tensor(t).expand(x.shape).to(x.dtype) / self.T * math.pi
        waves = [wave(u * 2**k) for k in range(self.FREQUENCIES) for wave in (torch.sin, torch.cos)]
        h = torch.stack([signal, 2 * x - 1, *waves], -1)
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            h = torch.baddbmm(bias, h if layer == 0 else nn.functional.silu(h), weight)
        return h.squeeze(-1)


def run_toy(config: ToyConfig, progress: Progress = lambda done, total: None) -> list[ToyCurve]:
    """All curves of the figure; `progress` gets (done, total) iterations."""
    jobs = [(name, kernel) for name in FUNCTIONS for kernel in KERNELS]
    length = config.checkpoints[-1]
    return [
        _train(config, name, kernel, lambda done, k=k: progress(k * length + done, len(jobs) * length))
        for k, (name, kernel) in enumerate(jobs)
    ]


def _train(config: ToyConfig, name: str, kernel_name: str, progress: Callable[[int], None]) -> ToyCurve:
    p, toy = FUNCTIONS[name], KERNELS[kernel_name]
    kernel = toy.kernel(linear(config.T))
    generator = torch.Generator().manual_seed(0)  # data and initial weights are the same for both kernels
    net = SeedsMLP(config.seeds, config.width, config.T, generator)
    optimizer = torch.optim.Adam(net.parameters(), config.lr)
    shape = (config.seeds, config.batch)
    mse, estimate = [], torch.empty(0)
    for iteration in range(1, config.checkpoints[-1] + 1):
        x = torch.rand(shape, generator=generator)
        y0 = draw(p(x), generator)
        t = torch.randint(1, config.T + 1, shape, generator=generator)
        y_t, eps = kernel.q_sample(y0, t, generator)
        loss = kernel.loss(net(toy.signal(y_t), t, x), y0, y_t, eps, t)["loss"]
        optimizer.zero_grad()
        (loss * config.seeds).backward()  # the mean runs over seeds too: each gets the gradient it has by itself
        optimizer.step()
        if iteration in config.checkpoints:
            estimate = estimate_probability(config, net, toy)
            mse.append((estimate - p(config.grid)).square().mean(1))
        progress(iteration)
    return ToyCurve(name, kernel_name, config.checkpoints, torch.stack(mse), estimate)


@torch.no_grad()
def estimate_probability(config: ToyConfig, net: SeedsMLP, toy: ToyKernel) -> Tensor:
    """The mean of `samples` values y0 at each point `(seeds, points)`."""
    kernel, generator = toy.kernel(linear(config.T)), torch.Generator().manual_seed(1)
    sampler = replace(toy.sampler, steps=config.steps)
    total = torch.zeros(config.seeds, config.points)
    for first in range(0, config.samples, AT_ONCE):
        count = min(AT_ONCE, config.samples - first)
        x = config.grid.repeat(count).expand(config.seeds, -1)
        y_T = kernel.prior(x.shape, generator, x)
        y0 = sample(kernel, sampler, lambda y_t, t, x=x: net(toy.signal(y_t), t, x), y_T, generator)
        total += y0.reshape(config.seeds, count, config.points).sum(1)
    return total / config.samples
