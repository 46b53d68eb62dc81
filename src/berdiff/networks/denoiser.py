"""The interface of the network that estimates: encode the image once, denoise at each step."""

from abc import ABC, abstractmethod
from typing import ClassVar, Generic, TypeVar

from torch import Tensor, nn

from berdiff.networks.check_image import check_image

Features = TypeVar("Features")
"""What `encode` leaves for `denoise`: a tensor, or nested tuples of tensors, batch first."""


class Denoiser(nn.Module, ABC, Generic[Features]):
    """It knows nothing of losses, sampling or medicine.

    The N masks of one image come together, so that work on the image is done once and shared.
    """

    spatial_dims: ClassVar[tuple[int, ...]] = (2,)  # 3 where it also takes volumes: then `dims` says which
    stride: int  # sides of images must be multiples of it
    centred: bool = False  # it wants masks as -1 and 1: Gaussian noise is on such masks, others are made so for it
    summary_width: int = 0  # of `encode_and_summarise`; 0: the network keeps no features of the image as a whole

    def __init__(self, preset: str, image_channels: int = 1, targets: int = 1) -> None:
        super().__init__()
        self.preset, self.image_channels, self.targets = preset, image_channels, targets

    @abstractmethod
    def encode(self, image: Tensor) -> Features:
        """image `(B, C, *S)` in [0, 1] -> features, run once per image."""

    @abstractmethod
    def denoise(self, y_t: Tensor, t: Tensor, features: Features) -> Tensor:
        """y_t `(B, N, K, *S)`, t `(B, N)` in 1..T, features of B images -> logits like y_t."""

    def denoise_mask(self, y_t: Tensor, t: Tensor, features: Features) -> Tensor:
        """`denoise` of masks of 0 and 1."""
        return self.denoise(2 * y_t - 1 if self.centred else y_t, t, features)

    def encode_and_summarise(self, image: Tensor) -> tuple[Features, Tensor]:
        """(features, summary `(B, summary_width)`): as `encode`, and what was seen of the image as a whole."""
        raise ValueError(f"preset: expected a network that summarises the image, such as fast, found {self.preset}")

    def check(self, image: Tensor) -> None:
        """ValueError unless `image` is one that the network can take."""
        check_image(image, self.image_channels, self.stride)
