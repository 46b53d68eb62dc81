"""Images larger than the network: ONE diffusion over the whole image, each step's estimate put together from windows.

Stitching finished masks would not do: two windows draw different plausible masks, and a seam would join halves of two
different opinions. Here all windows look at the same noisy mask y_t of the whole image, their estimates of y0 are
averaged where they overlap, and one draw makes the next y_s. So a sample is one opinion everywhere.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from berdiff.errors import InputError
from berdiff.networks.denoiser import Denoiser

Size = tuple[int, int]


def starts(length: int, size: int, overlap: float) -> list[int]:
    """Where windows begin so that they cover `length`, evenly, each sharing at least `overlap` of it with the next."""
    step = max(1, int(size * (1 - overlap)))
    gaps = -(-(length - size) // step)  # rounded up
    return [round(i * (length - size) / gaps) for i in range(gaps + 1)] if gaps else [0]


def weight(size: Size, like: Tensor) -> Tensor:
    """(h, w), largest in the middle of a window and above 0 everywhere: a network knows least about its border."""
    rows, columns = (
        torch.sin(torch.pi * (torch.arange(n, device=like.device, dtype=like.dtype) + 0.5) / n) ** 2 for n in size
    )
    return rows[:, None] * columns


class Windowed(nn.Module):
    """A `Denoiser` for images of any size, from one that knows a single size.

    The estimates are averaged as probabilities. With the noise as target too that is the average of the estimated
    masks, since |y_t - eps_hat| is linear in eps_hat for the one y_t that all windows see.
    """

    network: Any

    def __init__(self, network: Any, size: Size, overlap: float) -> None:
        super().__init__()
        self.network, self.size, self.overlap = network, size, overlap
        self.targets = network.targets

    def encode(self, image: Tensor) -> tuple[Any, ...]:
        """image `(B, C, H, W)` -> the features of each window."""
        return tuple(self.network.encode(image[..., rows, columns]) for rows, columns in self._places(image))

    def denoise(self, y_t: Tensor, t: Tensor, features: tuple[Any, ...]) -> Tensor:
        """y_t `(B, N, K, H, W)` -> logits like it. The windows go one after the other, so memory does not grow."""
        one = weight(self.size, y_t)
        total, weights = torch.zeros_like(y_t), torch.zeros_like(y_t[0, 0, 0])
        for (rows, columns), of_window in zip(self._places(y_t), features, strict=True):
            part = y_t[..., rows, columns].contiguous()
            total[..., rows, columns] += one * self.network.denoise(part, t, of_window).float().sigmoid()
            weights[rows, columns] += one
        return (total / weights).clamp(0, 1).logit()  # rounding leaves it a hair outside at the ends

    def _places(self, image: Tensor) -> list[tuple[slice, slice]]:
        (h, w), (H, W) = self.size, image.shape[-2:]
        return [
            (slice(y, y + h), slice(x, x + w)) for y in starts(H, h, self.overlap) for x in starts(W, w, self.overlap)
        ]


def over_windows(segmenter: Any, size: Size, overlap: float) -> Any:
    """The same segmenter, weights shared, for images of `size` or larger."""
    if not 0 <= overlap < 1:
        raise InputError(f"--overlap: expected a share from 0 to below 1, found {overlap:g}")
    network = getattr(segmenter, "network", None)
    if not isinstance(network, Denoiser):
        raise InputError(
            f"expected an image (or --center) of {size[0]}x{size[1]} pixels for the method {type(segmenter).__name__}, "
            "which has no steps to join windows in, found a larger one"
        )
    twin = copy.copy(segmenter)
    twin._modules = {**segmenter._modules, "network": Windowed(network, size, overlap)}
    return twin
