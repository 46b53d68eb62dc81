"""Sample slices: of opened images here; of the cases of a store in `evaluation/core.py`, by the same function."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from berdiff.data.apply import Prepared, covered, restore
from berdiff.data.fitting import centre
from berdiff.data.image import Grid
from berdiff.data.input_spec import Kind, Size
from berdiff.diffusion.along_z import Along, correlation, follow
from berdiff.diffusion.random import Source, sample_generators
from berdiff.diffusion.sampler import Sampler
from berdiff.diffusion.sampling import Callback
from berdiff.errors import InputError
from berdiff.inference.settings import NEIGHBOURS, SegmentSettings
from berdiff.methods.base import Segmenter

Advance = Callable[[int], None]  # called with the number of slices that were just done


class Slice(NamedTuple):
    """One slice or 2D image, or a volume where the network sees volumes: its pixels, and where its masks go."""

    key: str  # seeds its noise
    pixels: np.ndarray  # (C, *s), with zeros around a region that is smaller than the network (`Region.pad`)
    place: np.ndarray  # (n, K, *s) to be written
    rho: float | None = None  # how far its noise follows that of the slice before it; None: not at all
    followed: bool = False  # whether the noise of a slice after it follows its own


class Drawn(NamedTuple):
    """What was drawn of one image."""

    grid: Grid  # of the region
    image: np.ndarray  # (C, [Z,] h, w) of the region
    pool: np.ndarray  # (P, K, [Z,] h, w)


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
    """Draw n masks of each slice, all of one shape, into its place. Noise is seeded by (seed, the slice's key, the
    sample's number) alone; in a volume it follows that of the slice before."""
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
            raise InputError(f"the model cannot sample these images: {error}", "unsupported") from error
        for one, masks in zip(batch, samples, strict=True):
            one.place[:] = centre(masks, one.place.shape[2:])
        advance(sum(one.place.shape[2] if one.place.ndim == 5 else 1 for one in batch))


def sample_images(
    segmenter: Segmenter,
    images: Sequence[Prepared],
    size: Size,
    settings: SegmentSettings,
    sampler: Sampler | None,
    device: str,
    advance: Advance,
    callback: Callback | None,
) -> list[Drawn]:
    """The samples drawn of the region of each image; in a volume noise follows from the first slice of the region
    on."""
    P = settings.drawn
    drawn: list[Drawn] = []
    by_shape: dict[tuple[int, ...], list[Slice]] = {}
    for image in images:
        seen = covered(size, image.grid, image.network)
        grid, part = image.part(settings.region.ranges(image.grid.shape, seen, image.what), size)
        drawn.append(Drawn(grid, part, _empty(image.what, (P, segmenter.targets, *grid.shape))))
        for one in _slices(image, drawn[-1], size, settings):
            by_shape.setdefault(one.pixels.shape[1:], []).append(one)
    for shape, alike in by_shape.items():
        tile = None if shape == size else (size, settings.overlap)
        sample_slices(segmenter, alike, P, settings.seed, sampler, device, settings.batch_size, tile, callback, advance)
    return [_restored(image, one, segmenter.kind) for image, one in zip(images, drawn, strict=True)]


def _restored(image: Prepared, drawn: Drawn, kind: Kind) -> Drawn:
    """On the image's own grid, where the network saw another spacing."""
    if image.network is None:
        return drawn
    grid, pool = restore(drawn.pool, drawn.grid, image, kind)
    return Drawn(grid, image.image[(..., *grid.box)], pool)


def _empty(what: str, shape: tuple[int, ...]) -> np.ndarray:
    try:
        return np.zeros(shape, np.uint8)
    except (MemoryError, ValueError) as error:  # the latter where no machine could
        size = f"{np.prod(shape, dtype=float) / 2**30:,.0f} GiB for {shape[0]} masks"
        raise InputError(f"{what}: expected {size}, found less memory (--samples, --pool)", "limit") from error


def _slices(image: Prepared, region: Drawn, size: Size, settings: SegmentSettings) -> list[Slice]:
    grid, part, masks = region
    planes = centre(part, [max(sides) for sides in zip(size, grid.shape[-len(size) :], strict=True)])
    if len(size) == len(grid.shape):
        return [Slice(image.name, planes, masks)]
    distance = grid.spacing[0] if np.isfinite(grid.spacing[0]) else NEIGHBOURS
    rho = correlation(distance, settings.coherence) or None
    depth = range(grid.shape[0])
    keys = [f"{image.name}|{grid.first + z}" for z in depth]
    return of_volume(keys, (planes[:, z] for z in depth), (masks[:, :, z] for z in depth), rho)
