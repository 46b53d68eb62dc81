"""Sample slices: of opened images here; of the cases of a store in `evaluation/core.py`, by the same function."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from berdiff.data.fitting import centre
from berdiff.data.input_spec import Size
from berdiff.diffusion.along_z import Along, correlation, follow
from berdiff.diffusion.random import Source, sample_generators
from berdiff.diffusion.sampler import Sampler
from berdiff.diffusion.sampling import Callback
from berdiff.errors import InputError
from berdiff.inference.opening import OpenedImage
from berdiff.inference.settings import NEIGHBOURS, SegmentSettings
from berdiff.methods.base import Segmenter

Advance = Callable[[int], None]  # called with the number of slices that were just done


class Slice(NamedTuple):
    """One slice, or one 2D image: what the network sees of it, and where its masks go."""

    key: str  # seeds its noise
    pixels: np.ndarray  # (C, h, w), with zeros around a region that is smaller than the network (`Region.pad`)
    place: np.ndarray  # (n, K, h, w) to be written
    rho: float | None = None  # how far its noise follows that of the slice before it; None: not at all
    followed: bool = False  # whether the noise of a slice after it follows its own


def of_volume(
    keys: Sequence[str], pixels: Iterable[np.ndarray], places: Iterable[np.ndarray], rho: float | None
) -> list[Slice]:
    """The slices of one volume in their order; with `rho` each follows the one before it."""
    return [
        Slice(key, pixel, place, rho if z else None, rho is not None and z + 1 < len(keys))
        for z, (key, pixel, place) in enumerate(zip(keys, pixels, places, strict=True))
    ]


def sample_slices(
    segmenter: Segmenter,
    slices: Sequence[Slice],
    n: int,
    seed: int,
    sampler: Sampler | None,
    device: torch.device | str,
    batch_size: int,
    tile: tuple[Size, float] | None,
    callback: Callback | None = None,
    advance: Advance = lambda slices: None,
) -> None:
    """Draw n masks of each slice, all of one shape, into its place.

    The noise of a sample is seeded by (seed, the slice's key, its number) and nothing else; in a volume it follows that
    of the slice before it.
    """
    before: list[Along] | None = None
    for first in range(0, len(slices), batch_size):
        batch = slices[first : first + batch_size]
        pixels = torch.from_numpy(np.stack([one.pixels for one in batch])).to(device)
        generators: list[Source] = []
        for one in batch:
            own = sample_generators(seed, [one.key], n, device)
            before = follow(own, None if one.rho is None else before, one.rho or 0.0, one.followed)
            generators += before
        try:
            samples = segmenter.sample(pixels, n, generators, sampler, callback, tile).cpu().numpy()
        except InputError:  # a method that cannot join tiles
            raise
        except ValueError as error:  # how a method reports what does not fit: channels, size, steps
            raise InputError(f"the model cannot sample these images: {error}") from error
        for one, masks in zip(batch, samples, strict=True):
            one.place[:] = centre(masks, one.place.shape[2:])
        advance(len(batch))


def sample_images(
    segmenter: Segmenter,
    images: Sequence[OpenedImage],
    size: Size,
    settings: SegmentSettings,
    sampler: Sampler | None,
    device: str,
    advance: Advance,
    callback: Callback | None,
) -> list[np.ndarray]:
    """The samples `(P, K, [Z,] H, W)` drawn of each image, on its whole grid, 0 outside the region.

    In a volume noise follows that of the slice before, from the first slice of the region on.
    """
    P = settings.drawn
    whole = [_empty(image, P, segmenter.targets) for image in images]
    by_shape: dict[tuple[int, ...], list[Slice]] = {}
    for image, masks in zip(images, whole, strict=True):
        for one in _slices(image, masks, size, settings):
            by_shape.setdefault(one.pixels.shape[-2:], []).append(one)
    for shape, alike in by_shape.items():
        tile = None if shape == size else (size, settings.overlap)
        sample_slices(segmenter, alike, P, settings.seed, sampler, device, settings.batch_size, tile, callback, advance)
    return whole


def _empty(image: OpenedImage, count: int, targets: int) -> np.ndarray:
    shape = (count, targets, *image.image.shape[1:])
    try:
        return np.zeros(shape, np.uint8)
    except (MemoryError, ValueError) as error:  # the latter where no machine could
        size = f"{np.prod(shape, dtype=float) / 2**30:,.0f} GiB for {count} masks of the whole image"
        raise InputError(f"{image.what}: expected {size}, found less memory (--samples, --pool)") from error


def _slices(image: OpenedImage, masks: np.ndarray, size: Size, settings: SegmentSettings) -> list[Slice]:
    ranges = settings.region.ranges(image.image.shape[1:], size, image.what)
    box = tuple(slice(*ends) for ends in ranges[-2:])
    height, width = (max(side, last - first) for side, (first, last) in zip(size, ranges[-2:], strict=True))
    planes, places = centre(image.image[..., *box], (height, width)), masks[..., *box]
    if planes.ndim == 3:
        return [Slice(image.name, planes, places)]
    distance = image.spacing[0] if np.isfinite(image.spacing[0]) else NEIGHBOURS
    rho = correlation(distance, settings.coherence) or None
    chosen = range(*ranges[0])
    keys = [f"{image.name}|{image.first + z}" for z in chosen]
    return of_volume(keys, (planes[:, z] for z in chosen), (places[:, :, z] for z in chosen), rho)
