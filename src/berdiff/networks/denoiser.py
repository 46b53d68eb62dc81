"""The protocol of the network that estimates: encode the image once, denoise at each step."""

from typing import Any, Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class Denoiser(Protocol):
    """Any `nn.Module` with these two methods serves; it knows nothing of losses, sampling or medicine.

    The N masks of one image come together, so that work on the image is done once and shared.
    """

    def encode(self, image: Tensor) -> Any:
        """image `(B, C, H, W)` -> features, run once an image. A tensor, or nested tuples of tensors, batch first."""
        ...

    def denoise(self, y_t: Tensor, t: Tensor, features: Any) -> Tensor:
        """y_t `(B, N, K, H, W)` of 0/1 as float, t `(B, N)` in 1..T, features of B images -> logits like y_t."""
        ...
