"""MedSegDiff's network (Wu et al. 2022, arXiv 2211.00611): a U-Net for the noisy mask and a condition net for the
image, which is told at every level what the U-Net sees, and answers at its bottleneck.

What leaves a level of the U-Net passes a learned filter of frequencies (FF-Parser), and multiplies the condition
features of that resolution. The paper's idea with modules that learn: docs/methods/medsegdiff.md says where its release
differs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from berdiff.networks import paper, pyramid
from berdiff.networks.denoiser import Denoiser
from berdiff.networks.paper import UNetPreset
from berdiff.networks.split_unet import SplitUNet

fft: Any = torch.fft  # it has no types

ImageFeatures = tuple[Tensor, Tensor]
"""The image, and the condition net's features at full resolution."""


@dataclass(frozen=True)
class MedSegDiffPreset:
    unet: UNetPreset
    widths: tuple[int, ...]  # of the condition net, one for each level of the U-Net
    size: int  # side of the images for whose frequencies the filters have a weight each

    @property
    def condition(self) -> pyramid.Sizes:
        return pyramid.Sizes(self.widths, convs=2, norm="group", pool="max")


PRESETS = {
    # the paper's network, so that only the condition differs from `gaussian`
    "medsegdiff-paper-128": MedSegDiffPreset(paper.PRESETS["paper-128"], (32, 64, 128, 256, 480), 128),
    # MedSegDiff's own for 256x256 is the paper's for 224x224: multipliers (1, 1, 2, 2, 4, 4), attention at 1/16
    "medsegdiff-own": MedSegDiffPreset(paper.PRESETS["paper-224"], (32, 64, 128, 256, 480, 480), 128),
    # for two cores
    "medsegdiff-small": MedSegDiffPreset(paper.PRESETS["small"], (16, 32, 64, 96), 64),
    "medsegdiff-tiny": MedSegDiffPreset(paper.PRESETS["tiny"], (8, 16, 16), 16),
}


class MedSegDiffNet(Denoiser[ImageFeatures]):
    """`encode` is the condition net up to the first place where it depends on the noisy mask."""

    def __init__(self, preset: str, image_channels: int = 1, targets: int = 1) -> None:
        super().__init__(preset, image_channels, targets)
        self.sizes = PRESETS[preset]
        self.stride = self.sizes.condition.stride
        self.unet = SplitUNet(self.sizes.unet, image_channels + targets, targets)
        self.condition = ConditionNet(image_channels, self.sizes)
        self.answer = nn.Conv2d(self.sizes.widths[-1], self.sizes.unet.channels[-1], 1)

    def encode(self, image: Tensor) -> ImageFeatures:
        self.check(image)
        return image, self.condition.blocks[0](2 * image - 1)

    def denoise(self, y_t: Tensor, t: Tensor, features: ImageFeatures) -> Tensor:
        return self.denoise_and_condition(y_t, t, features)[0]

    def denoise_and_condition(self, y_t: Tensor, t: Tensor, features: ImageFeatures) -> tuple[Tensor, list[Tensor]]:
        """The output like y_t, and the condition features `(B * N, ...)` of each level, the finest first."""
        N = y_t.shape[1]
        image, first = (part.repeat_interleave(N, 0) for part in features)
        h = self.unet.conv_in(torch.cat([y_t.flatten(0, 1), image], 1))
        levels, skips, embedding = self.unet.down(h, t.flatten())
        conditions = [first, *self.condition(features[1], levels)]
        h = levels[-1] + self.answer(conditions[-1])
        return self.unet.up(h, skips, embedding).reshape(y_t.shape), conditions


