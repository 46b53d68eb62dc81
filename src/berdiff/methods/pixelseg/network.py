"""PixelSeg (Zhang et al. 2022): a U-Net, and masked convolutions on the mask at half the resolution."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from berdiff.methods.pixelseg.masked import MaskedStack
from berdiff.networks.pyramid import Sizes, UNet


@dataclass(frozen=True)
class PixelSizes:
    unet: Sizes
    width: int  # channels of the masked convolutions
    layers: int  # how many there are
    kernel: int  # their size


PRESETS = {
    "paper": PixelSizes(Sizes((32, 64, 128, 192, 96), convs=2, norm="group", pool="max"), 64, 8, 7),
    "small": PixelSizes(Sizes((24, 48, 96, 128), convs=2, norm="group", pool="max"), 48, 6, 5),  # for two cores
    "tiny": PixelSizes(Sizes((8, 16), convs=1, norm="group", pool="max"), 8, 3, 5),
}

Logits = tuple[Tensor, Tensor]
"""What the U-Net makes of the image: logits `(B, K, H, W)`, and at half the resolution `(B, K, h, w)`."""


class PixelSeg(nn.Module):
    """The image enters the half-size mask as one summand of the logits, and that is done once per image: the authors'
    1x1 convolution of [masked features, image features] is a sum of two 1x1 convolutions."""

    def __init__(self, preset: str, channels: int, targets: int) -> None:
        super().__init__()
        sizes = PRESETS[preset]
        full, half, *_ = sizes.unet.widths
        self.stride = sizes.unet.stride
        self.unet = UNet(channels, sizes.unet)
        self.to_full, self.to_half = nn.Conv2d(full, targets, 1), nn.Conv2d(half, targets, 1)
        self.stack = MaskedStack(targets, sizes.width, sizes.layers, sizes.kernel)
        self.join = nn.Conv2d(2 * targets, targets, 1)
        with torch.no_grad():  # begin with the sum of both
            self.join.weight.copy_(torch.eye(targets).repeat(1, 2)[:, :, None, None])

    def encode(self, image: Tensor) -> Logits:
        """image `(B, C, H, W)` in [0, 1], run once per image."""
        *_, half, full = self.unet(image - 0.5)
        return self.to_full(full), self.to_half(half)

    def next_pixel(self, logits: Logits, y: Tensor) -> Tensor:
        """Half-size masks y `(B, N, K, h, w)` -> logits like y, each of a pixel given those before it."""
        return self.stack(y.flatten(0, 1)).unflatten(0, y.shape[:2]) + logits[1].unsqueeze(1)

    def whole(self, logits: Logits, next_pixel: Tensor) -> Tensor:
        """The `next_pixel` of half-size masks -> logits of the masks at the full resolution `(B, N, K, H, W)`.

        As published, they learn from the half-size logits without teaching them.
        """
        B, N = next_pixel.shape[:2]
        up = F.interpolate(next_pixel.detach().flatten(0, 1), scale_factor=2.0, mode="bilinear", align_corners=False)
        image = logits[0].unsqueeze(1).expand(B, N, -1, -1, -1).flatten(0, 1)
        return self.join(torch.cat([image, up.to(image.dtype)], 1)).unflatten(0, (B, N))
