"""The palette: told apart by every kind of colour vision, and never the same colour twice."""

from itertools import combinations

import numpy as np
import pytest

from berdiff.output.colours import level_colours, rgb_of, target_colours

# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB
VISION = {
    "normal": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def lab(colour: str, vision: str) -> np.ndarray:
    """CIE L*a*b* of sRGB as someone sees it."""
    share = np.array(rgb_of(colour)) / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    x = TO_XYZ @ np.clip(np.array(VISION[vision]) @ linear, 0, 1) / TO_XYZ.sum(1)
    f = np.where(x > (6 / 29) ** 3, np.cbrt(x), x / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def apart(a: str, b: str, vision: str) -> float:
    return float(np.linalg.norm(lab(a, vision) - lab(b, vision)))


@pytest.mark.parametrize("vision", VISION)
def test_targets_are_told_apart(vision: str):
    """2.3 is just noticeable; side by side in small outlines much more is needed."""
    for count, least in ((3, 33), (5, 20), (7, 15)):
        assert min(apart(a, b, vision) for a, b in combinations(target_colours(count), 2)) > least
    for colour in target_colours(4):  # and none is lost on the grey of an image
        assert min(apart(colour, f"#{grey:02x}{grey:02x}{grey:02x}", vision) for grey in range(0, 256, 8)) > 15
    for k in range(5):  # the contours of one target
        assert min(apart(a, b, vision) for a, b in combinations(level_colours(k, 5), 2)) > 12


def test_there_is_a_colour_for_every_target():
    colours = target_colours(40)
    assert len(set(colours)) == 40
    assert colours[:3] == target_colours(3)
    assert all(len(rgb_of(colour)) == 3 for colour in colours)
