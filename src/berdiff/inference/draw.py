"""Draw the masks of opened images: cut the region, batch the slices, sample, put the masks back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from berdiff.data.fitting import centre
from berdiff.diffusion.sampling import Sampler, sample_generators
from berdiff.errors import InputError
from berdiff.inference.reading import Opened
from berdiff.inference.region import Region
from berdiff.inference.windows import over_windows

Advance = Callable[[int], None]  # told how many more slices are done


@dataclass(frozen=True)
class Settings:
    """How to draw. `batch_size` and the order of images change nothing in the masks."""

    samples: int = 16
    sampler: Sampler = field(default_factory=Sampler)
    seed: int = 0
    region: Region = field(default_factory=Region)
    overlap: float = 0.25  # of neighbouring windows, where an image is larger than the network
    batch_size: int = 16  # slices drawn together

    def __post_init__(self) -> None:
        for option, value in (("samples", self.samples), ("batch-size", self.batch_size)):
            if value < 1:
                raise InputError(f"--{option}: expected at least 1, found {value}")
        if not 0 <= self.overlap < 1:
            raise InputError(f"--overlap: expected a share from 0 to below 1, found {self.overlap:g}")


class _Plane(NamedTuple):
    """One slice, or one 2D image, of the region."""

    image: int  # whose it is
    place: tuple[slice | int, ...]  # where it lies on the image's last axes
    key: str  # seeds its noise
    pixels: np.ndarray  # (C, h, w), a view where nothing had to be put around it


def draw(
    segmenter: Any,
    images: Sequence[Opened],
    size: tuple[int, int],
    settings: Settings,
    device: str = "cpu",
    advance: Advance = lambda slices: None,
) -> list[np.ndarray]:
    """The samples `(n, K, [Z,] H, W)` of each image, on its whole grid, 0 outside the region.

    The noise of a sample is seeded by (seed, the image's name, slice, number) and nothing else.
    """
    planes = [plane for i, image in enumerate(images) for plane in _planes(i, image, size, settings.region)]
    by_shape: dict[tuple[int, ...], list[_Plane]] = {}
    for plane in planes:
        by_shape.setdefault(plane.pixels.shape[-2:], []).append(plane)
    whole: dict[int, np.ndarray] = {}
    for shape, alike in by_shape.items():
        fitting = segmenter if shape == size else over_windows(segmenter, size, settings.overlap)
        for first in range(0, len(alike), settings.batch_size):
            together = alike[first : first + settings.batch_size]
            masks = _sample(fitting, together, settings, device)
            for plane, of_plane in zip(together, masks, strict=True):
                grid = images[plane.image].image.shape[1:]
                of_image = whole.setdefault(plane.image, np.zeros((*of_plane.shape[:2], *grid), np.uint8))
                target = of_image[(..., *plane.place)]
                target[:] = centre(of_plane, target.shape[-2:])
            advance(len(together))
    return [whole[i] for i in range(len(images))]


def _planes(number: int, image: Opened, size: tuple[int, int], region: Region) -> list[_Plane]:
    """Zeros are put around a region that is smaller than the network (`Region.pad`)."""
    ranges = region.ranges(image.image.shape[1:], size, image.what)
    rows, columns = (slice(*of) for of in ranges[-2:])
    least = [max(side, last - first) for side, (first, last) in zip(size, ranges[-2:], strict=True)]
    fitted = (least[0], least[1])
    if image.image.ndim == 3:
        return [_Plane(number, (rows, columns), image.name, centre(image.image[:, rows, columns], fitted))]
    return [
        _Plane(number, (z, rows, columns), f"{image.name}|{z}", centre(image.image[:, z, rows, columns], fitted))
        for z in range(*ranges[0])
    ]


def _sample(segmenter: Any, planes: Sequence[_Plane], settings: Settings, device: str) -> np.ndarray:
    """(B, n, K, h, w) uint8."""
    batch = torch.from_numpy(np.stack([plane.pixels for plane in planes])).to(device)
    generators = sample_generators(settings.seed, [plane.key for plane in planes], settings.samples, device)
    try:
        return segmenter.sample(batch, settings.samples, generators, settings.sampler).cpu().numpy()
    except ValueError as error:  # a method's way to say what does not fit: channels, size, steps
        raise InputError(f"the model cannot sample these images: {error}") from error
