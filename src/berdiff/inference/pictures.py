"""The panel: everything about one result on one picture."""

from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from berdiff.inference.result import Result
from berdiff.inference.tiles import Tile, View, best_view, edges, tiles
from berdiff.inference.words import Digest, caption, digest, measured_lines, settings_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 8
TILE = 1.5  # inches
LINE = 130  # characters


def panel(result: Result, of: Digest | None = None) -> "Figure":
    """Image, readers where known, contours, saliency and variance; the samples; the representatives; the measures."""
    from matplotlib.figure import Figure

    representatives, measurements = of or digest(result)
    view = best_view(result)
    rows: list[list[Tile]] = []
    words: dict[int, tuple[int, list[str]]] = {}  # row -> (first free column, what stands there)
    for k, target in enumerate(result.targets):
        shown = tiles(result, representatives, view, k)
        above = [tile for section in ("image", "readers", "summary") for tile in shown.get(section, [])]
        for run in (above, shown["samples"], shown["representatives"]):
            rows += [run[i : i + COLUMNS] for i in range(0, len(run), COLUMNS)]
        words[len(rows) - 1] = len(rows[-1]), [target, *measured_lines(measurements[target])]
    height, width = view.shape
    ratio = min(max(height * view.aspect / width, 0.4), 2.5)
    figure = Figure(figsize=(TILE * COLUMNS, (TILE * ratio + 0.25) * len(rows) + 0.8), layout="constrained")
    where = "" if view.number is None else f", slice {view.number}"
    title = f"{fill(result.name + where, LINE)}\n{settings_line(result)}"
    # names are words, never formulas, whatever dollar signs are in them
    figure.suptitle(title, fontsize=10, parse_math=False)
    figure.supxlabel(fill(caption(result), LINE), fontsize=9, parse_math=False)
    axes = figure.subplots(len(rows), COLUMNS, squeeze=False)
    for ax in axes.flat:
        ax.axis("off")
    for run, line in zip(rows, axes, strict=True):
        for tile, ax in zip(run, line, strict=False):
            _draw(tile, ax, view)
    for row, (column, lines) in words.items():
        if column < COLUMNS:
            ax = axes[row, column]
            text = ax.text(0.05, 0.95, "\n".join(lines), fontsize=9, va="top", transform=ax.transAxes, parse_math=False)
            text.set_in_layout(False)  # it runs over the empty places to its right
    return figure


def _draw(tile: Tile, ax: "Axes", view: View) -> None:
    from matplotlib.collections import LineCollection

    height, width = tile.plane.shape
    # pixel (r, c) covers [c, c+1] x [r, r+1], as in `edges`
    ax.imshow(
        tile.plane,
        cmap=tile.colours,
        vmin=0,
        vmax=tile.most,
        interpolation="nearest",
        extent=(0, width, height, 0),
        aspect=view.aspect,
    )
    for mask, colour in tile.outlines:
        ax.add_collection(LineCollection(list(np.asarray(edges(mask), float)), colors=colour, linewidths=1))
    for i, (words, colour) in enumerate(tile.key):
        ground = {"facecolor": "black", "edgecolor": "none", "pad": 1.5}
        ax.text(0.04 + 0.32 * i, 0.05, words, color=colour, fontsize=7, transform=ax.transAxes, bbox=ground)
    ax.set_title(tile.title, fontsize=8, pad=3)
