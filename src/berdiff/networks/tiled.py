"""Images larger than the network: ONE diffusion over the whole image, each step's output joined from overlapping tiles.

Stitching finished masks would not do: two tiles draw different plausible masks, and a seam would join halves of two
different opinions. Here all tiles look at the same noisy mask y_t of the whole image, their outputs are averaged where
they overlap, and one draw makes the next y_s. So a sample is one opinion everywhere.
"""

from collections.abc import Callable
from functools import reduce
from itertools import product
from typing import Any

import torch
from torch import Tensor

from berdiff.networks.check_image import Size
from berdiff.networks.denoiser import Denoiser

Link = Callable[[Tensor], Tensor]


def starts(length: int, size: int, overlap: float) -> list[int]:
    """Where tiles begin so that they cover `length`, evenly, each sharing at least `overlap` of it with the next."""
    step = max(1, int(size * (1 - overlap)))
    gaps = -(-(length - size) // step)  # rounded up
    return [round(i * (length - size) / gaps) for i in range(gaps + 1)] if gaps else [0]


def weight(size: Size, like: Tensor) -> Tensor:
    """Of a tile, largest in its middle and above 0 everywhere: a network knows least about its border."""
    sides = [torch.sin(torch.pi * (torch.arange(n, device=like.device, dtype=like.dtype) + 0.5) / n) ** 2 for n in size]
    return reduce(lambda outer, side: outer.unsqueeze(-1) * side, sides)


class TiledDenoiser(Denoiser[tuple[Any, ...]]):
    """A `Denoiser` for images of any size, from one that knows a single size."""

    def __init__(self, network: Denoiser[Any], size: Size, overlap: float, to_mean: Link, from_mean: Link) -> None:
        """`to_mean` and `from_mean`: a kernel's rule, on what scale outputs are averaged."""
        super().__init__(network.preset, network.image_channels, network.targets)
        self.stride, self.centred = 1, network.centred
        self.network, self.size, self.overlap = network, size, overlap
        self.to_mean, self.from_mean = to_mean, from_mean

    def encode(self, image: Tensor) -> tuple[Any, ...]:
        """The features of each tile."""
        return tuple(self.network.encode(image[..., *place]) for place in self._places(image))

    def denoise(self, y_t: Tensor, t: Tensor, features: tuple[Any, ...]) -> Tensor:
        """The tiles follow each other, so memory does not grow."""
        one = weight(self.size, y_t)
        total, weights = torch.zeros_like(y_t), torch.zeros_like(y_t[0, 0, 0])
        for place, of_tile in zip(self._places(y_t), features, strict=True):
            part = y_t[..., *place].contiguous()
            total[..., *place] += one * self.to_mean(self.network.denoise(part, t, of_tile).float())
            weights[place] += one
        return self.from_mean(total / weights)

    def _places(self, image: Tensor) -> list[tuple[slice, ...]]:
        sides = zip(image.shape[-len(self.size) :], self.size, strict=True)
        ranges = [[slice(a, a + size) for a in starts(length, size, self.overlap)] for length, size in sides]
        return list(product(*ranges))
