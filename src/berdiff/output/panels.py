"""THE renderer of tiles in rows: the panel of a result, contact sheets, sample sheets and figures of examples."""

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import fill, shorten
from typing import TYPE_CHECKING

import numpy as np

from berdiff.data.input_spec import Kind
from berdiff.files import whole_file
from berdiff.inference.representatives import Representative
from berdiff.inference.result import Result
from berdiff.output.captions import MARKED_BY, MARKED_MEANS, measured_line, notes_line, settings_line
from berdiff.output.colours import Key, legend
from berdiff.output.tiles import Tile, painted_tile, result_tiles, saliency_tile, target_tiles, variance_tile
from berdiff.output.views import clearest_channel, close_up

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TILE, LINE, TITLE = 1.5, 0.17, 0.15  # inches: a tile, a line of the title and the caption, a line above a tile
LARGEST = 1.5  # times as large as others a tile of a row with fewer of them may be
CHARACTERS = 10.8  # per inch, in titles and captions
NAME = 20  # characters of a target's name above a tile
SHEET_SAMPLES = 4  # of each case on a sheet; saliency and variance are of all
Row = Sequence[Tile | None]  # None leaves its place empty


def render(
    rows: Sequence[Row],
    title: str,
    caption: str = "",
    labels: Sequence[str] = (),
    aspect: float = 1.0,
    columns_alike: bool = False,
    key: Key = (),
    justified: bool = False,
) -> "Figure":
    """Tiles in rows, with a label at the left of each row; `aspect` is the height of a pixel over its width.

    `columns_alike`: the tiles of a column have one title, which stands above the first row. `key`: what the colours of
    all tiles mean, below the title. `justified`: a row with fewer tiles has larger ones, so that no place is blank.
    """
    from matplotlib.figure import Figure  # no global state; half a second to import

    columns = max(map(len, rows))
    height, width = next(tile.plane.shape[:2] for tile in reversed(rows[0]) if tile is not None)
    ratio = min(max(height * aspect / width, 0.4), 2.5)
    inches = max(TILE * columns + (0.4 if any(labels) else 0), 5 * TILE)
    room = int(inches * CHARACTERS)
    above, below = (_wrapped(text, room) for text in (title, caption))
    keys = _in_rows(key, room)
    heights = [TITLE * max(len(tile.title.splitlines()) for tile in row if tile is not None) for row in rows]
    titles = heights[0] if columns_alike else sum(heights)
    growth = [min(columns / len(row), LARGEST) if justified else 1.0 for row in rows]  # of the tiles of a row
    tall = TILE * ratio * sum(growth) + 0.05 * len(rows) + titles + LINE * (len(above) + len(keys) + len(below)) + 0.3
    figure = Figure(figsize=(inches, tall), layout="constrained")
    # names are words, never formulas, whatever dollar signs are in them; below the title is room for the key
    figure.suptitle("\n".join([*above, *[" "] * len(keys)]), fontsize=10, parse_math=False)
    figure.supxlabel("\n".join(below), fontsize=9, parse_math=False)
    if justified:
        axes = _justified(figure, [len(row) for row in rows], growth)
    else:
        axes = list(figure.subplots(len(rows), columns, squeeze=False))
    for ax in figure.axes:
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
    if key:
        _legend(figure, key, len(keys[0]), len(above))
    return figure


def _justified(figure: "Figure", lengths: Sequence[int], growth: Sequence[float]) -> "list[list[Axes]]":
    """Axes in rows that all reach from left to right, whatever their number."""
    grid = figure.add_gridspec(len(lengths), 1, height_ratios=growth)
    rows = [grid[row].subgridspec(1, n) for row, n in enumerate(lengths)]
    return [[figure.add_subplot(row[0, i]) for i in range(n)] for row, n in zip(rows, lengths, strict=True)]


def png_bytes(figure: "Figure") -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_figure(buffer, dpi=120, format="png")
    return buffer.getvalue()


def save_png(figure: "Figure", path: str | Path) -> None:
    with whole_file(path) as part:
        part.write_bytes(png_bytes(figure))


def result_panel(result: Result, representatives: Sequence[Representative] | None = None) -> "Figure":
    """Image, raters where known, contours, saliency, variance, representative masks and samples; what was measured.

    Of several targets masks are shown together, then each target's own contours, saliency and variance.
    """
    chosen = result.representatives() if representatives is None else representatives
    close, measured = close_up(result), result.measurements()
    sections, several = result_tiles(close, chosen), len(result.targets) > 1
    own = [target_tiles(close, k) for k in range(len(result.targets))]
    if several:
        ordered = [*sections.values(), *(_named(tiles, name) for tiles, name in zip(own, result.targets, strict=True))]
    else:
        ordered = [sections["image"], sections["raters"], own[0], sections["representatives"], sections["samples"]]
    caption = [f"{target}: {measured_line(measured[target])}" for target in result.targets]
    caption += [f"{MARKED_BY}: {MARKED_MEANS}", notes_line(result)]
    title = f"{result.shown_name}{close.words}\n{settings_line(result)}"
    return render(
        pack(ordered), title, "\n".join(caption), aspect=result.aspect, key=legend(result.targets), justified=True
    )


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