class ConditionNet(nn.Module):
    """The way down of a plain U-Net, its features multiplied by a gate after each pooling."""

    def __init__(self, channels: int, sizes: MedSegDiffPreset) -> None:
        super().__init__()
        widths = sizes.widths
        self.blocks = nn.ModuleList(
            pyramid.make_blocks(c, w, sizes.condition) for c, w in pairwise((channels, *widths))
        )
        self.gates = nn.ModuleList(
            Gate(sizes.unet.channels[i], widths[i], sizes.size // 2 ** (i + 1)) for i in range(len(widths) - 1)
        )

    def forward(self, first: Tensor, levels: Sequence[Tensor]) -> list[Tensor]:
        """first `(B, ...)` of the images, levels `(B * N, ...)` of their masks -> all other levels, `(B * N, ...)`."""
        features: list[Tensor] = []
        x = F.max_pool2d(first, 2).repeat_interleave(len(levels[0]) // len(first), 0)
        for gate, blocks, h in zip(self.gates, self.blocks[1:], levels[:-1], strict=True):
            x = blocks(gate(F.max_pool2d(x, 2) if features else x, h))
            features.append(x)
        return features


class Gate(nn.Module):
    """x times what h says of each place, and of each channel; both factors lie in (0, 2) and begin as 1."""

    def __init__(self, channels: int, width: int, size: int) -> None:
        """`channels` of h, `width` of x, `size` of the filter."""
        super().__init__()
        self.reduce = nn.Conv2d(channels, width, 1)
        self.parser = FFParser(width, size)
        self.places, self.channels = nn.Conv2d(width, 1, 1), nn.Linear(width, width)
        for parameter in (*self.places.parameters(), *self.channels.parameters()):
            nn.init.zeros_(parameter)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        h = self.parser(self.reduce(h))
        channels = self.channels(h.mean((2, 3)))[:, :, None, None]
        return x * (2 * self.places(h).sigmoid()) * (2 * channels.sigmoid())


class FFParser(nn.Module):
    """A filter of frequencies: one complex weight for each channel and frequency of a map of size x size.

    For maps of another size the weights between two frequencies are interpolated. It begins as the identity.
    """

    def __init__(self, channels: int, size: int) -> None:
        super().__init__()
        self.size = size
        # real and imaginary part, as two real numbers that optimisers and files know
        self.weight = nn.Parameter(torch.tensor([1.0, 0.0]).repeat(channels, size, size // 2 + 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        h, w = x.shape[-2:]
        spectrum = fft.rfft2(x.float()) * torch.view_as_complex(self.at(h, w))
        return fft.irfft2(spectrum, (h, w)).to(x.dtype)

    def at(self, h: int, w: int) -> Tensor:
        """The weights `(channels, h, w // 2 + 1, 2)` for a map of h x w; contiguous, whatever the memory format."""
        if (h, w) == (self.size, self.size):
            return self.weight.contiguous()
        device = self.weight.device
        # in cycles per pixel; a filter has the period 1
        rows, columns = fft.fftfreq(h, device=device) % 1, fft.rfftfreq(w, device=device)
        return _between(_between(self.weight, rows * self.size, 1), columns * self.size, 2).contiguous()


def _between(values: Tensor, places: Tensor, dim: int) -> Tensor:
    """Linear interpolation along a dimension: a period, or half of one whose last entry is only hit exactly."""
    low = places.floor().long()
    high = (low + 1) % values.shape[dim]
    share = (places - low).reshape([-1 if i == dim else 1 for i in range(values.ndim)])
    return torch.lerp(values.index_select(dim, low), values.index_select(dim, high), share)


class MaskGuess(nn.Module):
    """The condition net's way up, to a mask of its own: only training asks for it."""

    def __init__(self, sizes: MedSegDiffPreset, targets: int) -> None:
        super().__init__()
        self.decoder = pyramid.Decoder(sizes.condition)
        self.head = nn.Conv2d(sizes.widths[0], targets, 1)

    def forward(self, conditions: Sequence[Tensor]) -> Tensor:
        """Condition features of every level, the finest first -> `(B * N, K, H, W)`, 0 to 1 in the end."""
        return self.head(self.decoder(conditions)[-1])
