"""The overlay: contours around their pixels, the image untouched, words that stay on the picture."""

import numpy as np

from berdiff.output.overlay import overlay
from berdiff.output.tiles import LEVEL_COLOURS


def test_each_contour_lies_around_its_pixels():
    image = np.full((48, 64), 0.5, np.float32)
    saliency = np.zeros((48, 64), np.float32)
    saliency[10:20, 30:50] = 0.3  # reaches 25 % only
    saliency[12:18, 35:45] = 0.8  # reaches all
    picture = np.array(overlay(image, saliency, 1.0, "title", "note"))
    scale = 768 // 64
    assert picture.shape[1] == 768
    colours = [tuple(int(c[i : i + 2], 16) for i in (1, 3, 5)) for c in LEVEL_COLOURS]
    shown = picture[: 48 * scale]
    for colour, box in ((colours[0], (10, 30, 20, 50)), (colours[2], (12, 35, 18, 45))):
        rows, columns = np.nonzero((shown == colour).all(-1))
        ends = [rows.min(), columns.min(), rows.max(), columns.max()]
        np.testing.assert_allclose(ends, np.array(box) * scale, atol=2)
    np.testing.assert_array_equal(shown[15 * scale + 5, 40 * scale + 5], [128, 128, 128])  # the image inside
    assert not (picture[48 * scale :] == 255).all()  # and there is a footer with words
    long = overlay(image, saliency, 1.0, "1.2.840." * 60, "note")
    assert long.width == 768
    assert (np.array(long)[48 * scale :, -9:] == 255).all()  # no word runs over the edge


def test_circles_stay_round():
    tall = overlay(np.zeros((50, 100), np.float32), np.zeros((50, 100), np.float32), 2.0, "", "")
    square = overlay(np.zeros((100, 100), np.float32), np.zeros((100, 100), np.float32), 1.0, "", "")
    assert tall.size == square.size
