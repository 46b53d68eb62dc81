"""Random numbers from one generator, or from one a mask: a mask's noise then does not depend on its batch."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import prod
from operator import mul

import torch
from torch import Tensor

Generators = torch.Generator | Sequence[torch.Generator]
"""One for all masks, or one for each mask of the leading dimensions, in order."""


def uniform(shape: Sequence[int], generator: Generators, like: Tensor) -> Tensor:
    """U[0, 1) of a shape, on the device of `like` and at least as fine as float32."""
    return _numbers(torch.rand, shape, generator, like)


def normal(shape: Sequence[int], generator: Generators, like: Tensor) -> Tensor:
    """N(0, 1) of a shape, on the device of `like` and at least as fine as float32."""
    return _numbers(torch.randn, shape, generator, like)


def _numbers(kind: Callable[..., Tensor], shape: Sequence[int], generator: Generators, like: Tensor) -> Tensor:
    # a uniform number of 8 bits (bfloat16) is below 2^-12 once in 256 draws
    options = {"dtype": torch.promote_types(like.dtype, torch.float32), "device": like.device}
    if isinstance(generator, torch.Generator):
        return kind(tuple(shape), generator=generator, **options)
    if len(generator) not in accumulate(shape, mul):
        raise ValueError(f"generator: expected one for each mask of shape {tuple(shape)}, found {len(generator)}")
    pixels = prod(shape) // len(generator)
    return torch.stack([kind(pixels, generator=g, **options) for g in generator]).reshape(tuple(shape))
