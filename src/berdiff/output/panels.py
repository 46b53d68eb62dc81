"""Which tiles stand in which row: of the panel of a result, and of a case on sheets and in figures."""

from collections.abc import Sequence
from dataclasses import replace
from textwrap import shorten

import numpy as np
from PIL import Image

from berdiff.data.input_spec import Kind
from berdiff.inference.representatives import Representative
from berdiff.inference.result import Result
from berdiff.output.captions import MARKED_BY, MARKED_MEANS, measured_line, notes_line, settings_line
from berdiff.output.colours import legend
from berdiff.output.formats import Files, Output
from berdiff.output.pictures import LARGEST, Row, render
from berdiff.output.tiles import (
    Tile,
    painted_tile,
    picture_bytes,
    result_tiles,
    saliency_tile,
    target_tiles,
    variance_tile,
)
from berdiff.output.views import CloseUp, clearest_channel, close_up

NAME = 20  # characters of a target's name above a tile
SHEET_SAMPLES = 4  # of each case on a sheet; saliency and variance are of all


def panel_file(output: Output) -> Files:
    yield "panel.png", picture_bytes(result_panel(output.result, output.representatives))


def result_panel(
    result: Result, representatives: Sequence[Representative] | None = None, words: bool = True
) -> Image.Image:
    """Image, raters where known, contours, saliency, variance, representative masks and samples; what was measured,
    which a report has in `words` of its own.

    Of several targets masks are shown together, then each target's own contours, saliency and variance.
    """
    close, measured = close_up(result), result.measurements()
    rows = panel_rows(close, result.representatives() if representatives is None else representatives)
    aspect, key = result.grid.aspect, legend(result.targets)
    if not words:
        return render(rows, "", aspect=aspect, key=key, justified=True)
    caption = [f"{target}: {measured_line(measured[target])}" for target in result.targets]
    caption += [f"{MARKED_BY}: {MARKED_MEANS}", notes_line(result)]
    title = f"{result.shown_name}{close.words}\n{settings_line(result)}"
    return render(rows, title, "\n".join(caption), aspect=aspect, key=key, justified=True)


def panel_rows(close: CloseUp, representatives: Sequence[Representative]) -> list[list[Tile]]:
    sections, targets = result_tiles(close, representatives), close.result.targets
    own = [target_tiles(close, k) for k in range(len(targets))]
    if len(targets) > 1:
        return pack([*sections.values(), *(_named(tiles, name) for tiles, name in zip(own, targets, strict=True))])
    return pack([sections[name] if name else own[0] for name in ("image", "raters", "", "representatives", "samples")])


def targets_row(
    image: np.ndarray,
    masks: np.ndarray,
    raters: int,
    samples: np.ndarray | None = None,
    channels: Sequence[str] = ("image",),
    targets: Sequence[str] = ("",),
    kind: Kind = "independent",
    variance: bool = False,
) -> Row:
    """One case: image `(C, H, W)`; the masks `(R, K, H, W)` of its own among `raters` columns; of samples
    `(n, K, H, W)` the first few and their saliency; without samples, the raters' agreement.

    A mask of one target is shown by itself, one of several over the image; then each target has its own shares.
    """
    marked = masks if samples is None else np.concatenate([masks, samples])
    under = image[clearest_channel(image, marked)] if len(targets) > 1 else image[0]

    def shown(title: str, mask: np.ndarray) -> Tile:
        return Tile(title, mask[0]) if len(targets) == 1 else painted_tile(title, under, mask, kind)

    row: list[Tile | None] = [Tile(name, plane) for name, plane in zip(channels, image, strict=True)]
    row += [shown(f"rater {i + 1}", mask) for i, mask in enumerate(masks)]
    row += [None] * (raters - len(masks))  # no such rater: not the same as one who marked nothing
    if samples is None:
        shares = [[Tile("agreement", share, "viridis")] for share in masks.mean(0)]
    else:
        row += [shown(f"sample {i + 1}", mask) for i, mask in enumerate(samples[:SHEET_SAMPLES])]
        shares = [[saliency_tile(share, "saliency")] for share in samples.mean(0, dtype=np.float32)]
        for tiles in shares if variance else ():
            tiles.append(variance_tile(tiles[0].plane * (1 - tiles[0].plane), "variance"))
    each = zip(shares, targets, strict=True)
    return row + [tile for tiles, name in each for tile in (_named(tiles, name) if len(targets) > 1 else tiles)]


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
