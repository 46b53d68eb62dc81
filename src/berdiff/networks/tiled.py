"""Images larger than the network: ONE diffusion over the whole image, each step's output joined from overlapping tiles.

Stitching finished masks would not do: two tiles draw different plausible masks, and a seam would join halves of two
different opinions. Here all tiles look at the same noisy mask y_t of the whole image, their outputs are averaged where
they overlap, and one draw makes the next y_s. So a sample is one opinion everywhere.
"""

from collections.abc import Callable
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
    """(h, w), largest in the middle of a tile and above 0 everywhere: a network knows least about its border."""
    rows, columns = (
        torch.sin(torch.pi * (torch.arange(n, device=like.device, dtype=like.dtype) + 0.5) / n) ** 2 for n in size
    )
    return rows[:, None] * columns


class TiledDenoiser(Denoiser[tuple[Any, ...]]):
    """A `Denoiser` for images of any size, from one that knows a single size."""

    def __init__(self, network: Denoiser[Any], size: Size, overlap: float, to_mean: Link, from_mean: Link) -> None:
        """`to_mean` and `from_mean`: a kernel's rule, on what scale outputs are averaged."""
        super().__init__(network.preset, network.image_channels, network.targets)
        self.stride = 1
        self.network, self.size, self.overlap = network, size, overlap
        self.to_mean, self.from_mean = to_mean, from_mean

    def encode(self, image: Tensor) -> tuple[Any, ...]:
        """The features of each tile."""
        return tuple(self.network.encode(image[..., rows, columns]) for rows, columns in self._places(image))

    def denoise(self, y_t: Tensor, t: Tensor, features: tuple[Any, ...]) -> Tensor:
        """The tiles follow each other, so memory does not grow."""
        one = weight(self.size, y_t)
        total, weights = torch.zeros_like(y_t), torch.zeros_like(y_t[0, 0, 0])
        for (rows, columns), of_tile in zip(self._places(y_t), features, strict=True):
            part = y_t[..., rows, columns].contiguous()
            total[..., rows, columns] += one * self.to_mean(self.network.denoise(part, t, of_tile).float())
            weights[rows, columns] += one
        return self.from_mean(total / weights)

    def _places(self, image: Tensor) -> list[tuple[slice, slice]]:
        (h, w), (H, W) = self.size, image.shape[-2:]
        return [
            (slice(y, y + h), slice(x, x + w)) for y in starts(H, h, self.overlap) for x in starts(W, w, self.overlap)
        ]
