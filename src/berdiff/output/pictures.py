"""THE renderer of tiles: overlays, panels, reports, contact sheets, sample sheets, figures and thumbnails.

Tiles stand in rows, each with its title; above them a title and what the colours mean, below them a caption.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from textwrap import wrap

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from scipy import ndimage

from berdiff.files import whole_file
from berdiff.output.colours import Key, rgb_of
from berdiff.output.tiles import Tile, picture_bytes

TILE, GAP, MARGIN = 180, 8, 12  # pixels: the side of a tile, between tiles, around all
OVERLAY = 768  # pixels of the longer side of an overlay
LINES = 256  # an outline of width 1 is a 256th of a tile wide
THIN, WIDER = 0.65, 0.5  # widths where there are several outlines: of the last one, and of it for each one drawn over
LARGEST = 1.5  # times as large as others a tile of a row with fewer of them may be
SWATCH = 22  # pixels
Row = Sequence[Tile | None]  # None leaves its place empty


@dataclass(frozen=True)
class Letters:
    """Pixels of the font, from one line to the next, and of a letter: few are wider."""

    size: int
    line: int
    width: float

    @cache  # noqa: B019 (there are two)
    def font(self) -> ImageFont.FreeTypeFont:
        """One of matplotlib's, with Greek and Cyrillic letters; importing matplotlib would take half a second."""
        folder = next(iter(find_spec("matplotlib").submodule_search_locations))  # type: ignore[union-attr, arg-type]
        return ImageFont.truetype(f"{folder}/mpl-data/fonts/ttf/DejaVuSans.ttf", self.size)

    def wrapped(self, text: str, room: float) -> list[str]:
        """Its lines, none longer than `room` pixels."""
        most = max(1, int(room / self.width))
        return [part for line in text.splitlines() for part in wrap(line, most) or [""]]


TEXT, SMALL = Letters(13, 19, 8.2), Letters(11, 15, 6.6)


