"""What networks refuse: images that do not fit, and sizes that leave a norm nothing."""

from collections.abc import Sequence

from torch import Tensor

Size = tuple[int, ...]
"""The sides of an image: (H, W) or (Z, H, W)."""
_SIDES = {2: "height and width", 3: "depth, height and width"}


def check_image(image: Tensor, channels: int, stride: int) -> None:
    """ValueError unless `image` `(B, C, *S)` has so many channels, and sides in multiples of `stride`."""
    _, C, *size = image.shape
    if channels != C:
        raise ValueError(f"image: expected {channels} channels, found {C}")
    check_multiples(size, stride, "image")


def check_multiples(size: Sequence[int], stride: int, what: str = "size") -> None:
    """ValueError unless all sides are multiples of `stride`."""
    if any(side % stride for side in size):
        found = "x".join(map(str, size))
        raise ValueError(f"{what}: expected {_SIDES[len(size)]} in multiples of {stride}, found {found}")


def check_size(size: Size, stride: int) -> None:
    """ValueError where images of this size have one pixel left at the coarsest level.

    A norm over it would be nothing but its bias, and BatchNorm, with one image at a time, fails.
    """
    if min(size) < 2 * stride:
        found = "x".join(map(str, size))
        raise ValueError(f"size: expected at least {2 * stride} pixels per side, found {found}")
