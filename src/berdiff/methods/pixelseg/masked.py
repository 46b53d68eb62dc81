"""Masked convolutions: a pixel is seen only by those after it in raster order; and exact samples by a fixed point.

Van den Oord et al. 2016 (PixelRNN, arXiv 1601.06759): p(y) is the product over pixels of p(y_i | y_1 .. y_{i - 1}).
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class MaskedConv(nn.Conv2d):
    """A k x k convolution of the pixels before a pixel in raster order ("mask A"); with `own` also of itself ("B").

    Rows below the centre are not even stored; a mask hides the rest of the centre's own row.
    """

    mask: Tensor

    def __init__(self, channels: int, width: int, kernel: int, own: bool) -> None:
        if kernel % 2 == 0:
            raise ValueError(f"kernel: expected an odd number, found {kernel}")
        reach = kernel // 2
        super().__init__(channels, width, (reach + 1, kernel))  # pyright: ignore[reportUnknownMemberType]
        mask = torch.ones(reach + 1, kernel)
        mask[-1, reach + own :] = 0
        self.reach = reach
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, input: Tensor) -> Tensor:
        """`(B, channels, h, w)` -> `(B, width, h, w)`."""
        above = F.pad(input, (self.reach, self.reach, self.reach, 0))
        return F.conv2d(above, self.weight * self.mask, self.bias)


class PixelNorm(nn.LayerNorm):
    """LayerNorm of the channels of each pixel by itself: a norm over space would show a pixel those after it."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.movedim(1, -1)).movedim(-1, 1)


class MaskedStack(nn.Module):
    """Logits of each pixel from those before it: masked convolutions, the first of which does not see the pixel itself.

    Channels (targets) of one pixel do not see each other: given the pixels before, they are independent.
    """

    def __init__(self, channels: int, width: int, layers: int, kernel: int) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        for i in range(layers):
            conv = MaskedConv(width if i else channels, width, kernel, own=i > 0)
            parts += [conv, PixelNorm(width), nn.ReLU()]
        self.layers = nn.Sequential(*parts)
        self.out = nn.Conv2d(width, channels, 1)

    def forward(self, y: Tensor) -> Tensor:
        """y `(B, channels, h, w)` of 0 and 1 -> logits like y."""
        return self.out(self.layers(2 * y - 1))


def fixed_point(logits: Callable[[Tensor], Tensor], u: Tensor) -> Tensor:
    """The mask that a raster scan draws with the uniform numbers u `(..., h, w)`: y = [u < sigmoid(logits(y))].

    The logits of a pixel depend on those before it alone, so each pass settles at least one more pixel for good, and
    usually many: it ends, and where it ends every pixel was drawn given the true ones before it. A mask that is settled
    no longer changes, so it does not depend on the others, which may still need passes.
    """
    y = torch.zeros_like(u)
    for _ in range(u.shape[-2] * u.shape[-1]):
        before, y = y, (u < logits(y).float().sigmoid()).to(u.dtype)
        if torch.equal(y, before):
            break
    return y
