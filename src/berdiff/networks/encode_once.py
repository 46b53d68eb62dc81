"""A network that reads the image once: a heavy encoder, and a light network for each step of each mask.

The image does not change between the steps, so all that depends on it alone is done in `encode`. What is left for a
step is to weigh the noisy mask against what the encoder expects: a few convolutions on masks folded 2x2 (four pixels
are four channels of half the resolution), steered by maps of gains and shifts that the encoder laid out in advance.
With `dims` 3 images are volumes, folded 2x2x2.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from berdiff.networks.denoiser import Denoiser

Maps = tuple[Tensor, ...]
"""Gain and shift of each block of the step network, one after the other: each `(B, channels, *s)`."""
Conv = {2: nn.Conv2d, 3: nn.Conv3d}


@dataclass(frozen=True)
class EncodeOncePreset:
    """Channels of each level; level 0 works at half the resolution, each next one at half of that."""

    encoder: tuple[int, ...]
    step: tuple[int, ...]  # at most as many levels as the encoder
    res_blocks: int = 2  # of the encoder's way down, at each level
    groups: int = 8


PRESETS = {
    "fast": EncodeOncePreset((32, 64, 128, 192), (24, 48, 64)),
    "fast-tiny": EncodeOncePreset((16, 32, 32), (8, 16, 16), res_blocks=1),
}


class EncodeOnce(Denoiser[Maps]):
    """`encode` does the heavy work once per image; `denoise` costs a small fraction of it per mask."""

    spatial_dims = (2, 3)
    centred = True

    def __init__(self, preset: str, image_channels: int = 1, targets: int = 1, dims: int = 2) -> None:
        super().__init__(preset, image_channels, targets)
        sizes = PRESETS[preset]
        self.dims, self.stride = dims, 2 ** len(sizes.encoder)
        self.encoder = Encoder(2**dims * image_channels, sizes, dims)
        self.step = StepNetwork(2**dims * targets, sizes.step, dims)
        self.maps = nn.ModuleList(
            Conv[dims](sizes.encoder[level], sizes.step[level], 1) for level in self.step.levels for _ in range(2)
        )
        self.summary_width = 3 * sum(sizes.encoder)
        if dims == 2:
            self.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]  # the faster one

    def encode(self, image: Tensor) -> Maps:
        return self._maps(self._levels(image))

    def encode_and_summarise(self, image: Tensor) -> tuple[Maps, Tensor]:
        levels = self._levels(image)
        return self._maps(levels), torch.cat([summary(level) for level in levels], 1)

    def _levels(self, image: Tensor) -> list[Tensor]:
        self.check(image)
        return self.encoder(fold(2 * image - 1))

    def _maps(self, levels: list[Tensor]) -> Maps:
        return tuple(to_map(levels[self.step.levels[i // 2]]) for i, to_map in enumerate(self.maps))

    def denoise(self, y_t: Tensor, t: Tensor, features: Maps) -> Tensor:
        return unfold(self.step(fold(y_t.flatten(0, 1)), t, features)).reshape(y_t.shape)


def fold(x: Tensor) -> Tensor:
    """(B, C, *S) -> (B, 4 C, *s) of half the sides, or 8 C of volumes: neighbours become channels."""
    if x.ndim == 4:
        return F.pixel_unshuffle(x, 2)
    B, C, Z, H, W = x.shape
    parts = x.reshape(B, C, Z // 2, 2, H // 2, 2, W // 2, 2)
    return parts.permute(0, 1, 3, 5, 7, 2, 4, 6).reshape(B, 8 * C, Z // 2, H // 2, W // 2)


def unfold(x: Tensor) -> Tensor:
    """The inverse of `fold`."""
    if x.ndim == 4:
        return F.pixel_shuffle(x, 2)
    B, C, Z, H, W = x.shape
    parts = x.reshape(B, C // 8, 2, 2, 2, Z, H, W)
    return parts.permute(0, 1, 5, 2, 6, 3, 7, 4).reshape(B, C // 8, 2 * Z, 2 * H, 2 * W)


def summary(features: Tensor) -> Tensor:
    """(B, C, *s) -> (B, 3 C): the mean and the largest value, and the mean of the middle, where a finding lies."""
    space = tuple(range(2, features.ndim))
    middle = [slice(n // 2 - max(1, n // 8), n // 2 + max(1, n // 8)) for n in features.shape[2:]]
    return torch.cat([features.mean(space), features.amax(space), features[..., *middle].mean(space)], 1)


def per_channel(values: Tensor, like: Tensor) -> Tensor:
    """(B, C) -> (B, C, 1, ...), to be multiplied with `like` or added to it."""
    return values.reshape(*values.shape, *[1] * (like.ndim - 2))


class Encoder(nn.Module):
    """A U-Net on the folded image; returns its features at every level, the finest first."""

    def __init__(self, channels_in: int, sizes: EncodeOncePreset, dims: int) -> None:
        super().__init__()
        widths, conv = sizes.encoder, Conv[dims]
        self.stem = conv(channels_in, widths[0], 3, padding=1)
        self.down = nn.ModuleList(
            nn.Sequential(*[ResBlock(width, sizes.groups, conv) for _ in range(sizes.res_blocks)]) for width in widths
        )
        self.shrink = nn.ModuleList(conv(fine, coarse, 2, stride=2) for fine, coarse in pairwise(widths))
        self.grow = nn.ModuleList(conv(coarse, fine, 1) for fine, coarse in pairwise(widths))
        self.up = nn.ModuleList(ResBlock(width, sizes.groups, conv) for width in widths[:-1])

    def forward(self, x: Tensor) -> list[Tensor]:
        skips: list[Tensor] = []
        x = self.stem(x)
        for level, blocks in enumerate(self.down):
            x = blocks(self.shrink[level - 1](x) if level else x)
            skips.append(x)
        features = [x]
        for level in reversed(range(len(self.up))):
            x = self.up[level](skips[level] + F.interpolate(self.grow[level](x), scale_factor=2.0))
            features.append(x)
        return features[::-1]


class ResBlock(nn.Module):
    """x + conv(silu(norm(conv(silu(norm(x)))))); it begins as the identity."""

    def __init__(self, channels: int, groups: int, conv: Any) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(groups, channels), nn.GroupNorm(groups, channels)
        self.conv1, self.conv2 = (conv(channels, channels, 3, padding=1) for _ in range(2))
        nn.init.zeros_(self.conv2.weight)

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv1(F.silu(self.norm1(x)))
        return x + self.conv2(F.silu(self.norm2(h)))


class StepNetwork(nn.Module):
    """A small U-Net on folded masks. No normalisation: how many pixels are set is part of what it must learn."""

    def __init__(self, channels: int, widths: tuple[int, ...], dims: int) -> None:
        super().__init__()
        depth, conv = len(widths), Conv[dims]
        # of each block: down to the coarsest and up again; one at the finest, whose pixels cost most
        self.levels = [*range(1, depth), *reversed(range(depth - 1))]
        self.embed = StepEmbedding([widths[level] for level in self.levels])
        self.stem = conv(channels, widths[0], 3, padding=1)
        self.blocks = nn.ModuleList(StepBlock(widths[level], conv) for level in self.levels)
        self.shrink = nn.ModuleList(conv(fine, coarse, 2, stride=2) for fine, coarse in pairwise(widths))
        self.grow = nn.ModuleList(conv(coarse, fine, 1) for fine, coarse in pairwise(widths))
        self.pool = nn.Linear(widths[-1], widths[-1])  # the whole mask at a glance, for what all pixels share
        self.head = conv(widths[0], channels, 3, padding=1)

    def forward(self, y: Tensor, t: Tensor, maps: Maps) -> Tensor:
        """y `(B * N, 4 K or 8 K, *s)`, t `(B, N)`, maps of B images."""
        of_t = self.embed(t)
        x = self.stem(y)
        skips = [x]
        for place, (level, block) in enumerate(zip(self.levels, self.blocks, strict=True)):
            if level == len(skips):
                x = self.shrink[level - 1](x)
            else:
                x = skips[level] + F.interpolate(self.grow[level](x), scale_factor=2.0)
            of_step = (per_channel(part, x) for part in of_t[place])
            x = block(x, maps[2 * place], maps[2 * place + 1], *of_step)
            if level == len(skips):
                skips.append(x)
            if level == len(self.shrink):
                x = x + per_channel(self.pool(x.mean(tuple(range(2, x.ndim)))), x)
        return self.head(F.silu(x))


class StepBlock(nn.Module):
    """x + conv(silu(S_t(conv(silu(S_x(x)))))), where S multiplies by a gain and adds a shift: by image, and by step."""

    def __init__(self, channels: int, conv: Any) -> None:
        super().__init__()
        self.conv1, self.conv2 = (conv(channels, channels, 3, padding=1) for _ in range(2))
        nn.init.zeros_(self.conv2.weight)

    def forward(self, x: Tensor, gain: Tensor, shift: Tensor, gain_t: Tensor, shift_t: Tensor) -> Tensor:
        """x `(B * N, C, *s)`; gain and shift of the image `(B, C, *s)`, of the step `(B * N, C, 1, ...)`."""
        B = len(gain)
        masks = x.reshape(B, -1, *x.shape[1:])
        h = torch.addcmul(shift.unsqueeze(1), masks, 1 + gain.unsqueeze(1)).flatten(0, 1)
        h = torch.addcmul(shift_t, self.conv1(F.silu(h)), 1 + gain_t)
        return x + self.conv2(F.silu(h))


class StepEmbedding(nn.Module):
    """The step t as a gain and a shift for each block."""

    omega: Tensor

    def __init__(self, widths: list[int], frequencies: int = 32, hidden: int = 64) -> None:
        super().__init__()
        self.register_buffer("omega", torch.exp(-math.log(10_000) * torch.arange(frequencies) / frequencies), False)
        self.hidden = nn.Linear(2 * frequencies, hidden)
        self.out = nn.ModuleList(nn.Linear(hidden, 2 * width) for width in widths)

    def forward(self, t: Tensor) -> list[tuple[Tensor, Tensor]]:
        """t `(B, N)` -> for each block two of `(B * N, width)`."""
        angle = t.flatten().unsqueeze(-1).to(self.hidden.weight.dtype) * self.omega
        h = F.silu(self.hidden(torch.cat([angle.cos(), angle.sin()], -1)))
        return [tuple(out(h).chunk(2, 1)) for out in self.out]
