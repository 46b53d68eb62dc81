"""The overlay: contours around their pixels, the image untouched, words and keys that stay on the picture."""

import numpy as np

from berdiff.output.colours import LEVEL_COLOURS, legend, rgb_of, target_colours
from berdiff.output.overlay import overlay
from berdiff.output.tiles import Tile, contours_tile, masks_tile

GREY = np.full((48, 64), 0.5, np.float32)
SCALE = 768 // 64


def ends(shown: np.ndarray, colour: str) -> np.ndarray:
    """The first and the last row and column with a colour, in pixels of the image."""
    rows, columns = np.nonzero((shown == rgb_of(colour)).all(-1))
    return np.array([rows.min(), columns.min(), rows.max(), columns.max()]) / SCALE


def test_each_contour_lies_around_its_pixels():
    saliency = np.zeros((48, 64), np.float32)
    saliency[10:20, 30:50] = 0.3  # reaches 25 % only
    saliency[12:18, 35:45] = 0.8  # reaches all
    picture = np.array(overlay(contours_tile("title", GREY, saliency, 0, 1), 1.0, "note"))
    assert picture.shape[1] == 768
    shown = picture[: 48 * SCALE]
    np.testing.assert_allclose(ends(shown, LEVEL_COLOURS[0]), (10, 30, 20, 50), atol=0.3)
    np.testing.assert_allclose(ends(shown, LEVEL_COLOURS[2]), (12, 35, 18, 45), atol=0.2)
    np.testing.assert_array_equal(shown[15 * SCALE + 5, 40 * SCALE + 5], [128, 128, 128])  # the image inside
    assert not (picture[48 * SCALE :] == 255).all()  # and there is a footer with words
    long = overlay(contours_tile("1.2.840." * 60, GREY, saliency, 0, 1), 1.0, "note")
    assert long.width == 768
    assert (np.array(long)[48 * SCALE :, -9:] == 255).all()  # no word runs over the edge


def test_targets_that_touch_and_targets_that_share_a_border_are_both_seen():
    masks = np.zeros((2, 48, 64), np.uint8)
    masks[0, 10:20, 10:20] = masks[1, 10:20, 20:30] = 1  # side by side
    shown = np.array(overlay(masks_tile("", GREY, masks, "exclusive"), 1.0, ""))[: 48 * SCALE]
    first, second = target_colours(2)
    np.testing.assert_allclose(ends(shown, first), (10.3, 10.3, 19.7, 19.7), atol=0.2)
    np.testing.assert_allclose(ends(shown, second), (10.3, 20.3, 19.7, 29.7), atol=0.2)
    masks[0, 10:20, 20:30] = 1  # the second inside the first, with three sides in common
    shown = np.array(overlay(masks_tile("", GREY, masks, "nested"), 1.0, ""))[: 48 * SCALE]
    np.testing.assert_allclose(ends(shown, first), (10, 10, 20, 30), atol=0.3)
    line = shown[15 * SCALE, 29 * SCALE : 31 * SCALE]  # across the side in common: outer, inner, outer
    found = [first if (p == rgb_of(first)).all() else second if (p == rgb_of(second)).all() else "" for p in line]
    assert [c for c, before in zip(found, ["", *found[:-1]], strict=True) if c and c != before][:2] == [first, second]


def test_a_long_key_is_broken_and_stays_on_the_picture():
    names = [f"target with a rather long name {k}" for k in range(12)] + ["x" * 300]
    tile = Tile("title", GREY, key=legend(names))
    picture = np.array(overlay(tile, 1.0, "note"))
    footer = picture[48 * SCALE :]
    assert (footer[:, -9:] == 255).all()
    for colour in target_colours(13):
        assert (footer == rgb_of(colour)).all(-1).any(), colour


def test_circles_stay_round():
    tall = overlay(Tile("", np.zeros((50, 100), np.float32)), 2.0, "")
    square = overlay(Tile("", np.zeros((100, 100), np.float32)), 1.0, "")
    assert tall.size == square.size