def overlay(tile: Tile, aspect: float, note: str) -> Image.Image:
    """One tile, large, with its title, its key and a note; `aspect` is the height of a pixel over its width."""
    height, width = tile.plane.shape[:2]
    side = width * -(-OVERLAY // max(height, width))  # whole pixels across for each of its own
    return render([[replace(tile, title="", key=())]], tile.title, note, aspect=aspect, key=tile.key, side=side)


def outlined(tile: Tile, size: tuple[int, int], line: float) -> Image.Image:
    """A tile of this width and height with its outlines, which lie inside their masks.

    One alone is `line` pixels wide. Of several, one under another is wider than that one, so that both are seen.
    """
    pixels = np.array(_resized(tile.pixels(), size).convert("RGB"))
    thin = THIN if len(tile.outlines) > 1 else 1.0
    for over, (mask, colour) in zip(reversed(range(len(tile.outlines))), tile.outlines, strict=True):
        marked = np.array(_resized(np.where(mask, np.uint8(255), np.uint8(0)), size)) > 0
        wide = max(1, round(line * thin * (1 + WIDER * over)))
        core = np.asarray(ndimage.minimum_filter(marked, 2 * wide + 1, mode="constant"), bool)
        pixels[marked & ~core] = rgb_of(colour)
    picture = Image.fromarray(pixels)
    pen = ImageDraw.Draw(picture)
    x = 4.0
    for words, colour in tile.key:
        box = pen.textbbox((x, picture.height - SMALL.line - 2), words, font=SMALL.font())
        pen.rectangle((box[0] - 2, box[1] - 2, box[2] + 2, box[3] + 2), fill="black")
        pen.text((x, picture.height - SMALL.line - 2), words, fill=colour, font=SMALL.font())
        x = box[2] + GAP
    return picture


def render(
    rows: Sequence[Row],
    title: str,
    caption: str = "",
    labels: Sequence[str] = (),
    aspect: float = 1.0,
    columns_alike: bool = False,
    key: Key = (),
    justified: bool = False,
    side: int = TILE,
) -> Image.Image:
    """Tiles `side` pixels wide in rows, with a label at the left of each row.

    `columns_alike`: the tiles of a column have one title, which stands above the first row. `key`: what the colours of
    all tiles mean, below the title. `justified`: a row with fewer tiles has larger ones, so that no place is blank.
    """
    columns, first = max(map(len, rows)), next(tile for tile in reversed(rows[0]) if tile is not None)
    ratio = first.plane.shape[0] * aspect / first.plane.shape[1]
    ratio = ratio if columns == 1 else min(max(ratio, 0.4), 2.5)
    names = [line for label in labels for line in label.splitlines()]
    left = max((round(SMALL.font().getlength(name)) + GAP for name in names), default=0)
    room = max(left + columns * (side + GAP) - GAP, 4 * TILE)
    above, below, keys = TEXT.wrapped(title, room), TEXT.wrapped(caption, room), _key_lines(key, room)
    laid: list[tuple[Row, int, list[list[str]], int]] = []  # a row, how wide its tiles are, their titles, and how high
    across = columns * (side + GAP) - GAP
    for number, row in enumerate(rows):
        wide = min((across + GAP) // len(row) - GAP, round(LARGEST * side)) if justified else side
        named: Row = row
        if columns_alike:
            each = [[of for of in column if of] for column in zip(*rows, strict=True)]
            named = [next(iter(column), None) for column in each] if number == 0 else []
        titles = [SMALL.wrapped(tile.title, wide) if tile else [] for tile in named]
        laid.append((row, wide, titles, SMALL.line * max(map(len, titles), default=0)))
    height = sum(head + round(wide * ratio) + GAP for _, wide, _, head in laid)
    height += TEXT.line * (len(above) + len(keys) + len(below)) + 2 * GAP + 2 * MARGIN
    whole = Image.new("RGB", (room + 2 * MARGIN, height), "white")
    pen = ImageDraw.Draw(whole)

    def write(lines: Sequence[str], x: int, y: int, letters: Letters) -> int:
        for i, line in enumerate(lines):
            pen.text((x, y + i * letters.line), line, fill="black", font=letters.font())
        return y + len(lines) * letters.line

    y = write(above, MARGIN, MARGIN, TEXT)
    for line in keys:
        for x, words, colour in line:
            pen.rectangle((x, y + 3, x + SWATCH, y + 13), fill=colour, outline="black")
            pen.text((x + SWATCH + 6, y), words, fill="black", font=TEXT.font())
        y += TEXT.line
    y += GAP
    for number, (row, wide, titles, head) in enumerate(laid):
        write(labels[number].splitlines() if labels else (), MARGIN, y + head, SMALL)
        for i, tile in enumerate(row):
            x = MARGIN + left + i * (wide + GAP)
            write(titles[i] if titles else (), x, y, SMALL)
            if tile is not None:
                size = fitted(tile, aspect, wide, round(wide * ratio))
                whole.paste(outlined(tile, size, max(1.5, wide / LINES)), (x, y + head))
        y += head + round(wide * ratio) + GAP
    write(below, MARGIN, y + GAP, TEXT)
    return whole


def save_png(picture: Image.Image, path: str | Path) -> None:
    with whole_file(path) as part:
        part.write_bytes(picture_bytes(picture))


def _resized(pixels: np.ndarray, size: tuple[int, int]) -> Image.Image:
    """Larger ones are repeated, smaller ones averaged, so that not even a single pixel of a mask is lost."""
    return Image.fromarray(pixels).resize(size, Image.Resampling.BOX)


def fitted(tile: Tile, aspect: float, width: int, height: int) -> tuple[int, int]:
    """The largest size of a tile in a place of this size."""
    down, across = tile.plane.shape[:2]
    scale = min(width / across, height / (down * aspect))
    return max(1, round(across * scale)), max(1, round(down * aspect * scale))


def _key_lines(key: Key, width: int) -> list[list[tuple[float, str, str]]]:
    """(x, words, colour) of each entry, in lines that are no wider than the picture; a very long name is cut."""
    lines: list[list[tuple[float, str, str]]] = []
    x, length = float(width), TEXT.font().getlength
    for words, colour in key:
        while length(words) > width - SWATCH - 6:
            words = words[: len(words) * 9 // 10]
        room = SWATCH + 6 + length(words)
        if not lines or x + room > width:
            lines.append([])
            x = 0.0
        lines[-1].append((MARGIN + x, words, colour))
        x += room + 3 * GAP
    return lines
