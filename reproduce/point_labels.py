"""Names beside the points of a plot, each where it covers the least."""

from collections.abc import Sequence
from typing import Any

import numpy as np

SIZE = 8  # of the letters, in points
# where a name may stand beside its point: (points to the right, points up, horizontal alignment), the best first
PLACES = ((6, 4, "left"), (-6, 4, "right"), (6, -11, "left"), (-6, -11, "right"), (0, 14, "center"), (0, -21, "center"))
FAR = 1e4  # what it costs to leave the axes, against the area of what is covered


def name_points(axes: Any, points: Sequence[tuple[float, float, str, str]]) -> None:
    """`points`: (x, y, name, colour), the most important first; the limits of `axes` must not change afterwards."""
    figure = axes.figure
    figure.draw_without_rendering()  # only now is it known where the axes are
    pixels = figure.dpi / 72
    inside = _box(axes.get_window_extent())
    at = axes.transData.transform([(x, y) for x, y, *_ in points])
    taken = [np.array([x - 4, y - 4, x + 4, y + 4]) for x, y in at]  # the points themselves
    for (x, y, name, colour), here in zip(points, at, strict=True):
        near = {"textcoords": "offset points", "fontsize": SIZE, "parse_math": False, "color": colour, "zorder": 4}
        near["bbox"] = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.5}
        text = axes.annotate(name, (x, y), xytext=(0, 0), **near)
        extent = text.get_window_extent()
        costs = []
        for right, up, side in PLACES:
            left = here[0] + right * pixels - {"left": 0, "center": 0.5, "right": 1}[side] * extent.width
            low = here[1] + up * pixels
            box = np.array([left, low, left + extent.width, low + extent.height])
            out = FAR * float(np.maximum(0, inside[:2] - box[:2]).sum() + np.maximum(0, box[2:] - inside[2:]).sum())
            costs.append((out + sum(_overlap(box, other) for other in taken), box))
        best = min(range(len(PLACES)), key=lambda place: costs[place][0])
        right, up, side = PLACES[best]
        text.set(position=(right, up), horizontalalignment=side)
        taken.append(costs[best][1])


def _box(extent: Any) -> np.ndarray:
    return np.array([extent.x0, extent.y0, extent.x1, extent.y1])


def _overlap(a: np.ndarray, b: np.ndarray) -> float:
    """The area that two boxes (left, low, right, high) share."""
    return float(np.prod(np.maximum(0, np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]))))
