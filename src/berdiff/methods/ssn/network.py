"""Stochastic segmentation networks (Monteiro et al. 2020): a U-Net whose logits are one Gaussian over all pixels."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from berdiff.networks.check_image import check_size
from berdiff.networks.latent import Gaussian, bounded
from berdiff.networks.pyramid import Sizes, UNet

# BatchNorm, as published: with GroupNorm the coarse levels forget the image in the first steps (docs/methods/ssn.md)
PRESETS = {
    "paper": Sizes((32, 64, 128, 192, 192, 192, 192), convs=3, norm="batch"),  # for 128x128
    "small": Sizes((32, 64, 128, 192, 192), convs=2, norm="batch"),  # for two cores
    "tiny": Sizes((8, 16), convs=1, norm="group"),  # tests train on one image, too few for BatchNorm
}
RARE = -5.0  # logit at which the mean begins: a pixel in 150 is marked


class LowRank(NamedTuple):
    """N(mean, factor factor' + diag(sigma^2)) over the D = K H W logits of an image; the covariance is never formed."""

    mean: Tensor  # (B, K, H, W)
    log_sigma: Tensor  # the same
    factor: Tensor  # (B, rank, K, H, W)

    def draw(self, shared: Tensor, own: Tensor) -> Tensor:
        """mean + factor e + sigma e', with e = shared `(B, N, rank)` and e' = own `(B, N, K, H, W)`, both N(0, 1)."""
        with torch.autocast(self.mean.device.type, enabled=False):
            together = torch.bmm(shared, self.factor.flatten(2)).reshape(own.shape)
        return Gaussian(self.mean.unsqueeze(1), self.log_sigma.unsqueeze(1)).draw(own) + together


class SSN(nn.Module):
    """All of it runs once per image; a mask costs one product of `rank` numbers with the factor."""

    def __init__(self, preset: str, channels: int, targets: int, size: tuple[int, ...], rank: int) -> None:
        """`size`: height and width of the images that it learns from."""
        super().__init__()
        sizes = PRESETS[preset]
        check_size(size, sizes.stride)
        width = sizes.widths[0]
        self.targets, self.rank, self.stride = targets, rank, sizes.stride
        self.unet = UNet(channels, sizes)
        self.mean, self.raw = nn.Conv2d(width, targets, 1), nn.Conv2d(width, targets, 1)
        self.factor = nn.Conv2d(width, rank * targets, 1)
        # few pixels are marked. From a mean of 0, the likelihood gains more by spreading all pixels together than by
        # moving the mean: the best of the draws has an empty background then, and nothing tells of the full ones
        nn.init.constant_(self.mean.bias, RARE)  # pyright: ignore[reportArgumentType]
        # begin with little noise of each pixel's own, which no draw gets right; the factor must not begin near 0, or it
        # may stay there
        nn.init.zeros_(self.raw.weight)
        nn.init.constant_(self.raw.bias, -2.0)  # pyright: ignore[reportArgumentType]

    def encode(self, image: Tensor) -> LowRank:
        """image `(B, C, H, W)` in [0, 1]."""
        features = self.unet(image - 0.5)[-1]
        mean, log_sigma = bounded(self.mean(features), self.raw(features))
        return LowRank(mean, log_sigma, self.factor(features).float().unflatten(1, (self.rank, self.targets)))
