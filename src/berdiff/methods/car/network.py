"""The three nets of CAR: F gives each pixel's probability, G refines it into one mask per z, D tells masks from G's."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from berdiff.networks.pyramid import Sizes, UNet, initialise, make_norm

Features = tuple[Tensor, Tensor, Tensor]
"""What G made of the image before z comes in, at 1/4 of the resolution, and its skips at 1/4 and 1/2."""


@dataclass(frozen=True)
class CarPreset:
    calibrator: Sizes
    refiner: int  # channels of G's first level; each next one has twice as many
    discriminator: int  # channels of D's first level
    halvings: int = 3  # of the resolution in D

    @property
    def stride(self) -> int:
        """Height and width must be multiples of it."""
        return max(self.calibrator.stride, 16, 2**self.halvings)


PRESETS = {
    "paper": CarPreset(Sizes((32, 64, 128, 192, 192), convs=3, norm="group"), 32, 64),
    "small": CarPreset(Sizes((32, 64, 128, 192), convs=2, norm="group"), 32, 32),
    "tiny": CarPreset(Sizes((8, 16), convs=1, norm="group"), 8, 8, halvings=2),
}


class Calibrator(nn.Module):
    """F: image `(B, C, H, W)` in [0, 1] -> logits `(B, K, H, W)`."""

    def __init__(self, channels: int, targets: int, sizes: Sizes) -> None:
        super().__init__()
        self.unet = UNet(channels, sizes)
        self.head = nn.Conv2d(sizes.widths[0], targets, 1)
        initialise(self.unet, "he")

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.unet(2 * image - 1)[-1])


class Refiner(nn.Module):
    """G: an image, its probabilities and N vectors z -> N masks. All that does not depend on z is done once."""

    def __init__(self, channels: int, targets: int, width: int, dims: int) -> None:
        super().__init__()
        a, b, c, d = (width * 2**i for i in range(4))
        self.down = nn.ModuleList(
            _layer(nn.Conv2d(i, o, 3, 2, 1)) for i, o in ((channels + targets, a), (a, b), (b, c), (c, d))
        )
        self.up = nn.ModuleList(
            _layer(nn.ConvTranspose2d(i, o, 2, 2)) for i, o in ((d, c), (2 * c, b), (2 * b, a), (2 * a, a))
        )
        self.inject = nn.ModuleList(Inject(i, dims, o) for i, o in ((b, b), (a, a), (a, targets)))

    def encode(self, image: Tensor, probability: Tensor) -> Features:
        """image `(B, C, H, W)` in [0, 1] and F's probabilities `(B, K, H, W)`."""
        x = torch.cat([2 * image - 1, probability], 1)
        skips: list[Tensor] = []
        for down in self.down:
            x = down(x)
            skips.append(x)
        half, quarter, eighth, _ = skips
        x = self.up[1](torch.cat([self.up[0](x), eighth], 1))
        return x, quarter, half

    def decode(self, features: Features, z: Tensor) -> Tensor:
        """z `(B, N, dims)` -> logits `(B, N, K, H, W)`."""
        x, quarter, half = features
        N = z.shape[1]
        x = x.unsqueeze(1)
        for inject, up, skip in zip(self.inject, (self.up[2], self.up[3]), (quarter, half), strict=False):
            x = F.leaky_relu(inject(x, z))
            x = up(torch.cat([x, skip.repeat_interleave(N, 0)], 1)).unflatten(0, (-1, N))
        return self.inject[2](x, z).unflatten(0, (-1, N))


class Inject(nn.Module):
    """conv((features + a(z)) b(z)) with a and b linear in z, and a 1x1 convolution."""

    def __init__(self, channels: int, dims: int, width: int) -> None:
        super().__init__()
        self.shift, self.scale = nn.Linear(dims, channels), nn.Linear(dims, channels)
        self.conv = nn.Conv2d(channels, width, 1)
        for linear in (self.shift, self.scale):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, features: Tensor, z: Tensor) -> Tensor:
        """features `(B, N or 1, channels, h, w)`, z `(B, N, dims)` -> `(B * N, width, h, w)`."""
        shift, scale = self.shift(z)[..., None, None], self.scale(z)[..., None, None]
        return self.conv(((features + shift) * (scale + 1e-5)).flatten(0, 1))


class Discriminator(nn.Module):
    """D: image `(B, C, H, W)` and mask `(B, K, H, W)`, both in [0, 1] -> the logit of "a rater's" `(B,)`.

    Without norms and without dropout; its last layer is linear in all pixels, so it is made for one size.
    """

    def __init__(self, channels: int, targets: int, width: int, size: Sequence[int], halvings: int = 3) -> None:
        super().__init__()
        left = [side // 2**halvings - 2 for side in size]
        if min(left) < 1:
            raise ValueError(f"size: expected at least {3 * 2**halvings} pixels per side for CAR, found {tuple(size)}")
        layers: list[nn.Module] = []
        for i in range(3):
            layers += _edged(nn.Conv2d(width if i else channels + targets, width, 3))
        layers += _edged(nn.Conv2d(width, width, 4, 2, 1))
        last = width
        for i in range(1, halvings + 1):
            wide = width * min(2**i, 8)
            layers += [nn.Conv2d(last, wide, 4, 2 if i < halvings else 1, 1, bias=False), nn.LeakyReLU(0.2)]
            last = wide
        layers += [nn.Conv2d(last, width, 4, 1, 1), nn.LeakyReLU(0.2)]
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(width * left[0] * left[1], 1)

    def forward(self, image: Tensor, mask: Tensor) -> Tensor:
        x = self.layers(torch.cat([2 * image - 1, mask], 1))
        return self.head(x.flatten(1)).squeeze(1)


def _layer(conv: nn.Conv2d | nn.ConvTranspose2d) -> nn.Sequential:
    return nn.Sequential(conv, make_norm(conv.out_channels, "group"), nn.LeakyReLU(0.2))


def _edged(conv: nn.Conv2d) -> list[nn.Module]:
    """The image is mirrored at its edges."""
    return [nn.ReflectionPad2d(1), conv, nn.LeakyReLU(0.2)]
