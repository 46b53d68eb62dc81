"""A model that needs no training and no weights: what is bright is marked, more or less. For tests of all around it."""

from typing import Any

import torch
from torch import nn

from berdiff.diffusion.sampling import Sampler
from berdiff.diffusion.schedule import linear
from berdiff.inference.model import Model
from berdiff.methods.berdiff import BerDiff


class Bright(nn.Module):
    """Logits by the brightness around a pixel and by the noisy mask. It keeps the `Denoiser` protocol."""

    def __init__(self, channels: int = 1, targets: int = 1) -> None:
        super().__init__()
        self.image_channels, self.targets, self.stride = channels, targets, 1

    def config(self) -> dict[str, object]:
        return {"image_channels": self.image_channels, "targets": self.targets}

    def encode(self, image: torch.Tensor) -> torch.Tensor:
        if image.shape[1] != self.image_channels:
            raise ValueError(f"image: expected {self.image_channels} channels, found {image.shape[1]}")
        return nn.functional.avg_pool2d(image.mean(1, keepdim=True), 3, 1, 1)

    def denoise(self, y_t: torch.Tensor, t: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        return 12 * (features[:, None] - 0.6) + (y_t - 0.5)


def make_model(
    channels: tuple[str, ...] = ("ct",), targets: tuple[str, ...] = ("nodule",), size=(16, 16), **about: Any
) -> Model:
    segmenter: Any = BerDiff(Bright(len(channels), len(targets)), linear(50), target="mask", sampler=Sampler(steps=3))
    segmenter.about, segmenter.weights_sha256 = about, "0" * 64
    return Model(segmenter.eval(), "standin", size, channels, targets)
