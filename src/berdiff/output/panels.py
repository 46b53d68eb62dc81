"""THE renderer of tiles in rows: the panel of a result, contact sheets, sample sheets and figures of examples."""

import io
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from berdiff.files import whole_file
from berdiff.inference.representatives import Representative
from berdiff.inference.result import Result
from berdiff.output.captions import measured_line, notes_line, settings_line
from berdiff.output.tiles import Tile, edges, result_tiles, saliency_tile, variance_tile
from berdiff.output.views import close_up

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TILE = 1.5  # inches
CHARACTERS = 10.8  # per inch, in titles and captions
SHEET_SAMPLES = 4  # of each case on a sheet; saliency and variance are of all
Row = Sequence[Tile | None]  # None leaves its place empty


def render(
    rows: Sequence[Row],
    title: str,
    caption: str = "",
    labels: Sequence[str] = (),
    aspect: float = 1.0,
    columns_alike: bool = False,
) -> "Figure":
    """Tiles in rows, with a label at the left of each row; `aspect` is the height of a pixel over its width.

    `columns_alike`: the tiles of a column have one title, which stands above the first row.
    """
    from matplotlib.figure import Figure  # no global state; half a second to import

    columns = max(map(len, rows))
    height, width = next(tile.plane.shape for tile in reversed(rows[0]) if tile is not None)
    ratio = min(max(height * aspect / width, 0.4), 2.5)
    inches = max(TILE * columns + (0.4 if any(labels) else 0), 5 * TILE)
    lines = [fill(line, int(inches * CHARACTERS)) for text in (title, caption) for line in text.splitlines()]
    between = 0.05 if columns_alike else 0.2  # a title stands between two rows, or none
    tall = (TILE * ratio + between) * len(rows) + 0.17 * len("\n".join(lines).splitlines()) + 0.3
    figure = Figure(figsize=(inches, tall), layout="constrained")
    above = len(title.splitlines())
    # names are words, never formulas, whatever dollar signs are in them
    figure.suptitle("\n".join(lines[:above]), fontsize=10, parse_math=False)
    figure.supxlabel("\n".join(lines[above:]), fontsize=9, parse_math=False)
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for ax in axes.flat:
        ax.set(xticks=[], yticks=[])
        ax.set_frame_on(False)
    for row, line in zip(rows, axes, strict=True):
        for tile, ax in zip(row, line, strict=False):
            if tile is None:
                ax.set_box_aspect(ratio)
                continue
            _render_tile(tile, ax, aspect)
            if not columns_alike:
                _title(ax, tile)
    for column, ax in enumerate(axes[0] if columns_alike else ()):
        _title(ax, next(tile for row in rows if (tile := row[column]) is not None))
    for label, line in zip(labels, axes, strict=False):
        line[0].set_ylabel(label, fontsize=7, parse_math=False)
    return figure


def png_bytes(figure: "Figure") -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_figure(buffer, dpi=120, format="png")
    return buffer.getvalue()


def save_png(figure: "Figure", path: str | Path) -> None:
    with whole_file(path) as part:
        part.write_bytes(png_bytes(figure))


def result_panel(result: Result, representatives: Sequence[Representative] | None = None) -> "Figure":
    """Image, raters where known, contours, saliency, variance, representative masks and samples; what was measured."""
    chosen = result.representatives() if representatives is None else representatives
    close, measured = close_up(result), result.measurements()
    rows, labels = list[list[Tile]](), list[str]()
    for k, target in enumerate(result.targets):
        sections = result_tiles(close, chosen, k)
        if k:
            del sections["image"]  # it stands above
        packed = pack(list(sections.values()))
        rows += packed
        labels += [target if len(result.targets) > 1 else ""] * len(packed)
    caption = [*(f"{target}: {measured_line(measured[target])}" for target in result.targets), notes_line(result)]
    title = f"{result.name}{close.words}\n{settings_line(result)}"
    return render(rows, title, "\n".join(caption), labels, result.aspect)


def case_row(
    image: np.ndarray,
    masks: np.ndarray,
    raters: int,
    samples: np.ndarray | None = None,
    channels: Sequence[str] = ("image",),
    variance: bool = False,
) -> list[Tile | None]:
    """One case as planes: image `(C, H, W)`; the masks `(R, H, W)` of its own among `raters` columns; of samples
    `(n, H, W)` the first few and their saliency; without samples, the raters' agreement."""
    row: list[Tile | None] = [Tile(name, plane) for name, plane in zip(channels, image, strict=True)]
    row += [Tile(f"rater {i + 1}", mask) for i, mask in enumerate(masks)]
    row += [None] * (raters - len(masks))  # no such rater: not the same as one who marked nothing
    if samples is None:
        return [*row, Tile("agreement", masks.mean(0), "viridis")]
    row += [Tile(f"sample {i + 1}", mask) for i, mask in enumerate(samples[:SHEET_SAMPLES])]
    saliency = samples.mean(0, dtype=np.float32)
    row.append(saliency_tile(saliency, "saliency"))
    return [*row, variance_tile(saliency * (1 - saliency), "variance")] if variance else row


def pack(sections: Sequence[Sequence[Tile]]) -> list[list[Tile]]:
    """Sections into rows, with as few blanks in the emptiest row as 6 to 10 tiles per row allow."""
    packed = (_packed(sections, columns) for columns in (8, 7, 9, 6, 10))
    return min(packed, key=lambda rows: max(map(len, rows)) - min(map(len, rows)))


def _packed(sections: Sequence[Sequence[Tile]], columns: int) -> list[list[Tile]]:
    """Sections share a row while they fit; one that is longer than a row is broken evenly."""
    rows: list[list[Tile]] = [[]]
    for section in sections:
        if len(rows[-1]) + len(section) <= columns:
            rows[-1] += section
        else:
            cuts = np.array_split(np.arange(len(section)), -(-len(section) // columns))
            rows += [[section[i] for i in cut] for cut in cuts]
    return [row for row in rows if row]


def _render_tile(tile: Tile, ax: "Axes", aspect: float) -> None:
    from matplotlib.collections import LineCollection

    height, width = tile.plane.shape
    covers = {"extent": (0, width, height, 0), "aspect": aspect}  # pixel (r, c): [c, c+1] x [r, r+1], as in `edges`
    ax.imshow(tile.plane, cmap=tile.colours, vmin=0, vmax=tile.brightest, interpolation="nearest", **covers)
    for mask, colour in tile.outlines:
        ax.add_collection(LineCollection(list(np.asarray(edges(mask), float)), colors=colour, linewidths=1))
    for i, (words, colour) in enumerate(tile.key):
        ground = {"facecolor": "black", "edgecolor": "none", "pad": 1.5}
        ax.text(0.04 + 0.32 * i, 0.05, words, color=colour, fontsize=7, transform=ax.transAxes, bbox=ground)


def _title(ax: "Axes", tile: Tile) -> None:
    ax.set_title(tile.title, fontsize=8, pad=3, parse_math=False)
