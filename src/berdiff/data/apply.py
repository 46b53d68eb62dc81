"""The transform between an image as stored and what a network sees, both ways, in preparing and in use alike."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, isfinite, prod

import numpy as np

from berdiff.data.image import Grid, Image, Range
from berdiff.data.input_spec import Intensity, Kind, Size
from berdiff.data.intensity import to_unit

COARSE = 3.0  # times the spacing that is asked for: an axis with fewer pixels than that is left as it is
Field = tuple[slice, slice, slice]  # slices, rows and columns
_ALL = (slice(None), slice(None), slice(None))


@dataclass(frozen=True, eq=False)
class Prepared:
    """An image or volume as a network wants to see it."""

    name: str
    image: np.ndarray  # (C, H, W) or (C, Z, H, W) float32 in [0, 1], on `grid`
    grid: Grid  # where it lies, and the way back to the source's own grid
    network: Grid | None = None  # the same at the model's spacing, where that is another one
    raters: np.ndarray | None = None  # (R, K, [Z,] H, W) uint8: the raters' masks, where a store has them
    notes: tuple[str, ...] = ()  # to be shown wherever the image or its result is
    what: str = ""  # as it is called in a message
    warnings: tuple[str, ...] = ()  # why the result may be worthless: shown before the notes
    title: str = ""  # what people call it, where that is not the name
    details: Mapping[str, str] = field(default_factory=dict)  # of a DICOM series: patient, series, date, UIDs
    channels: tuple[str, ...] = ()  # the model's names

    @property
    def shown_name(self) -> str:
        return self.title or self.name

    def part(self, ranges: Sequence[Range], size: Size) -> tuple[Grid, np.ndarray]:
        """A region of `grid`, at least `size` where the image is, as the network sees it: its grid, and the values."""
        box = (..., *(slice(*ends) for ends in ranges))
        if self.network is None:
            return self.grid.part(ranges), self.image[box]
        wanted, near = list[Range](), list[Range]()
        sizes = (1,) * (len(ranges) - len(size)) + tuple(size)
        steps = _steps(self.grid, self.network)
        for ends, side, step, had, has in zip(ranges, sizes, steps, self.grid.shape, self.network.shape, strict=True):
            count = min(has, max(side, round((ends[1] - ends[0]) / step)))
            first = min(max(0, round(ends[0] / step)), has - count)
            wanted.append((first, first + count))
            edge = ceil(max(1.0, step)) + 1  # what interpolation looks at beside it
            near.append((max(0, int(first * step) - edge), min(had, ceil((first + count) * step) + edge)))
        here, there = self.grid.part(near), self.network.part(wanted)
        return there, resample(self.image[(..., *(slice(*ends) for ends in near))], here, there)


def covered(size: Size, grid: Grid, network: Grid | None) -> Size:
    """How many pixels of `grid` so many of the network's are."""
    if network is None:
        return size
    steps = _steps(grid, network)[-len(size) :]
    return tuple(ceil(side * step - 1e-6) for side, step in zip(size, steps, strict=True))


def apply(
    image: Image,
    intensity: Intensity,
    what: str,
    *,
    spacing: Sequence[float] | None = None,
    forced: bool = False,
    seen: Field = _ALL,
) -> Prepared:
    """Values as stored -> what a network sees. `forced`: the rule holds whatever the file is; `seen`: where the rule
    minmax looks, and the slices that are wanted."""
    planar = image.grid.planar
    slices, rows, columns = seen
    about = {"planar": planar, "ct": image.ct, "colour": image.colour, "stack": image.stack, "forced": forced}
    unit = to_unit(image.values, intensity, what, **about, slices=slices, rows=rows, columns=columns)
    named = {"what": what, "title": image.title, "details": image.details, "warnings": image.warnings}
    unit = np.ascontiguousarray(unit[:, 0] if planar else unit)
    return Prepared(what, unit, image.grid, at_spacing(image.grid, spacing), **named)


def restore(masks: np.ndarray, here: Grid, prepared: Prepared, kind: Kind) -> tuple[Grid, np.ndarray]:
    """Masks (..., K, *S) of a region that `Prepared.part` gave -> the same region of the image's own grid."""
    if prepared.network is None:
        return here, masks
    ranges: list[Range] = []
    starts = [first for first, _ in here.ranges] or [0] * len(here.shape)
    steps = _steps(prepared.grid, prepared.network)
    for first, count, step, length in zip(starts, here.shape, steps, prepared.grid.shape, strict=True):
        low = min(round(first * step), length - 1)
        high = length if first + count == round(length / step) else min(length, round((first + count) * step))
        ranges.append((low, max(low + 1, high)))
    there = prepared.grid.part(ranges)
    return there, resample_masks(masks, here, there, kind)


