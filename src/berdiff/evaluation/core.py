"""Sample a batch of cases: what an evaluation repeats, a training's validation calls and the frontier times."""

from collections.abc import Sequence

import torch
from torch import Tensor

from berdiff.data.augment import middle
from berdiff.data.input_spec import Size
from berdiff.diffusion.sampler import Sampler
from berdiff.inference.settings import SegmentSettings
from berdiff.inference.slices import of_volume, sample_slices
from berdiff.methods.base import Segmenter

OVERLAP = SegmentSettings.overlap  # of tiles: an evaluation draws the masks that a segmentation does


def sample_cases(
    segmenter: Segmenter,
    images: Tensor,
    names: Sequence[str],
    n: int,
    sampler: Sampler | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    crop: Size | None = None,
    rho: float | None = None,
) -> Tensor:
    """n masks for each image `(B, C, *S)`: `(B, n, K, *S)` uint8 on the CPU; `sampler` None is the model's own.

    `crop` is the centre that the model sees; outside it the masks are empty. None: it sees all. A model of patches sees
    what is larger than they are by tiles. A sample depends on the seed, the case's name and its number alone, not on
    the batch or the order; with `rho` the images are the slices of one volume, and each sample follows itself through
    them, its random numbers in neighbours correlated by rho.
    """
    seen, tile = seen_by(segmenter, images, crop)
    masks = torch.zeros(len(images), n, segmenter.targets, *images.shape[2:], dtype=torch.uint8)
    places = masks[..., *middle(masks.shape[3:], seen.shape[2:])]
    slices = of_volume(names, seen.numpy(), places.numpy(), rho)
    sample_slices(segmenter, slices, n, seed, sampler, device, len(slices), tile)
    return masks


def seen_by(segmenter: Segmenter, images: Tensor, crop: Size | None) -> tuple[Tensor, tuple[Size, float] | None]:
    """What the model sees of images `(B, C, *S)`: their centre, or all of them; and by which tiles, if by any."""
    size, own = tuple(crop or images.shape[2:]), segmenter.input_spec.size
    larger = size != own and all(have >= want for have, want in zip(size, own, strict=True))
    seen = images[..., *middle(images.shape[2:], size)].contiguous()
    return seen, (own, OVERLAP) if segmenter.input_spec.patches and larger else None
