"""Draw and score one batch of cases: what the evaluation repeats, and what a trainer's validation may call."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from berdiff.diffusion.sampling import Sampler, sample_generators
from berdiff.errors import InputError
from berdiff.evaluation.scores import Scores, score_samples
from berdiff.methods.segmenter import Segmenter


@dataclass(frozen=True, eq=False)
class Scored:
    """A batch, drawn and scored."""

    samples: Tensor  # (B, n, K, H, W) uint8 on the CPU
    scores: Scores  # metric -> (B, K)
    seconds: float  # of drawing, an image


def draw(
    segmenter: Segmenter,
    images: Tensor,
    names: Sequence[str],
    n: int,
    sampler: Sampler | None,
    seed: int,
    device: torch.device | str = "cpu",
) -> Tensor:
    """n masks for each image `(B, C, H, W)`: `(B, n, K, H, W)` uint8 on the CPU.

    A sample depends on the seed, the case's name and its number alone, not on the batch or the order.
    """
    generators = sample_generators(seed, names, n, device)
    try:
        with torch.no_grad():
            return segmenter.sample(images.to(device), n, generators, sampler).cpu()
    except ValueError as error:  # a method's way to say what does not fit: channels, size, steps
        raise InputError(f"the model cannot sample these images: {error}") from error


def score_cases(
    segmenter: Segmenter,
    images: Tensor,
    masks: Tensor,
    raters: Tensor,
    names: Sequence[str],
    n: int,
    sampler: Sampler | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Scored:
    """images `(B, C, H, W)`, masks `(B, R, K, H, W)`, raters `(B,)`, one name a case."""
    started = time.perf_counter()
    samples = draw(segmenter, images, names, n, sampler, seed, device)
    seconds = (time.perf_counter() - started) / len(images)
    return Scored(samples, score_samples(samples, masks, raters), seconds)
