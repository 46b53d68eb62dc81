"""The interface of the network that estimates: encode the image once, denoise at each step."""

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from torch import Tensor, nn

Features = TypeVar("Features")
"""What `encode` leaves for `denoise`: a tensor, or nested tuples of tensors, batch first."""


class Denoiser(nn.Module, ABC, Generic[Features]):
    """It knows nothing of losses, sampling or medicine.

    The N masks of one image come together, so that work on the image is done once and shared.
    """

    stride: int  # height and width must be multiples of it
    signed: bool = False  # y_t is -1 and 1 with noise, as a Gaussian kernel has it, not 0 and 1: it needs no centring
    summary_width: int = 0  # of `encode_and_summarise`; 0: the network keeps no features of the image as a whole

    def __init__(self, preset: str, image_channels: int = 1, targets: int = 1) -> None:
        super().__init__()
        self.preset, self.image_channels, self.targets = preset, image_channels, targets

    @abstractmethod
    def encode(self, image: Tensor) -> Features:
        """image `(B, C, H, W)` in [0, 1] -> features, run once per image."""

    @abstractmethod
    def denoise(self, y_t: Tensor, t: Tensor, features: Features) -> Tensor:
        """y_t `(B, N, K, H, W)`, t `(B, N)` in 1..T, features of B images -> logits like y_t."""

    def encode_and_summarise(self, image: Tensor) -> tuple[Features, Tensor]:
        """(features, summary `(B, summary_width)`): as `encode`, and what was seen of the image as a whole."""
        raise ValueError(f"preset: expected a network that summarises the image, such as fast, found {self.preset}")

    def check(self, image: Tensor) -> None:
        """ValueError unless `image` is one that the network can take."""
        _, C, H, W = image.shape
        if self.image_channels != C:
            raise ValueError(f"image: expected {self.image_channels} channels, found {C}")
        if H % self.stride or W % self.stride:
            raise ValueError(f"image: expected height and width in multiples of {self.stride}, found {H}x{W}")
