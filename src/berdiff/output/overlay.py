"""The overlay: a whole plane of the image with outlines over it, and below it what they are."""

from collections.abc import Callable
from textwrap import wrap

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from berdiff.output.colours import Key
from berdiff.output.tiles import Tile, grey_bytes

MIN_SIDE = 768  # pixels of the longer side
LINE = 3  # pixels, the width of an outline that is alone
LINE_HEIGHT, CHARACTER_WIDTH = 20, 9  # pixels; few letters are wider
FONT_SIZE, SWATCH, GAP = 14, 22, 24


def overlay(tile: Tile, aspect: float, note: str) -> Image.Image:
    """A tile of an image in [0, 1], with its title, its key and the note below; `aspect` is the height of a pixel over
    its width."""
    return _with_footer(outlined(tile, aspect, MIN_SIDE, LINE), tile, note)


def outlined(tile: Tile, aspect: float, side: int, line: int) -> Image.Image:
    """A tile with its outlines, `side` pixels long or more."""
    height, width = tile.plane.shape
    across = max(1, -(-side // max(height, width)))  # whole pixels per pixel, so that nothing is blurred
    down = across * aspect
    size = (width * across, max(1, round(height * down)))
    picture = Image.fromarray(grey_bytes(tile.plane)).resize(size, Image.Resampling.NEAREST).convert("RGB")
    pen = ImageDraw.Draw(picture)
    for segments, colour, wide in tile.lines():
        for start, end in segments * np.array([across, down]):
            pen.line([*start, *end], fill=colour, width=max(1, round(line * wide)))
    return picture


def _with_footer(picture: Image.Image, tile: Tile, note: str) -> Image.Image:
    font = ImageFont.load_default(size=FONT_SIZE)
    above, below = (wrap(text, picture.width // CHARACTER_WIDTH) for text in (tile.title, note))
    keys = _key_lines(tile.key, font.getlength, picture.width)
    lines = len(above) + len(keys) + len(below)
    whole = Image.new("RGB", (picture.width, picture.height + LINE_HEIGHT * lines + 12), "white")
    whole.paste(picture)
    pen = ImageDraw.Draw(whole)
    y = picture.height + 6
    for line in (*above, *keys, *below):
        if isinstance(line, str):
            pen.text((10, y), line, fill="black", font=font)
        else:
            for x, words, colour in line:
                pen.rectangle((x, y + 4, x + SWATCH, y + 14), fill=colour, outline="black")
                pen.text((x + SWATCH + 6, y), words, fill="black", font=font)
        y += LINE_HEIGHT
    return whole


def _key_lines(key: Key, length: Callable[[str], float], width: int) -> list[list[tuple[float, str, str]]]:
    """(x, words, colour) of each entry, in lines that are no wider than the picture; a very long name is cut."""
    lines: list[list[tuple[float, str, str]]] = []
    x = float(width)
    for words, colour in key:
        while length(words) > width - 20 - SWATCH - 6:
            words = words[: len(words) * 9 // 10]
        room = SWATCH + 6 + length(words)
        if x + room > width - 10:
            lines.append([])
            x = 10.0
        lines[-1].append((x, words, colour))
        x += room + GAP
    return lines
