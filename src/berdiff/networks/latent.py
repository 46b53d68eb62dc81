"""Latent variables with diagonal Gaussians: the distribution, its divergence, the heads that give it, and a flow.

Distributions are float32, whatever the precision of the network around them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import pairwise
from typing import Generic, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Features = TypeVar("Features")
"""What `encode` leaves for `infer` and `generate`: a tensor, or nested tuples of tensors, batch first."""
Noise = Callable[[tuple[int, ...]], Tensor]
"""N(0, 1) of a shape `(B, N, ...)`: the caller's generators, in the order of the calls. Coarse latents come first."""


class LatentNetwork(nn.Module, ABC, Generic[Features]):
    """A mask is a function of the image and of latents z, whose prior p(z | image) and posterior q(z | image, mask) are
    networks too. The N masks of one image come together, so that work on the image is done once and shared."""

    def __init__(self, stride: int) -> None:
        """`stride`: height and width must be multiples of it."""
        super().__init__()
        self.stride = stride

    @abstractmethod
    def encode(self, image: Tensor) -> Features:
        """image `(B, C, H, W)` in [0, 1] -> features, run once per image."""

    @abstractmethod
    def infer(self, features: Features, image: Tensor, y: Tensor, noise: Noise) -> tuple[Tensor, list[Tensor]]:
        """With z from the posterior of each mask y `(B, N, K, H, W)`: logits like y, and KL(q || p) `(B, N)` of each
        level of latents, the coarsest first."""

    @abstractmethod
    def generate(self, features: Features, N: int, noise: Noise) -> Tensor:
        """With z from the prior: logits `(B, N, K, H, W)`."""


def beside(image: Tensor, y: Tensor) -> Tensor:
    """What a posterior sees: image `(B, C, H, W)`, y `(B, N, K, H, W)` -> `(B * N, C + K, H, W)`."""
    return torch.cat([image.unsqueeze(1).expand(-1, y.shape[1], -1, -1, -1), y.to(image.dtype)], 2).flatten(0, 1)


LOG_SIGMA = (-8.0, 4.0)
"""The bounds of log sigma: the exponential of an unbounded one overflows in long trainings."""


class Gaussian(NamedTuple):
    """A normal distribution for each element; a pair of tensors, so that it can be a part of `encode`'s features."""

    mean: Tensor
    log_sigma: Tensor

    def draw(self, noise: Tensor) -> Tensor:
        """z = mean + sigma noise, with noise ~ N(0, 1) that the caller drew; it may have more masks than the mean."""
        return self.mean + self.log_sigma.exp() * noise


def bounded(mean: Tensor, raw: Tensor) -> Gaussian:
    """`raw` is a log sigma of any size: near 0 it stays, far from it it approaches the bounds."""
    low, high = LOG_SIGMA
    raw = raw.float()
    return Gaussian(mean.float(), torch.where(raw < 0, low * torch.tanh(raw / low), high * torch.tanh(raw / high)))


def kl(q: Gaussian, p: Gaussian) -> Tensor:
    """KL(q || p) of each element, in closed form; shapes broadcast, and the caller sums."""
    ratio = q.log_sigma - p.log_sigma
    distance = (q.mean - p.mean) * torch.exp(-p.log_sigma)
    return (torch.exp(2 * ratio) + distance**2 - 1) / 2 - ratio


class VectorHead(nn.Module):
    """A vector of latents for the whole image: features averaged over space, then a linear map."""

    def __init__(self, channels: int, dims: int) -> None:
        super().__init__()
        self.linear = nn.Linear(channels, 2 * dims)

    def forward(self, features: Tensor) -> Gaussian:
        """`(B, channels, h, w)` -> a Gaussian of `(B, dims)`."""
        mean, raw = self.linear(features.mean((2, 3))).chunk(2, 1)
        return bounded(mean, raw)


class MapHead(nn.Module):
    """Latents at each pixel of a level: a 1x1 convolution."""

    def __init__(self, channels: int, dims: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 2 * dims, 1)

    def forward(self, features: Tensor) -> Gaussian:
        """`(B, channels, h, w)` -> a Gaussian of `(B, dims, h, w)`."""
        mean, raw = self.conv(features).chunk(2, 1)
        return bounded(mean, raw)


class Couplings(nn.Module):
    """NICE: additive couplings of alternating halves, then a scale of each dimension. It begins as the identity."""

    def __init__(self, dims: int, hidden: int = 30, couplings: int = 4, layers: int = 4) -> None:
        """`layers`: linear maps of each coupling's network, with `hidden` units between them."""
        super().__init__()
        if dims % 2:
            raise ValueError(f"dims: expected an even number, found {dims}")
        half = dims // 2
        widths = [half, *[hidden] * (layers - 1), half]
        self.shifts = nn.ModuleList(_Shift(widths) for _ in range(couplings))
        self.log_scale = nn.Parameter(torch.zeros(dims))

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """z `(..., dims)` -> the same shape, and log |det| of the map, one number."""
        a, b = z.float().chunk(2, -1)
        for shift in self.shifts:
            a, b = b + shift(a), a
        return torch.cat([a, b], -1) * self.log_scale.exp(), self.log_scale.sum()

    def inverse(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """The inverse of `forward`, and log |det| of the inverse."""
        a, b = (z.float() * torch.exp(-self.log_scale)).chunk(2, -1)
        for shift in reversed(self.shifts):
            a, b = b, a - shift(b)
        return torch.cat([a, b], -1), -self.log_scale.sum()


class _Shift(nn.Module):
    """What one half adds to the other: 0 at the beginning."""

    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        last = self.layers[-1]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def forward(self, x: Tensor) -> Tensor:
        *hidden, last = self.layers
        for layer in hidden:
            x = F.leaky_relu(layer(x), 0.2)
        return last(x)
