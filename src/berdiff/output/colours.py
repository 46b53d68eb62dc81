"""Every colour of outlines, legends and label maps, in one place.

Targets have the colours of Okabe and Ito, made for all kinds of colour vision, in an order in which the first of them
are the farthest apart, and apart from grey.
"""

from collections.abc import Sequence
from colorsys import hsv_to_rgb

Key = Sequence[tuple[str, str]]
"""(words, colour): what the colours of a picture mean"""

SAMPLE_COLOUR, RATER_COLOUR, BOX_COLOUR = "#ffd166", "#4cc9f0", "#ffffff"  # where there is one target
LEVELS = (0.25, 0.5, 0.75)
LEVEL_COLOURS = ("#4cc9f0", "#ffd166", "#ff5d8f")  # of the contours, where there is one target
TARGET_COLOURS = ("#56b4e9", "#f0e442", "#d55e00", "#0072b2", "#cc79a7", "#e69f00", "#009e73")
GOLDEN = 0.618034  # of the circle of hues: never the same one again


def target_colours(count: int) -> tuple[str, ...]:
    """One for each target. From the eighth on they are different, if not to every eye."""
    if count == 1:
        return (SAMPLE_COLOUR,)
    more = (hsv_to_rgb(GOLDEN * i % 1, 0.55, 0.95) for i in range(count - len(TARGET_COLOURS)))
    return (*TARGET_COLOURS[:count], *(_hex([255 * share for share in rgb]) for rgb in more))


def level_colours(target: int, count: int) -> tuple[str, ...]:
    """Of the contours of one of `count` targets: of several, its own colour, darker outside and lighter inside."""
    if count == 1:
        return LEVEL_COLOURS
    colour = rgb_of(target_colours(count)[target])
    return _hex([0.7 * part for part in colour]), _hex(colour), _hex([0.35 * part + 0.65 * 255 for part in colour])


def legend(targets: Sequence[str]) -> Key:
    """Empty for one target, which needs none."""
    return list(zip(targets, target_colours(len(targets)), strict=True)) if len(targets) > 1 else []


def rgb_of(colour: str) -> list[int]:
    """#rrggbb -> three numbers up to 255."""
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def _hex(rgb: Sequence[float]) -> str:
    return "#" + "".join(f"{round(part):02x}" for part in rgb)