def targets_row(
    image: np.ndarray,
    masks: np.ndarray,
    raters: int,
    samples: np.ndarray | None = None,
    channels: Sequence[str] = ("image",),
    targets: Sequence[str] = ("",),
    kind: Kind = "independent",
    variance: bool = False,
) -> list[Tile | None]:
    """`case_row` of masks `(R, K, H, W)` and samples `(n, K, H, W)`. Several targets are shown together in each mask;
    then each has its own agreement, or its own saliency and variance."""
    if len(targets) == 1:
        of_samples = None if samples is None else samples[:, 0]
        return case_row(image, masks[:, 0], raters, of_samples, channels, variance)
    marked = masks if samples is None else np.concatenate([masks, samples])
    under = image[clearest_channel(image, marked)]
    row: list[Tile | None] = [Tile(name, plane) for name, plane in zip(channels, image, strict=True)]
    row += [painted_tile(f"rater {i + 1}", under, of, kind) for i, of in enumerate(masks)]
    row += [None] * (raters - len(masks))
    if samples is None:
        agreement = [[Tile("agreement", share, "viridis")] for share in masks.mean(0)]
    else:
        row += [painted_tile(f"sample {i + 1}", under, of, kind) for i, of in enumerate(samples[:SHEET_SAMPLES])]
        agreement = [[saliency_tile(share, "saliency")] for share in samples.mean(0, dtype=np.float32)]
        if variance:
            for tiles in agreement:
                tiles.append(variance_tile(tiles[0].plane * (1 - tiles[0].plane), "variance"))
    return row + [tile for tiles, name in zip(agreement, targets, strict=True) for tile in _named(tiles, name)]


def _named(tiles: Sequence[Tile], target: str) -> list[Tile]:
    """With the target above the title, as far as there is room for it."""
    name = shorten(target, NAME, placeholder="...") if " " in target else target[:NAME]
    return [replace(tile, title=f"{name}\n{tile.title}") for tile in tiles]


def pack(sections: Sequence[Sequence[Tile]]) -> list[list[Tile]]:
    """Sections into as few rows of 6 to 10 tiles as there are whose lengths differ by no more than tiles may grow; if
    none do, those that differ least."""
    packed = [_packed(sections, columns) for columns in (8, 7, 9, 6, 10)]

    def spread(rows: list[list[Tile]]) -> float:
        return max(map(len, rows)) / min(map(len, rows))

    return min(packed, key=lambda rows: (max(spread(rows), LARGEST), len(rows)))


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

    height, width = tile.plane.shape[:2]
    covers = {"extent": (0, width, height, 0), "aspect": aspect}  # pixel (r, c): [c, c+1] x [r, r+1], as in `edges`
    ax.imshow(tile.plane, cmap=tile.colours, vmin=0, vmax=tile.brightest, interpolation="nearest", **covers)
    for segments, colour, wide in tile.lines():
        ax.add_collection(LineCollection(list(segments), colors=colour, linewidths=wide, capstyle="projecting"))
    for i, (words, colour) in enumerate(tile.key):
        ground = {"facecolor": "black", "edgecolor": "none", "pad": 1.5}
        looks = {"color": colour, "fontsize": 7, "transform": ax.transAxes, "bbox": ground, "parse_math": False}
        ax.text(0.04 + 0.32 * i, 0.05, words, **looks)


def _title(ax: "Axes", tile: Tile) -> None:
    ax.set_title(tile.title, fontsize=8, pad=3, parse_math=False)


def _wrapped(text: str, room: int) -> list[str]:
    """Its lines, none longer than `room` characters."""
    return [part for line in text.splitlines() for part in fill(line, room).splitlines()]


def _in_rows(key: Key, room: int) -> list[Key]:
    """As many entries beside each other as there is room for, in characters."""
    columns = max(1, room // (6 + max((len(words) for words, _ in key), default=0)))
    return [key[first : first + columns] for first in range(0, len(key), columns)]


def _legend(figure: "Figure", key: Key, columns: int, above: int) -> None:
    """The key, under `above` lines of the title."""
    from matplotlib.patches import Patch

    top = 1 - (LINE * above + 0.1) / figure.get_figheight()
    looks = {"loc": "upper center", "ncols": columns, "fontsize": 8, "frameon": False, "borderpad": 0}
    patches = [Patch(color=colour) for _, colour in key]
    placed = figure.legend(patches, [""] * len(key), bbox_to_anchor=(0.5, top), borderaxespad=0, **looks)
    placed.set_in_layout(False)
    for text, (words, _) in zip(placed.get_texts(), key, strict=True):
        text.set(text=words, parse_math=False)
