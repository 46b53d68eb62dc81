"""A network that reads the image once: a heavy encoder, and a light network for each step of each mask.

The image does not change between the steps, so all that depends on it alone is done in `encode`. What is left for a
step is to weigh the noisy mask against what the encoder expects: a few convolutions on masks folded 2x2 (four pixels
are four channels of half the resolution), steered by maps of gains and shifts that the encoder laid out in advance.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Maps = tuple[Tensor, ...]
"""Gains and shifts of each block of the step network, `(B, 2 * channels, h, w)`."""


@dataclass(frozen=True)
class EncodeOncePreset:
    """Channels of each level; level 0 works at half the resolution, each next one at half of that."""

    encoder: tuple[int, ...]
    step: tuple[int, ...]  # at most as many levels as the encoder
    res_blocks: int = 2  # of the encoder's way down, at each level
    groups: int = 8

    @property
    def stride(self) -> int:
        """Height and width must be multiples of it."""
        return 2 ** len(self.encoder)


PRESETS = {
    "fast": EncodeOncePreset((32, 64, 128, 192), (24, 48, 64)),
    "fast-tiny": EncodeOncePreset((16, 32, 32), (8, 16, 16), res_blocks=1),
}


class EncodeOnce(nn.Module):
    """`encode` does the heavy work once an image; `denoise` costs a small fraction of it a mask."""

    def __init__(self, preset: str, image_channels: int = 1, targets: int = 1) -> None:
        super().__init__()
        if preset not in PRESETS:
            raise ValueError(f"preset: expected one of {', '.join(PRESETS)}, found {preset!r}")
        self.preset, self.image_channels, self.targets = preset, image_channels, targets
        sizes = PRESETS[preset]
        self.stride = sizes.stride
        self.encoder = Encoder(4 * image_channels, sizes)
        self.step = StepNetwork(4 * targets, sizes.step)
        self.maps = nn.ModuleList(
            nn.Conv2d(sizes.encoder[level], 2 * sizes.step[level], 1) for level in self.step.levels
        )
        self.to(memory_format=torch.channels_last)  # the faster one here, with and without gradients

    def config(self) -> dict[str, object]:
        return {"preset": self.preset, "image_channels": self.image_channels, "targets": self.targets}

    def encode(self, image: Tensor) -> Maps:
        """image `(B, C, H, W)` in [0, 1]."""
        _, C, H, W = image.shape
        if self.image_channels != C:
            raise ValueError(f"image: expected {self.image_channels} channels, found {C}")
        if H % self.stride or W % self.stride:
            raise ValueError(f"image: expected height and width in multiples of {self.stride}, found {H}x{W}")
        features = self.encoder(F.pixel_unshuffle(2 * image - 1, 2))
        return tuple(to_map(features[level]) for to_map, level in zip(self.maps, self.step.levels, strict=True))

    def denoise(self, y_t: Tensor, t: Tensor, features: Maps) -> Tensor:
        """y_t `(B, N, K, H, W)`, t `(B, N)`, features of B images -> logits `(B, N, K, H, W)`."""
        folded = F.pixel_unshuffle((2 * y_t - 1).flatten(0, 1), 2)
        return F.pixel_shuffle(self.step(folded, t, features), 2).reshape(y_t.shape)


class Encoder(nn.Module):
    """A U-Net on the folded image; returns its features at every level, the finest first."""

    def __init__(self, channels_in: int, sizes: EncodeOncePreset) -> None:
        super().__init__()
        widths = sizes.encoder
        self.stem = nn.Conv2d(channels_in, widths[0], 3, padding=1)
        self.down = nn.ModuleList(
            nn.Sequential(*[ResBlock(width, sizes.groups) for _ in range(sizes.res_blocks)]) for width in widths
        )
        self.shrink = nn.ModuleList(nn.Conv2d(fine, coarse, 2, stride=2) for fine, coarse in pairwise(widths))
        self.grow = nn.ModuleList(nn.Conv2d(coarse, fine, 1) for fine, coarse in pairwise(widths))
        self.up = nn.ModuleList(ResBlock(width, sizes.groups) for width in widths[:-1])

    def forward(self, x: Tensor) -> list[Tensor]:
        x, skips = self.stem(x), []
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

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(groups, channels), nn.GroupNorm(groups, channels)
        self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        nn.init.zeros_(self.conv2.weight)

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv1(F.silu(self.norm1(x)))
        return x + self.conv2(F.silu(self.norm2(h)))


class StepNetwork(nn.Module):
    """A small U-Net on folded masks. No normalisation: how many pixels are set is part of what it must tell."""

    def __init__(self, channels: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        depth = len(widths)
        self.levels = [*range(depth), *reversed(range(depth - 1))]  # of each block: down to the coarsest, and up again
        self.embed = StepEmbedding([2 * widths[level] for level in self.levels])
        self.stem = nn.Conv2d(channels, widths[0], 3, padding=1)
        self.blocks = nn.ModuleList(StepBlock(widths[level]) for level in self.levels)
        self.shrink = nn.ModuleList(nn.Conv2d(fine, coarse, 2, stride=2) for fine, coarse in pairwise(widths))
        self.grow = nn.ModuleList(nn.Conv2d(coarse, fine, 1) for fine, coarse in pairwise(widths))
        self.pool = nn.Linear(widths[-1], widths[-1])  # the whole mask at a glance, for what all pixels share
        self.head = nn.Conv2d(widths[0], channels, 3, padding=1)

    def forward(self, y: Tensor, t: Tensor, maps: Maps) -> Tensor:
        """y `(B * N, 4 K, h, w)`, t `(B, N)`, maps of B images."""
        of_t = self.embed(t)
        depth = len(self.shrink) + 1
        x, skips = self.stem(y), []
        for level in range(depth):
            x = self.blocks[level](self.shrink[level - 1](x) if level else x, maps[level], of_t[level])
            skips.append(x)
        x = x + self.pool(x.mean((2, 3)))[:, :, None, None]
        for place in range(depth, len(self.levels)):
            level = self.levels[place]
            x = skips[level] + F.interpolate(self.grow[level](x), scale_factor=2.0)
            x = self.blocks[place](x, maps[place], of_t[place])
        return self.head(F.silu(x))


class StepBlock(nn.Module):
    """x + conv(silu(conv(silu(gain * x + shift)))), gain and shift from image and step."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        nn.init.zeros_(self.conv2.weight)

    def forward(self, x: Tensor, of_image: Tensor, of_t: Tensor) -> Tensor:
        """x `(B * N, C, h, w)`, of_image `(B, 2 C, h, w)`, of_t `(B, N, 2 C)`."""
        B, N = of_t.shape[:2]
        gain, shift = (of_image.unsqueeze(1) + of_t[..., None, None]).chunk(2, 2)
        h = torch.addcmul(shift, x.unflatten(0, (B, N)), 1 + gain).flatten(0, 1)
        return x + self.conv2(F.silu(self.conv1(F.silu(h))))


class StepEmbedding(nn.Module):
    """The step t as gains and shifts of each block."""

    def __init__(self, widths: list[int], frequencies: int = 32, hidden: int = 64) -> None:
        super().__init__()
        self.widths = widths
        self.register_buffer("omega", torch.exp(-math.log(10_000) * torch.arange(frequencies) / frequencies), False)
        self.hidden = nn.Linear(2 * frequencies, hidden)
        self.out = nn.Linear(hidden, sum(widths))

    def forward(self, t: Tensor) -> tuple[Tensor, ...]:
        """t `(B, N)` -> `(B, N, width)` for each block."""
        angle = t.unsqueeze(-1).to(self.hidden.weight.dtype) * self.omega
        waves = torch.cat([angle.cos(), angle.sin()], -1)
        return self.out(F.silu(self.hidden(waves))).split(self.widths, -1)
