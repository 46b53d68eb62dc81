"""Convolutional U-Nets by their sizes: an encoder, a decoder that may stop early, and both together.

Levels count from the finest: level 0 has the full resolution, level i works at 1 / 2^i of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Kind = Literal["plain", "residual", "dense"]
Norm = Literal["none", "group", "batch"]


@dataclass(frozen=True)
class Sizes:
    """What an encoder and its decoder are made of."""

    widths: tuple[int, ...]  # channels of each level, the finest first
    convs: int = 3  # 3x3 convolutions of each block
    blocks: int = 1  # of each level, on the way down and on the way up
    kind: Kind = "plain"
    norm: Norm = "none"
    pool: Literal["average", "max"] = "average"
    up: Literal["bilinear", "nearest"] = "bilinear"
    growth: int = 32  # of dense blocks: channels that each convolution adds

    @property
    def stride(self) -> int:
        """Height and width must be multiples of it."""
        return 2 ** (len(self.widths) - 1)


class Encoder(nn.Module):
    """The way down; returns the features of every level, the finest first."""

    def __init__(self, channels: int, sizes: Sizes) -> None:
        super().__init__()
        self.average = sizes.pool == "average"
        self.levels = nn.ModuleList(make_blocks(c, w, sizes) for c, w in pairwise((channels, *sizes.widths)))

    def forward(self, x: Tensor) -> list[Tensor]:
        """x `(B, channels, H, W)` -> `(B, widths[i], H / 2^i, W / 2^i)` for each level i."""
        features: list[Tensor] = []
        for level, blocks in enumerate(self.levels):
            if level:
                x = F.avg_pool2d(x, 2) if self.average else F.max_pool2d(x, 2)
            x = blocks(x)
            features.append(x)
        return features


class Up(nn.Module):
    """One step of the way up: twice the resolution, joined with the skip of that level, then blocks."""

    def __init__(self, channels: int, skip: int, width: int, sizes: Sizes) -> None:
        """`channels` come from below, `skip` from the encoder; `width` leave."""
        super().__init__()
        self.mode = sizes.up
        self.blocks = make_blocks(channels + skip, width, sizes)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        """x `(B, channels, h, w)`, skip `(B, skip, 2 h, 2 w)` -> `(B, width, 2 h, 2 w)`."""
        options = {"align_corners": False} if self.mode == "bilinear" else {}
        return self.blocks(torch.cat([F.interpolate(x, scale_factor=2.0, mode=self.mode, **options), skip], 1))


class Decoder(nn.Module):
    """The way up from the coarsest level to level `stop`; returns the features on the way, the finest last."""

    def __init__(self, sizes: Sizes, stop: int = 0) -> None:
        super().__init__()
        w = sizes.widths
        self.ups = nn.ModuleList(Up(w[i + 1], w[i], w[i], sizes) for i in reversed(range(stop, len(w) - 1)))

    def forward(self, features: Sequence[Tensor]) -> list[Tensor]:
        """The encoder's features, the finest first -> `(B, widths[i], ...)` for i from the coarsest level to `stop`."""
        found = [features[-1]]
        for up, skip in zip(self.ups, reversed(features[:-1]), strict=False):  # skips below `stop` are left
            found.append(up(found[-1], skip))
        return found


class UNet(nn.Module):
    """Encoder and decoder: the features on the way up, the finest last. A head of the caller's makes logits of them."""

    def __init__(self, channels: int, sizes: Sizes, stop: int = 0) -> None:
        super().__init__()
        self.encoder, self.decoder = Encoder(channels, sizes), Decoder(sizes, stop)

    def forward(self, x: Tensor) -> list[Tensor]:
        return self.decoder(self.encoder(x))


# --- blocks ----------------------------------------------------------------------------------------------------------


def make_blocks(channels: int, width: int, sizes: Sizes) -> nn.Sequential:
    """The blocks of one level, from `channels` to `width`."""
    kinds = {"plain": PlainBlock, "residual": ResidualBlock, "dense": DenseBlock}
    return nn.Sequential(*[kinds[sizes.kind](width if i else channels, width, sizes) for i in range(sizes.blocks)])


class PlainBlock(nn.Sequential):
    """Convolution, norm, ReLU, so many times."""

    def __init__(self, channels: int, width: int, sizes: Sizes) -> None:
        layers: list[nn.Module] = []
        for i in range(sizes.convs):
            layers += [_conv(width if i else channels, width), make_norm(width, sizes.norm), nn.ReLU()]
        super().__init__(*[layer for layer in layers if not isinstance(layer, nn.Identity)])


class ResidualBlock(nn.Module):
    """Pre-activated, with a bottleneck: 3x3 convolutions of half the width and a 1x1 one back, beside a skip."""

    def __init__(self, channels: int, width: int, sizes: Sizes) -> None:
        super().__init__()
        inner = width // 2
        ins = [channels] + [inner] * (sizes.convs - 1)
        self.norms = nn.ModuleList(make_norm(c, sizes.norm) for c in ins)
        self.convs = nn.ModuleList(_conv(c, inner) for c in ins)
        self.out = nn.Conv2d(inner, width, 1)
        self.skip = nn.Conv2d(channels, width, 1) if channels != width else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        h = x
        for norm, conv in zip(self.norms, self.convs, strict=True):
            h = conv(F.relu(norm(h)))
        return self.skip(x) + self.out(h)


class DenseBlock(nn.Module):
    """Norm, ReLU, convolution; each sees all before it and adds `growth` channels. Then a 1x1 one to the width."""

    def __init__(self, channels: int, width: int, sizes: Sizes) -> None:
        super().__init__()
        ins = [channels + i * sizes.growth for i in range(sizes.convs + 1)]
        self.norms = nn.ModuleList(make_norm(c, sizes.norm) for c in ins)
        bias = sizes.norm == "none"  # a norm follows each
        self.convs = nn.ModuleList(nn.Conv2d(c, sizes.growth, 3, padding=1, bias=bias) for c in ins[:-1])
        self.out = nn.Conv2d(ins[-1], width, 1, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        *norms, last = self.norms
        for norm, conv in zip(norms, self.convs, strict=True):
            x = torch.cat([x, conv(F.relu(norm(x)))], 1)
        return self.out(F.relu(last(x)))


def make_norm(channels: int, norm: Norm) -> nn.Module:
    """Batch norm mixes images: a method with it says so, and sets `average_buffers`."""
    if norm == "group":
        return nn.GroupNorm(gcd(8, channels), channels)
    return nn.BatchNorm2d(channels) if norm == "batch" else nn.Identity()


def _conv(channels: int, width: int) -> nn.Conv2d:
    return nn.Conv2d(channels, width, 3, padding=1)


# --- initial weights -------------------------------------------------------------------------------------------------


def initialise(module: nn.Module, kind: Literal["he", "orthogonal"]) -> None:
    """The weights of all convolutions and linear layers; biases 0.

    Without a norm torch's default shrinks the signal at every layer; He's keeps its size through ReLUs.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            if kind == "he":
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            else:
                nn.init.orthogonal_(layer.weight)
            if layer.bias is not None:  # pyright: ignore[reportUnnecessaryComparison]
                nn.init.zeros_(layer.bias)
