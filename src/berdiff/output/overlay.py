"""The overlay: a whole plane of the image with the contours of the saliency, and below it what they are."""

from textwrap import wrap

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from berdiff.output.tiles import LEVEL_COLOURS, LEVELS, edges, grey_bytes

MIN_SIDE = 768  # pixels of the longer side
LINE_HEIGHT, CHARACTER_WIDTH = 20, 9  # pixels; few letters are wider


def overlay(image: np.ndarray, saliency: np.ndarray, aspect: float, title: str, note: str) -> Image.Image:
    """image and saliency (H, W) in [0, 1]; `aspect` is the height of a pixel over its width."""
    height, width = image.shape
    across = max(1, -(-MIN_SIDE // max(height, width)))  # whole pixels per pixel, so that nothing is blurred
    down = across * aspect
    size = (width * across, round(height * down))
    picture = Image.fromarray(grey_bytes(image)).resize(size, Image.Resampling.NEAREST).convert("RGB")
    pen = ImageDraw.Draw(picture)
    for level, colour in zip(LEVELS, LEVEL_COLOURS, strict=True):
        for start, end in edges(saliency >= level) * np.array([across, down]):
            pen.line([*start, *end], fill=colour, width=2)
    return _with_footer(picture, title, note)


def _with_footer(picture: Image.Image, title: str, note: str) -> Image.Image:
    font = ImageFont.load_default(size=14)
    above, below = (wrap(text, picture.width // CHARACTER_WIDTH) for text in (title, note))
    lines = len(above) + 1 + len(below)
    whole = Image.new("RGB", (picture.width, picture.height + LINE_HEIGHT * lines + 12), "white")
    whole.paste(picture)
    pen = ImageDraw.Draw(whole)
    y = picture.height + 6
    for line in (*above, None, *below):
        if line is not None:
            pen.text((10, y), line, fill="black", font=font)
        else:  # the key
            for x, level, colour in zip((10, 100, 190), LEVELS, LEVEL_COLOURS, strict=True):
                pen.rectangle((x, y + 4, x + 22, y + 14), fill=colour, outline="black")
                pen.text((x + 28, y), f"{level:.0%}", fill="black", font=font)
        y += LINE_HEIGHT
    return whole
