"""Mixture of stochastic experts (Gao et al. 2023): a U-Net, a gate, and a Gaussian of small dimension per expert."""

from math import log

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from berdiff.networks.check_image import check_size
from berdiff.networks.inject import FiLM
from berdiff.networks.latent import Gaussian
from berdiff.networks.pyramid import Sizes, UNet

# BatchNorm, as published: with GroupNorm the coarse levels forget the image in the first steps (docs/methods/mose.md)
PRESETS = {
    "paper": Sizes((32, 64, 128, 192, 192, 192, 192), convs=3, norm="batch"),  # for 128x128
    "small": Sizes((32, 64, 128, 192, 192), convs=2, norm="batch"),  # for two cores
    "tiny": Sizes((8, 16), convs=1, norm="group"),  # tests train on one image, too few for BatchNorm
}

Encoded = tuple[Tensor, Tensor]
"""Of an image: features `(B, width, H, W)`, and the logarithm of each expert's probability `(B, E)`."""


class MoSE(nn.Module):
    """The experts share the U-Net and the decoder: an expert is a place in the space of z."""

    def __init__(
        self, preset: str, channels: int, targets: int, size: tuple[int, ...], experts: int, dims: int
    ) -> None:
        """`size`: height and width of the images that it learns from."""
        super().__init__()
        sizes = PRESETS[preset]
        check_size(size, sizes.stride)
        width, coarse = sizes.widths[0], sizes.widths[-1]
        self.stride, self.dims = sizes.stride, dims
        self.unet = UNet(channels, sizes)
        self.last = nn.Conv2d(width, width, 1)
        hidden = [layer for _ in range(2) for layer in (nn.Linear(coarse, coarse), nn.ReLU())]
        self.gate = nn.Sequential(*hidden, nn.Linear(coarse, experts, bias=False))
        nn.init.zeros_(self.gate[-1].weight)  # pyright: ignore[reportArgumentType]  # every expert alike
        self.mean = nn.Parameter(torch.linspace(-1, 1, experts).unsqueeze(1).repeat(1, dims))
        self.log_sigma = nn.Parameter(torch.full((experts, dims), log(1 / 8)))
        self.inject = FiLM(dims, width)
        self.combine = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(2))
        self.logits = nn.Conv2d(width, targets, 1)

    def encode(self, image: Tensor) -> Encoded:
        """image `(B, C, H, W)` in [0, 1], run once per image."""
        coarsest, *_, finest = self.unet(image - 0.5)
        return self.last(finest), self.gate(coarsest.mean((2, 3))).float().log_softmax(1)

    def latents(self, expert: Tensor, noise: Tensor) -> Tensor:
        """z of the experts `(B, N)` by number, with noise ~ N(0, 1) `(B, N, dims)`."""
        return Gaussian(self.mean[expert], self.log_sigma[expert]).draw(noise)

    def decode(self, features: Tensor, z: Tensor) -> Tensor:
        """Features `(B, width, H, W)`, z `(B, N, dims)` -> logits `(B, N, K, H, W)`."""
        x = self.inject(features, z)
        for conv in self.combine:
            x = F.relu(conv(x), inplace=True)  # 16 masks at the full resolution: memory is what costs
        return self.logits(x).unflatten(0, z.shape[:2])
