"""Sample a batch of cases: what an evaluation repeats, and what a training's validation calls."""

from collections.abc import Sequence

import torch
from torch import Tensor

from berdiff.diffusion.random import sample_generators
from berdiff.diffusion.sampler import Sampler
from berdiff.errors import InputError
from berdiff.methods.base import Segmenter


def sample_cases(
    segmenter: Segmenter,
    images: Tensor,
    names: Sequence[str],
    n: int,
    sampler: Sampler | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Tensor:
    """n masks for each image `(B, C, H, W)`: `(B, n, K, H, W)` uint8 on the CPU; `sampler` None is the model's own.

    A sample depends on the seed, the case's name and its number alone, not on the batch or the order.
    """
    generators = sample_generators(seed, names, n, device)
    try:
        return segmenter.sample(images.to(device), n, generators, sampler).cpu()
    except ValueError as error:  # what a method raises where channels, size or steps do not fit
        raise InputError(f"the model cannot sample these images: {error}") from error
