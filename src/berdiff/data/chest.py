"""A simulated chest in Hounsfield units, random once per nodule in three dimensions; lengths are millimetres."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import fft

from berdiff.data.contours import Crop, Nodule

AIR, FAT, MUSCLE, MARROW, CORTEX = -1000.0, -100.0, 45.0, 250.0, 650.0
# The lungs as ellipses in the 512 x 512 frame, (row, column, half height, half width): the outline of the places where
# LIDC's 2,667 nodules lie. Scanners fit the frame to the patient, so pixels show the place better than millimetres.
LUNGS = ((272.0, 145.0, 135.0, 90.0), (272.0, 373.0, 135.0, 88.0))
BODY = (272.0, 256.0, 185.0, 238.0)
HILUM_ROW, HILUM_OFFSET = 275.0, 45.0  # vessels come from here, left and right of the midline
REACH = 15.0  # mm: vessels start at most this far above or below the slices
VESSELS = 2.5e-4  # trees in a cubic millimetre
MIDLINE, MEDIASTINUM = 256.0, 45.0  # the middle column, and how far from it there are no ribs
LUNG_RADIUS = 110.0  # pixels, between half height and half width
Section = Callable[[float], np.ndarray]  # mm along z -> (S, S)


def blend(image: np.ndarray, hu: np.ndarray | float, cover: np.ndarray) -> None:
    """Put tissue of `hu` over the image, as much of it as `cover` in [0, 1] states, in place."""
    image += cover * (hu - image)


@lru_cache(maxsize=32)
def _filter(size: int, scale: float, slope: float) -> np.ndarray:
    """(size, size//2 + 1) amplitudes of a random field: flat above `scale` pixels, falling with `slope` below it."""
    rows, columns = np.fft.fftfreq(size)[:, None], np.fft.rfftfreq(size)[None]
    amplitude = (1 + scale**2 * (rows**2 + columns**2) * (2 * np.pi) ** 2) ** (-slope / 2)
    amplitude[0, 0] = 0
    return amplitude.astype(np.float32)


def field(generator: np.random.Generator, size: int, scale: float, slope: float = 3.0) -> np.ndarray:
    """(size, size) float32 of mean 0 and deviation 1 that varies over about `scale` pixels."""
    amplitude = _filter(size, scale, slope)
    spectrum = generator.standard_normal((*amplitude.shape, 2), np.float32).view(np.complex64)[..., 0] * amplitude
    values = np.asarray(fft.irfft2(spectrum, s=(size, size)))
    return values / values.std()


def random_lung(crop: Crop, generator: np.random.Generator) -> Section:
    """HU of the parenchyma: denser towards the back, with a texture that turns from one field to another along z."""
    strength = np.float32(generator.uniform(10, 26))
    one, other = (strength * field(generator, crop.size, 6.0, 2.0) for _ in range(2))
    rows = np.arange(crop.row, crop.row + crop.size, dtype=np.float32)[:, None]
    mean = np.float32(np.clip(generator.normal(-870, 25), -930, -800))
    mean = mean + np.float32(0.18) * (rows - np.float32(MIDLINE))  # (S, 1)

    def lung(height: float) -> np.ndarray:
        turn = height / 6.0  # after 9 mm the texture is another
        return one * np.float32(np.cos(turn)) + other * np.float32(np.sin(turn)) + mean

    return lung


def random_wall(
    nodule: Nodule, marked: np.ndarray, crop: Crop, generator: np.random.Generator
) -> tuple[np.ndarray, Section]:
    """(S, S) HU of all beyond the lungs, and what they cover; the pixels `marked` (S, S) must lie in the lung."""
    size = crop.size
    bend = 4 * field(generator, size, 24.0, 4.0)
    rows = np.arange(crop.row, crop.row + size, dtype=np.float32)[:, None] + bend
    columns = np.arange(crop.column, crop.column + size, dtype=np.float32)[None] + bend.T
    levels = [np.hypot((rows - r) / a, (columns - c) / b) for r, c, a, b in LUNGS]
    outside = np.minimum(*levels)  # 1 on the standard lung's outline, more beyond it
    # An outline that would cut the nodule is moved out, and the nodule then touches the pleura.
    sizes = [_outline(z, nodule.scan.zs) for z in nodule.zs]
    edge = max(generator.uniform(0.88, 1.1), float(outside[marked].max(initial=0)) / min(sizes) + 0.3 / LUNG_RADIUS)
    depth = (outside - edge * max(sizes)) * (LUNG_RADIUS * nodule.scan.spacing)  # mm beyond the pleura
    beside = np.abs(columns - MIDLINE) > MEDIASTINUM
    hu = MUSCLE + ~beside * np.float32(generator.uniform(0, 60))  # blood, with or without contrast
    blend(hu, FAT, np.clip(field(generator, size, 9.0) + (depth - 16) / 6, 0, 1) * beside)
    for (r, c, _, _), level in zip(LUNGS, levels, strict=True):
        around = generator.uniform(6, 8) * np.arctan2(rows - r, columns - c) + generator.uniform(0, 2 * np.pi)
        rib = (0.9 * np.cos(around) - ((depth - 8) / 4) ** 2) * (beside & (level == outside))
        blend(hu, CORTEX, np.clip(rib * 4, 0, 1))
        blend(hu, MARROW, np.clip((rib - 0.35) * 4, 0, 1))
    skin = np.hypot((rows - BODY[0]) / BODY[2], (columns - BODY[1]) / BODY[3])
    blend(hu, AIR, np.clip((skin - max(1.0, edge)) * 60, 0, 1) * (depth > 18))

    def cover(z: float) -> np.ndarray:
        """0 in the lung, 1 in the wall, and the pleura a pixel or two between."""
        return np.clip((outside - edge * _outline(z, nodule.scan.zs)) * (LUNG_RADIUS / 1.6) + 0.5, 0, 1)

    return hu.astype(np.float32), cover


def _outline(z: float, zs: np.ndarray) -> float:
    """The size of the lungs' outline at a height in the scan: full below, smaller towards the top."""
    low, high = float(zs[0]), float(zs[-1])
    part = (z - low) / max(high - low, 1.0)
    return float(np.sqrt(1 - (np.clip(part - 0.6, 0, 0.4) / 0.5) ** 2))


@dataclass(frozen=True, eq=False)
class Vessels:
    """Branching straight tubes that lead away from the hilum, in millimetres around the crop's centre."""

    hu: float
    start: np.ndarray  # (V, 3): z, row, column
    direction: np.ndarray  # (V, 3), of length 1
    length: np.ndarray  # (V,)
    radius: np.ndarray  # (V,)
    axis: np.ndarray  # (S,) the place of each row, or column
    soft: float  # mm over which a tube's edge fades

    @classmethod
    def random(cls, nodule: Nodule, zs: list[float], crop: Crop, generator: np.random.Generator) -> "Vessels":
        size, spacing = crop.size, nodule.scan.spacing
        half, middle = size / 2 * spacing, zs[len(zs) // 2]
        low, high = zs[0] - middle - REACH, zs[-1] - middle + REACH
        roots = int(generator.poisson(VESSELS * (high - low) * (2 * half) ** 2))
        side = 1 if crop.column + size / 2 > MIDLINE else -1
        hilum = np.array([HILUM_ROW - crop.row, MIDLINE + side * HILUM_OFFSET - crop.column]) * spacing - half
        hilum = np.array([generator.uniform(-40, 40), *hilum])
        start = generator.uniform((low, -half, -half), (high, half, half), (roots, 3))
        away = start - hilum
        distance = np.linalg.norm(away, axis=1)
        direction = _unit(away / distance[:, None] + 0.5 * generator.standard_normal((roots, 3)))
        length = generator.uniform(6, 22, roots)
        radius = 0.35 + generator.beta(1, 3, roots) * (0.9 + 3.2 * np.exp(-distance / 35))
        tubes = [(start, direction, length, radius)]
        for _ in range(2):  # each tube ends in two thinner ones
            start, direction, length, radius = (np.repeat(part, 2, axis=0) for part in tubes[-1])
            start = start + direction * length[:, None]
            direction = _unit(direction + 0.5 * generator.standard_normal(direction.shape))
            length = length * generator.uniform(0.4, 0.8, len(length))
            tubes.append((start, direction, length, radius * generator.uniform(0.6, 0.85, len(radius))))
        axis = (np.arange(size) + 0.5) * spacing - half
        parts = [np.concatenate(part).astype(np.float32) for part in zip(*tubes, strict=True)]
        return cls(generator.uniform(0, 80), *parts, axis=axis.astype(np.float32), soft=1.2 * spacing)

    def cover(self, height: float) -> np.ndarray:
        """(S, S): how much of each pixel at this height lies in a tube."""
        reach = self.radius + self.soft
        # The piece [first, last] of each tube that comes near enough to this height to be seen.
        climb = np.where(np.abs(self.direction[:, 0]) < 1e-3, 1e-3, self.direction[:, 0])
        one, other = (height - self.start[:, 0] - reach) / climb, (height - self.start[:, 0] + reach) / climb
        first, last = np.maximum(0, np.minimum(one, other)), np.minimum(self.length, np.maximum(one, other))
        ends = self.start + first[:, None] * self.direction, self.start + last[:, None] * self.direction
        low = np.searchsorted(self.axis, np.minimum(*ends)[:, 1:] - reach[:, None])
        high = np.searchsorted(self.axis, np.maximum(*ends)[:, 1:] + reach[:, None])
        seen = np.flatnonzero((first < last) & (low < high).all(1))
        tube, row, column = _pixels(low[seen], high[seen])
        tube = seen[tube]
        pixels = np.stack([np.full(len(tube), height, np.float32), self.axis[row], self.axis[column]])
        away = pixels - self.start.T[:, tube]
        direction, radius = self.direction.T[:, tube], self.radius[tube]
        away -= direction * np.clip((away * direction).sum(0), 0, self.length[tube])
        inside = np.clip((radius - np.sqrt((away**2).sum(0))) / self.soft + 0.5, 0, 1)
        inside *= np.minimum(1, 1.4 / self.soft * radius)  # a tube thinner than a pixel does not fill it
        filled = np.zeros((len(self.axis), len(self.axis)), np.float32)
        np.maximum.at(filled, (row, column), inside.astype(np.float32))
        return filled


def _pixels(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All pixels of the boxes [low, high), (N, 2) each, in one list: whose box it is, its row, its column."""
    heights, widths = (high - low).T
    counts = heights * widths
    box = np.repeat(np.arange(len(low)), counts)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    row, column = np.divmod(within, widths[box])
    return box, low[box, 0] + row, low[box, 1] + column


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
