"""Sample a batch of cases: what an evaluation repeats, a training's validation calls and the frontier times."""

from collections.abc import Sequence

import torch
from torch import Tensor

from berdiff.data.input_spec import Size
from berdiff.diffusion.random import sample_generators, volume_generators
from berdiff.diffusion.sampler import Sampler
from berdiff.errors import InputError
from berdiff.inference.settings import SegmentSettings
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
    """n masks for each image `(B, C, H, W)`: `(B, n, K, H, W)` uint8 on the CPU; `sampler` None is the model's own.

    `crop` is the centre that the model sees; outside it the masks are empty. None: it sees all. A model of patches sees
    what is larger than they are by tiles. A sample depends on the seed, the case's name and its number alone, not on
    the batch or the order; with `rho` the images are the slices of one volume, and each sample follows itself through
    them, its random numbers in neighbours correlated by rho.
    """
    size = images.shape[-2:]
    generators = (
        sample_generators(seed, names, n, device) if rho is None else volume_generators(seed, names, n, rho, device)
    )
    try:
        seen, tile = seen_by(segmenter, images, crop)
        samples = segmenter.sample(seen.to(device), n, generators, sampler, tile=tile).cpu()
    except ValueError as error:  # what a method raises where channels, size or steps do not fit
        raise InputError(f"the model cannot sample these images: {error}") from error
    if samples.shape[-2:] == size:
        return samples
    whole = samples.new_zeros(*samples.shape[:-2], *size)
    _centre(whole, crop)[:] = samples
    return whole


def seen_by(segmenter: Segmenter, images: Tensor, crop: Size | None) -> tuple[Tensor, tuple[Size, float] | None]:
    """What the model sees of images `(B, C, H, W)`: their centre, or all of them; and by which tiles, if by any."""
    seen = _centre(images, crop).contiguous()
    return seen, _tile(segmenter, seen)


def _centre(planes: Tensor, crop: Size | None) -> Tensor:
    size = planes.shape[-2:]
    rows, columns = (_middle(have, want) for have, want in zip(size, crop or size, strict=True))
    return planes[..., rows, columns]


def _tile(segmenter: Segmenter, seen: Tensor) -> tuple[Size, float] | None:
    """Size and overlap of tiles, where a model of patches sees more than one of them."""
    spec, size = segmenter.input_spec, seen.shape[-2:]
    larger = size != spec.size and all(have >= want for have, want in zip(size, spec.size, strict=True))
    return (spec.size, OVERLAP) if spec.patches and larger else None


def _middle(have: int, want: int) -> slice:
    """The `want` places in the middle of `have`, as `data.augment.crop` takes them."""
    first = (have - want) // 2
    return slice(first, first + want)
