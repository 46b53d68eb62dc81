"""Random numbers from one generator, or from one per mask: a mask's noise then does not depend on its batch."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import prod
from operator import mul

import torch
from torch import Tensor

from berdiff.diffusion.along_z import Along
from berdiff.seeds import seed_of

Source = torch.Generator | Along
"""The random numbers of one mask: its own, or those of a slice that follow the slice before it."""
Generators = torch.Generator | Sequence[Source]
"""One for all masks, or one for each mask of the leading dimensions, in order."""


def uniform(shape: Sequence[int], generators: Generators, like: Tensor) -> Tensor:
    """U[0, 1) of a shape, on the device of `like` and at least as fine as float32."""
    return _numbers(torch.rand, shape, generators, like)


def normal(shape: Sequence[int], generators: Generators, like: Tensor) -> Tensor:
    """N(0, 1) of a shape, on the device of `like` and at least as fine as float32."""
    return _numbers(torch.randn, shape, generators, like)


def _numbers(kind: Callable[..., Tensor], shape: Sequence[int], generators: Generators, like: Tensor) -> Tensor:
    # a uniform number of 8 bits (bfloat16) is below 2^-12 once in 256 draws
    dtype = torch.promote_types(like.dtype, torch.float32)
    if isinstance(generators, torch.Generator):
        return kind(tuple(shape), generator=generators, dtype=dtype, device=like.device)
    if len(generators) not in accumulate(shape, mul):
        raise ValueError(f"generators: expected one for each mask of shape {tuple(shape)}, found {len(generators)}")
    pixels = prod(shape) // len(generators)
    each = [
        g.numbers(kind, pixels, dtype)
        if isinstance(g, Along)
        else kind(pixels, generator=g, dtype=dtype, device=like.device)
        for g in generators
    ]
    return torch.stack(each).reshape(tuple(shape))


def sample_generators(
    seed: int, keys: Sequence[str], n: int, device: torch.device | str = "cpu"
) -> list[torch.Generator]:
    """One generator for each of n samples of each key (a case's name), image-major.

    A sample depends on the seed, its key and its number alone: not on the batch, the order or n.
    """
    return [torch.Generator(device).manual_seed(seed_of(seed, key, i, length=7)) for key in keys for i in range(n)]


def spawn_generators(generator: torch.Generator, count: int) -> list[torch.Generator]:
    """`count` generators seeded from one."""
    seeds = torch.randint(2**62, (count,), generator=generator, device=generator.device)
    return [torch.Generator(generator.device).manual_seed(int(seed)) for seed in seeds]
