"""A simulated CT in Hounsfield units for real contours, by the place in the chest, the share of readers who marked each
pixel, and their ratings. It shows one blurred boundary, near where half of the readers put theirs and moved by chance:
single readers' outlines cannot be read off it."""

import numpy as np
from scipy import ndimage

from berdiff.data.chest import Vessels, blend, field, random_lung, random_wall
from berdiff.data.contours import Crop, Nodule

SOLID, GROUND_GLASS, CALCIUM = 25.0, -600.0, 380.0
MARGIN = 12  # pixels around the nodule within which it still shows
NO_CALCIUM, CALCIUM_ALL, CALCIUM_CENTRE = 6, 3, 5  # the readers' codes for calcification
AIR_INSIDE = 4  # and for internal structure


def simulate(
    nodule: Nodule, zs: list[float], shares: np.ndarray, crop: Crop, generator: np.random.Generator
) -> np.ndarray:
    """(Z, S, S) float32 HU around a nodule, for the slices `zs`; `shares` (Z, S, S): of the readers who marked each
    pixel."""
    lung = random_lung(crop, generator)
    wall, wall_cover = random_wall(nodule, shares.max(0) > 0, crop, generator)
    vessels = Vessels.random(nodule, zs, crop, generator)
    box, covers, values = _nodule(nodule, shares, generator)
    # Thin slices are noisy, and reconstruction makes the noise of neighbouring pixels alike.
    noise = float(np.clip(generator.lognormal(np.log(26), 0.35) * np.sqrt(1.8 / nodule.scan.thickness), 8, 60))
    correlation = generator.uniform(0.45, 0.85)
    images = []
    for z, cover, value in zip(zs, covers, values, strict=True):
        height = z - zs[len(zs) // 2]
        image = lung(height)
        blend(image, vessels.hu, vessels.cover(height))
        blend(image, wall, wall_cover(z))
        blend(image[box], value, cover)
        grain = ndimage.gaussian_filter(generator.standard_normal(image.shape, np.float32), correlation, truncate=3)
        images.append(image + grain * np.float32(noise / grain.std()))
    return np.stack(images)


def _nodule(
    nodule: Nodule, shares: np.ndarray, generator: np.random.Generator
) -> tuple[tuple[slice, ...], np.ndarray, np.ndarray]:
    """The box around the nodule, and in it (Z, h, w) how much of each pixel it fills, and with what HU."""
    ratings = np.array([annotation.ratings for annotation in nodule.annotations], np.float32)
    subtlety, _, _, _, margin, _, spiculation, texture, _ = ratings.mean(0)
    # The rows and columns of the crop that the nodule can reach; all, if it lies outside a small crop.
    sides = next(iter(ndimage.find_objects((shares.max(0) > 0).astype(np.uint8))), ())
    box = tuple(slice(max(0, side.start - MARGIN), side.stop + MARGIN) for side in sides)
    inside = shares[(slice(None), *box)]
    # A slice has a thickness, so it shows a part of its neighbours.
    share = 0.7 * inside
    share[1:] += 0.15 * inside[:-1]
    share[:-1] += 0.15 * inside[1:]
    blur = max(0.8, (0.6 + 0.3 * (5 - margin)) / nodule.scan.spacing)
    soft = ndimage.gaussian_filter(share, (0, blur, blur), truncate=3)
    soft *= 0.95 / max(soft.max(), 0.3)  # the smallest nodules must not be blurred away
    size = max(inside.shape[1:])
    chance, grain = (field(generator, size, scale)[: inside.shape[1], : inside.shape[2]] for scale in (3.0, 2.0))
    if spiculation > 1.5 and share.any():
        soft += (spiculation - 1) / 4 * _spicules(soft, share, nodule.scan.spacing, generator)
    edge = 0.45 + 0.12 * chance
    cover = _step(soft - edge, 0.07 + 0.025 * (5 - margin))
    cover *= (0.45 + 0.11 * subtlety) * (0.8 + 0.05 * len(nodule.annotations))
    # Texture runs from ground glass (1) over a solid core that grows to solid (5).
    core = _step(soft - (1.3 - 1.2 * (texture - 1) / 4), 0.1)
    glass = GROUND_GLASS + generator.normal(0, 50) + 50 * grain
    value = glass + core * (SOLID + generator.normal(0, 20) + 15 * grain - glass)
    calcification = ratings[:, 2]
    if (calcification != NO_CALCIUM).any():
        kind = np.median(calcification[calcification != NO_CALCIUM])
        centre, patches = _step(soft - 0.8, 0.05), np.clip(grain, 0, 1) * cover
        where = {CALCIUM_ALL: cover, CALCIUM_CENTRE: centre}.get(int(kind), patches)
        value += CALCIUM * (calcification != NO_CALCIUM).mean() * where
    if (ratings[:, 1] == AIR_INSIDE).mean() > 0.5:
        blend(value, -850.0, _step(soft - 0.8, 0.05))
    return box, cover.astype(np.float32), value.astype(np.float32)


def _step(level: np.ndarray, width: float) -> np.ndarray:
    """A step from 0 to 1 at level 0, smooth over `width`."""
    return 1 / (1 + np.exp(np.clip(level / -width, -30, 30)))


def _spicules(soft: np.ndarray, share: np.ndarray, spacing: float, generator: np.random.Generator) -> np.ndarray:
    """(Z, h, w) thin rays from the nodule's surface, fading within a few millimetres."""
    halo = ndimage.gaussian_filter(share, (0, 3.0 / spacing, 3.0 / spacing), truncate=2.5)
    rows, columns = np.indices(share.shape[1:], np.float32)
    weight = share.sum(0)
    row, column = (weight * rows).sum() / weight.sum(), (weight * columns).sum() / weight.sum()
    angle = np.arctan2(rows - row, columns - column)
    rays = np.cos(generator.integers(4, 8) * angle + generator.uniform(0, 2 * np.pi))
    rays += 0.7 * np.cos(generator.integers(8, 13) * angle + generator.uniform(0, 2 * np.pi))
    return 1.6 * np.clip(rays / 1.7, 0, 1) ** 3 * halo * np.clip(1 - soft, 0, 1)
