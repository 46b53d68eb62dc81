"""How large a finding is, over many masks: how many mark it, area or volume, longest diameter."""

from typing import Any

import numpy as np
from scipy import ndimage

QUANTILES = (0.05, 0.5, 0.95)


def measure(masks: np.ndarray, spacing: tuple[float, ...]) -> dict[str, Any]:
    """Of masks `(n, [Z,] H, W)` of one target:

    `finding_probability` and `empty_share`: the shares that mark anything, and nothing;
    `area` (of a volume: `volume`) and `longest_diameter`: {"unit", "q05", "q50", "q95"} among the masks that mark
    anything, None where there is none;
    of a volume `slices` and `extent_mm` (None: unknown), how much along z these shares are of.

    Where the spacing is unknown the unit is the pixel ("px", "px^2"; of a volume "voxel"). It is the pixel for the
    whole of a measure or not at all: a volume with known pixels but unknown slices has its diameters in mm.
    """
    known = bool(np.isfinite(spacing).all())
    known_plane = bool(np.isfinite(spacing[-2:]).all())
    plane = spacing[-2:] if known_plane else (1.0, 1.0)
    counts = masks.reshape(len(masks), -1).sum(1, dtype=np.int64)
    if masks.ndim == 4:
        size, unit = "volume", "mm^3" if known else "voxel"
    else:
        size, unit = "area", "mm^2" if known else "px^2"
    marked = counts > 0
    sizes = counts[marked] * float(np.prod(spacing)) if known else counts[marked].astype(float)
    diameters = np.array([longest_diameter(mask, (plane[0], plane[1])) for mask in masks[marked]])
    measured = {
        "finding_probability": float(marked.mean()),
        "empty_share": float((~marked).mean()),
        size: {"unit": unit, **_quantiles(sizes)},
        "longest_diameter": {"unit": "mm" if known_plane else "px", **_quantiles(diameters)},
    }
    if masks.ndim == 4:
        slices = masks.shape[1]
        measured |= {"slices": slices, "extent_mm": slices * spacing[0] if np.isfinite(spacing[0]) else None}
    return measured


def longest_diameter(mask: np.ndarray, spacing: tuple[float, float]) -> float:
    """The longest in-plane diameter of a mask `([Z,] H, W)`, in the unit of `spacing`; 0 if it is empty: the largest
    distance of two pixel corners of one connected piece in one slice, from outer edge to outer edge as calipers have
    it."""
    longest = 0.0
    for plane in mask if mask.ndim == 3 else mask[None]:
        if not plane.any():
            continue
        pieces = np.zeros(plane.shape, np.int32)
        ndimage.label(plane, structure=np.ones((3, 3)), output=pieces)
        boxes = ndimage.find_objects(pieces)
        sides = np.array([[rows.stop - rows.start, columns.stop - columns.start] for rows, columns in boxes])
        bounds = np.hypot(*(sides * spacing).T)  # a piece is no longer than the diagonal of its box
        for place in np.argsort(-bounds, kind="stable"):
            if bounds[place] <= longest:
                break  # nor is any after it: a mask of many specks costs no more than one of few
            longest = max(longest, _caliper(pieces[boxes[place]] == place + 1, spacing))
    return longest


def _caliper(piece: np.ndarray, spacing: tuple[float, float]) -> float:
    """The largest distance of two corners. Only the outermost corners on each edge of rows can be its ends."""
    rows = np.flatnonzero(piece.any(1))  # without a gap: the piece is connected
    left, right = piece[rows].argmax(1), piece.shape[1] - piece[rows, ::-1].argmax(1)
    left = np.minimum(np.append(left, left[-1]), np.append(left[0], left))
    right = np.maximum(np.append(right, right[-1]), np.append(right[0], right))
    y = np.tile(np.append(rows, rows[-1] + 1), 2) * spacing[0]
    x = np.concatenate([left, right]) * spacing[1]
    return float(np.sqrt(((y[:, None] - y) ** 2 + (x[:, None] - x) ** 2).max()))


def _quantiles(values: np.ndarray) -> dict[str, float | None]:
    return {f"q{round(100 * q):02d}": float(np.quantile(values, q)) if values.size else None for q in QUANTILES}
