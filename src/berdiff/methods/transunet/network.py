"""TransU-Net: a residual convolutional stem, a vision transformer on its coarsest features, a decoder with skips.

Written here, since no package has it. As published but for two layers: no dropout (it would draw from no generator of
the step's own) and GroupNorm where the decoder has BatchNorm (which mixes the images of a batch).
"""

from dataclasses import dataclass
from math import gcd

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from berdiff.networks.whole import Size, Whole


@dataclass(frozen=True)
class TransUNetPreset:
    root: int  # channels of the first convolution
    root_stride: int  # a max pool after it halves the resolution once more
    widths: tuple[int, ...]  # of the residual stages; all but the first halve the resolution
    units: tuple[int, ...]
    dim: int  # of a token: one for each pixel of the last stage
    layers: int
    heads: int
    decoder: tuple[int, ...]  # widths, from the first join with a skip up to the full resolution


PRESETS = {
    # ResNet-50's first three stages and ViT-B: tokens of 16x16 pixels
    "paper": TransUNetPreset(64, 2, (256, 512, 1024), (3, 4, 9), 768, 12, 12, (256, 128, 64, 16)),
    "small": TransUNetPreset(32, 1, (64, 128, 192), (1, 2, 2), 256, 6, 8, (96, 64, 32)),
    "tiny": TransUNetPreset(8, 1, (16, 32), (1, 1), 32, 2, 2, (16, 8)),
}


class TransUNet(Whole):
    def __init__(self, preset: str, image_channels: int, targets: int, size: Size) -> None:
        sizes = PRESETS[preset]
        super().__init__(preset, image_channels, targets, size, stride=sizes.root_stride * 2 ** len(sizes.widths))
        self.root = nn.Sequential(
            StandardisedConv(image_channels, sizes.root, 7, sizes.root_stride, padding=3, bias=False),
            nn.GroupNorm(gcd(32, sizes.root), sizes.root, eps=1e-6),
            nn.ReLU(),
        )
        self.stages = nn.ModuleList()
        below = sizes.root
        for i, (width, units) in enumerate(zip(sizes.widths, sizes.units, strict=True)):
            first = ResidualUnit(below, width, stride=1 if i == 0 else 2)
            self.stages.append(nn.Sequential(first, *(ResidualUnit(width, width) for _ in range(units - 1))))
            below = width
        self.embed = nn.Conv2d(below, sizes.dim, 1)
        grid = [side // self.stride for side in size]
        self.position = nn.Parameter(0.02 * torch.randn(1, sizes.dim, *grid))
        self.transformer = nn.Sequential(*(_layer(sizes.dim, sizes.heads) for _ in range(sizes.layers)))
        self.norm = nn.LayerNorm(sizes.dim, eps=1e-6)
        self.widen = _conv(sizes.dim, 2 * sizes.decoder[0])
        skips = [
            *reversed((sizes.root, *sizes.widths[:-1])),
            0,
        ]  # the full resolution has none where the root halves it
        self.decoder = nn.ModuleList()
        below = 2 * sizes.decoder[0]
        for width, skip in zip(sizes.decoder, skips, strict=False):
            self.decoder.append(nn.Sequential(_conv(below + skip, width), _conv(width, width)))
            below = width
        self.out = nn.Conv2d(below, targets, 3, padding=1)

    def levels(self, image: Tensor) -> tuple[Tensor, ...]:
        self.check(image)
        features = [self.root(image)]
        pooled = F.max_pool2d(features[0], 3, 2, padding=1)
        for stage in self.stages:
            features.append(stage(pooled if len(features) == 1 else features[-1]))
        x = self._attend(self.embed(features.pop()))
        x = self.widen(x)
        for block in self.decoder:
            x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)
            x = block(torch.cat([x, features.pop()], 1) if features else x)
        return (self.out(x),)

    def _attend(self, x: Tensor) -> Tensor:
        """tokens `(B, dim, h, w)` of any grid: the positions learnt for one are interpolated for another."""
        h, w = x.shape[-2:]
        position = self.position
        if position.shape[-2:] != (h, w):
            position = F.interpolate(position, (h, w), mode="bicubic", align_corners=False)
        tokens = (x + position).flatten(2).transpose(1, 2)
        return self.norm(self.transformer(tokens)).transpose(1, 2).unflatten(2, (h, w))


class StandardisedConv(nn.Conv2d):
    """Weights of mean 0 and variance 1 for each output channel: what GroupNorm after it is good with."""

    def forward(self, input: Tensor) -> Tensor:
        variance, mean = torch.var_mean(self.weight, dim=(1, 2, 3), keepdim=True, correction=0)
        weight = (self.weight - mean) / (variance + 1e-5).sqrt()
        return F.conv2d(input, weight, self.bias, self.stride, self.padding)


class ResidualUnit(nn.Module):
    """ResNet's bottleneck: 1x1 to a quarter of the width, 3x3, 1x1 back."""

    def __init__(self, channels: int, width: int, stride: int = 1) -> None:
        super().__init__()
        middle = width // 4
        self.body = nn.Sequential(
            StandardisedConv(channels, middle, 1, bias=False),
            nn.GroupNorm(gcd(32, middle), middle, eps=1e-6),
            nn.ReLU(),
            StandardisedConv(middle, middle, 3, stride, padding=1, bias=False),
            nn.GroupNorm(gcd(32, middle), middle, eps=1e-6),
            nn.ReLU(),
            StandardisedConv(middle, width, 1, bias=False),
            nn.GroupNorm(gcd(32, width), width, eps=1e-6),
        )
        self.beside = nn.Identity()
        if stride > 1 or channels != width:
            convolution = StandardisedConv(channels, width, 1, stride, bias=False)
            self.beside = nn.Sequential(convolution, nn.GroupNorm(width, width))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.beside(x) + self.body(x))


def _layer(dim: int, heads: int) -> nn.Module:
    return nn.TransformerEncoderLayer(
        dim, heads, 4 * dim, dropout=0.0, activation="gelu", layer_norm_eps=1e-6, batch_first=True, norm_first=True
    )


def _conv(channels: int, width: int) -> nn.Module:
    convolution = nn.Conv2d(channels, width, 3, padding=1, bias=False)
    return nn.Sequential(convolution, nn.GroupNorm(gcd(32, width), width), nn.ReLU())
