"""Ways for the latents of N masks of an image into the features of that image, which are computed once."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def tile(features: Tensor, z: Tensor) -> Tensor:
    """Features `(B, C, h, w)`, z `(B, N, Z)` -> `(B * N, C + Z, h, w)`: z at every pixel, joined with the features."""
    B, N, Z = z.shape
    _, C, h, w = features.shape
    parts = [features.unsqueeze(1).expand(B, N, C, h, w), z[..., None, None].expand(B, N, Z, h, w).to(features.dtype)]
    return torch.cat(parts, 2).flatten(0, 1)


class TileConv(nn.Module):
    """A 1x1 convolution of `tile(features, z)`, without the tiling: its part for the features is done once per image.

    conv([f, z]) = W_f f + (W_z z + b).
    """

    def __init__(self, channels: int, dims: int, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels + dims, width, 1)

    def forward(self, features: Tensor, z: Tensor) -> Tensor:
        """Features `(B, channels, h, w)`, z `(B, N, dims)` -> `(B * N, width, h, w)`."""
        C, weight = features.shape[1], self.conv.weight
        shift = F.linear(z, weight[:, C:, 0, 0], self.conv.bias)
        return (F.conv2d(features, weight[:, :C]).unsqueeze(1) + shift[..., None, None]).flatten(0, 1)


class FiLM(nn.Module):
    """features (1 + gain) + shift, with gain and shift linear in z."""

    def __init__(self, dims: int, channels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dims, 2 * channels)

    def forward(self, features: Tensor, z: Tensor) -> Tensor:
        """Features `(B, C, h, w)`, z `(B, N, dims)` -> `(B * N, C, h, w)`."""
        gain, shift = self.linear(z)[..., None, None].chunk(2, 2)
        return torch.addcmul(shift, features.unsqueeze(1), 1 + gain).flatten(0, 1)
