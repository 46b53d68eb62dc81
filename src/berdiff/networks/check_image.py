"""What every network that reads an image refuses."""

from torch import Tensor


def check_image(image: Tensor, channels: int, stride: int) -> None:
    """ValueError unless `image` `(B, C, H, W)` has so many channels, and height and width in multiples of `stride`."""
    _, C, H, W = image.shape
    if channels != C:
        raise ValueError(f"image: expected {channels} channels, found {C}")
    if H % stride or W % stride:
        raise ValueError(f"image: expected height and width in multiples of {stride}, found {H}x{W}")