def at_spacing(grid: Grid, spacing: Sequence[float] | None) -> Grid | None:
    """The grid at another spacing (`InputSpec.spacing`); None where nothing changes. An axis of unknown spacing stays,
    as do slices where the spacing is of rows and columns, and an axis more than `COARSE` times coarser than asked."""
    if spacing is None:
        return None
    own = np.array(grid.spacing)
    asked = np.array([np.nan, *spacing][-len(own) :]) if len(spacing) < len(own) else np.array(spacing[-len(own) :])
    steps = asked / own
    steps = np.where(np.isfinite(steps) & (steps * COARSE >= 1) & (np.abs(steps - 1) > 1e-3), steps, 1.0)
    if (steps == 1).all():
        return None
    shape = tuple(max(1, round(length / step)) for length, step in zip(grid.shape, steps, strict=True))
    affine = grid.affine
    if affine is not None:
        columns = np.ones(3)
        columns[: len(steps)] = steps[::-1]
        affine = affine.copy()
        affine[:3, 3] += affine[:3, :3] @ ((columns - 1) / 2)  # outer edges stay where they are
        affine[:3, :3] *= columns
    return replace(grid, shape=shape, spacing=tuple((own * steps).tolist()), affine=affine)


def resample(values: np.ndarray, here: Grid, there: Grid) -> np.ndarray:
    """(..., *S) on one grid -> float32 on another one of the same image: linear, and a mean where pixels get larger."""
    out = values.astype(np.float32, copy=False)
    for axis, matrix in _matrices(here, there):
        out = np.moveaxis(np.tensordot(out, matrix, (axis, 1)), -1, axis)
    return np.ascontiguousarray(out)


def resample_masks(masks: np.ndarray, here: Grid, there: Grid, kind: Kind = "independent") -> np.ndarray:
    """uint8 masks (..., K, *S): what most of a new pixel is, and the background where that is no more than half; of
    exclusive targets the largest share, the background's included."""
    shape = masks.shape[: -len(here.shape)]
    each = masks.reshape(-1, shape[-1], *here.shape)
    out = np.empty((len(each), shape[-1], *there.shape), np.uint8)
    for i, one in enumerate(each):  # one by one: as floats they are large
        shares = resample(one, here, there)
        out[i] = shares > 0.5 + 1e-6
        if kind == "exclusive" and shape[-1] > 1:
            most = np.concatenate([1 - shares.sum(0, keepdims=True) + 1e-6, shares]).argmax(0)
            out[i] = most == np.arange(1, shape[-1] + 1).reshape(-1, *[1] * most.ndim)
    return out.reshape(*shape, *there.shape)


def _steps(here: Grid, there: Grid) -> list[float]:
    """Of each axis, how many pixels of one grid a pixel of the other is."""
    return [
        new / old if isfinite(old) and isfinite(new) else 1.0
        for old, new in zip(here.spacing, there.spacing, strict=True)
    ]


def _matrices(here: Grid, there: Grid) -> list[tuple[int, np.ndarray]]:
    """(axis, weights (new, old)) of each axis that changes: triangles as wide as the larger of both pixels."""
    starts = [[first for first, _ in grid.ranges] or [0] * len(grid.shape) for grid in (here, there)]
    found: list[tuple[int, np.ndarray]] = []
    axes = zip(*starts, here.shape, there.shape, _steps(here, there), strict=True)
    for axis, (old_first, first, old, new, step) in enumerate(axes):
        if step == 1 and (old_first, old) == (first, new):
            continue
        at = np.clip((np.arange(first, first + new) + 0.5) * step - 0.5 - old_first, 0, old - 1)
        weights = np.maximum(0, 1 - np.abs(at[:, None] - np.arange(old)) / max(1.0, step))
        found.append((axis - len(here.shape), (weights / weights.sum(1, keepdims=True)).astype(np.float32)))
    return sorted(found, key=lambda one: prod(one[1].shape[:1]) / one[1].shape[1])  # the axes that shrink most, first
