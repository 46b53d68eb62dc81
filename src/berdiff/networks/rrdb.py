"""SegDiff's network (Amit et al. 2021, arXiv 2112.00390): the image goes through an RRDB net, once; a U-Net sees the
noisy mask alone, and the image's features are added to those of its first convolution.

RRDB (residual in residual dense blocks, from ESRGAN) works at full resolution and costs twice as much as the U-Net. It
depends on the image only, so here it is all of `encode`; SegDiff's release computes it again at every step.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from berdiff.networks import paper
from berdiff.networks.denoiser import Denoiser
from berdiff.networks.paper import UNetPreset
from berdiff.networks.pyramid import initialise
from berdiff.networks.split_unet import SplitUNet


@dataclass(frozen=True)
class RRDBPreset:
    """The U-Net, and the sizes of the RRDB net before it."""

    unet: UNetPreset
    features: int = 64
    growth: int = 32
    blocks: int = 10
    fold: int = 1  # the image enters folded: fold x fold pixels are as many channels of a smaller image


OWN = UNetPreset((128, 128, 256, 256, 512, 512), attention=(3, 4), head_channels=(32, 32, 64, 64, 128, 128))
PRESETS = {
    # the paper's networks, so that only the way of the image differs from `gaussian`
    "segdiff-paper-128": RRDBPreset(paper.PRESETS["paper-128"]),
    "segdiff-paper-224": RRDBPreset(paper.PRESETS["paper-224"]),
    # SegDiff's own for 128x128: multipliers (1, 1, 2, 2, 4, 4), attention of four heads at 16x16 and 8x8
    "segdiff-own": RRDBPreset(OWN),
    # for two cores
    "segdiff-small": RRDBPreset(paper.PRESETS["small"], features=32, growth=16, blocks=3, fold=2),
    "segdiff-tiny": RRDBPreset(paper.PRESETS["tiny"], features=8, growth=4, blocks=1, fold=2),
}


class SegDiffNet(Denoiser[Tensor]):
    def __init__(self, preset: str, image_channels: int = 1, targets: int = 1) -> None:
        super().__init__(preset, image_channels, targets)
        sizes = PRESETS[preset]
        widths = sizes.unet.channels
        self.stride, self.fold = 2 ** (len(widths) - 1), sizes.fold
        per_pixel = sizes.fold**2
        self.encoder = RRDBNet(per_pixel * image_channels, per_pixel * widths[0], sizes)
        self.unet = SplitUNet(sizes.unet, targets, targets)

    def encode(self, image: Tensor) -> Tensor:
        """Features `(B, C, H, W)` of the U-Net's first width."""
        self.check(image)
        return F.pixel_shuffle(self.encoder(F.pixel_unshuffle(2 * image - 1, self.fold)), self.fold)

    def denoise(self, y_t: Tensor, t: Tensor, features: Tensor) -> Tensor:
        h = self.unet.conv_in(y_t.flatten(0, 1)).unflatten(0, y_t.shape[:2]) + features.unsqueeze(1)
        levels, skips, embedding = self.unet.down(h.flatten(0, 1), t.flatten())
        return self.unet.up(levels[-1], skips, embedding).reshape(y_t.shape)


class RRDBNet(nn.Module):
    """ESRGAN's without its up-sampling."""

    def __init__(self, channels_in: int, channels_out: int, sizes: RRDBPreset) -> None:
        super().__init__()
        width = sizes.features
        self.first = _conv(channels_in, width)
        self.blocks = nn.Sequential(*[RRDB(width, sizes.growth) for _ in range(sizes.blocks)])
        self.trunk, self.fine = _conv(width, width), _conv(width, width)
        self.last = _conv(width, channels_out)
        # torch's default shrinks the image in each of these layers without a norm: what is left of it is a tenth of
        # what the U-Net makes of y_t, and training unlearns it before it is of use
        initialise(self, "he")

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.last(_relu(self.fine(x + self.trunk(self.blocks(x)))))


class RRDB(nn.Module):
    """Three dense blocks, of whose change a fifth is taken."""

    scale: float = 0.2

    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        self.dense = nn.Sequential(*[DenseBlock(width, growth) for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        return x + self.scale * self.dense(x)


class DenseBlock(nn.Module):
    """Five convolutions, each of everything before it; a fifth of the last is added to the input."""

    scale: float = 0.2

    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(_conv(width + i * growth, growth) for i in range(4))
        self.last = _conv(width + 4 * growth, width)

    def forward(self, x: Tensor) -> Tensor:
        seen = x
        for conv in self.convs:
            seen = torch.cat([seen, _relu(conv(seen))], 1)
        return x + self.scale * self.last(seen)


def _conv(channels: int, width: int) -> nn.Conv2d:
    return nn.Conv2d(channels, width, 3, padding=1)


def _relu(x: Tensor) -> Tensor:
    return F.leaky_relu(x, 0.2)
