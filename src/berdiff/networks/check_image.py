"""What networks refuse: images that do not fit, and sizes that leave a norm nothing."""

from torch import Tensor

Size = tuple[int, ...]
"""Height and width."""


def check_image(image: Tensor, channels: int, stride: int) -> None:
    """ValueError unless `image` `(B, C, H, W)` has so many channels, and height and width in multiples of `stride`."""
    _, C, H, W = image.shape
    if channels != C:
        raise ValueError(f"image: expected {channels} channels, found {C}")
    if H % stride or W % stride:
        raise ValueError(f"image: expected height and width in multiples of {stride}, found {H}x{W}")


def check_size(size: Size, stride: int) -> None:
    """ValueError where images of this height and width have one pixel left at the coarsest level.

    A norm over it would be nothing but its bias, and BatchNorm, with one image at a time, fails.
    """
    if min(size) < 2 * stride:
        raise ValueError(f"size: expected at least {2 * stride} pixels per side, found {size[0]}x{size[1]}")
