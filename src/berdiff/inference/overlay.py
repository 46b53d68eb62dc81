"""The overlay: a whole plane of the image with the contours of the saliency, and below it what they are."""

from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from berdiff.inference.tiles import LEVEL_COLOURS, LEVELS, edges, grey_bytes

SIDE = 768  # pixels the longer side has at least
LINE = 20  # pixels a line of text


def overlay(image: np.ndarray, saliency: np.ndarray, aspect: float, title: str, note: str) -> Image.Image:
    """image and saliency (H, W) in [0, 1]; `aspect` is the height of a pixel over its width."""
    height, width = image.shape
    across = max(1, -(-SIDE // max(height, width)))  # whole pixels a pixel, so that nothing is blurred
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
    above, below = (_wrapped(text, font, picture.width - 20) for text in (title, note))
    whole = Image.new("RGB", (picture.width, picture.height + LINE * (len(above) + 1 + len(below)) + 12), "white")
    whole.paste(picture)
    pen = ImageDraw.Draw(whole)
    x, y = 10, picture.height + 6
    for line in above:
        pen.text((x, y), line, fill="black", font=font)
        y += LINE
    for level, colour in zip(LEVELS, LEVEL_COLOURS, strict=True):
        pen.rectangle((x, y + 4, x + 22, y + 14), fill=colour, outline="black")
        pen.text((x + 28, y), f"{level:.0%}", fill="black", font=font)
        x += 90
    for line in below:
        y += LINE
        pen.text((10, y), line, fill="black", font=font)
    return whole


def _wrapped(text: str, font: Any, width: int) -> list[str]:
    """Lines no wider than `width`: broken between words, and within one that is wider by itself, as long names are."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if font.getlength(longer) <= width:
            lines[-1] = longer
            continue
        lines.append("")
        for letter in word:
            if font.getlength(lines[-1] + letter) > width:
                lines.append("")
            lines[-1] += letter
    return [line for line in lines if line]
