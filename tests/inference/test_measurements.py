"""Measurements in millimetres against the most obvious loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berdiff.inference.measurements import longest_diameter, measure


def diameter_by_loops(mask: np.ndarray, spacing: tuple[float, float]) -> float:
    """Flood fill over 8 neighbours, then the corners of every pixel of a piece against each other."""
    left = {(int(y), int(x)) for y, x in np.argwhere(mask)}
    longest = 0.0
    while left:
        piece, front = set(), [left.pop()]
        while front:
            y, x = front.pop()
            piece.add((y, x))
            around = {(y + i, x + j) for i in (-1, 0, 1) for j in (-1, 0, 1)} & left
            left -= around
            front += around
        corners = {(y + i, x + j) for y, x in piece for i in (0, 1) for j in (0, 1)}
        for a in corners:
            for b in corners:
                longest = max(longest, np.hypot((a[0] - b[0]) * spacing[0], (a[1] - b[1]) * spacing[1]))
    return float(longest)


@given(st.integers(0, 10**6), st.floats(0.05, 0.7), st.tuples(st.floats(0.3, 3), st.floats(0.3, 3)))
@settings(max_examples=40, deadline=None)
def test_longest_diameter_is_that_of_all_pairs_of_corners(seed, density, spacing):
    mask = (np.random.default_rng(seed).random((7, 9)) < density).astype(np.uint8)
    assert longest_diameter(mask, spacing) == pytest.approx(diameter_by_loops(mask, spacing))


def test_longest_diameter_by_hand():
    mask = np.zeros((10, 10), np.uint8)
    assert longest_diameter(mask, (1, 1)) == 0
    mask[2, 3] = 1
    assert longest_diameter(mask, (3.0, 4.0)) == pytest.approx(5)  # one pixel: its diagonal
    mask[9, 9] = 1  # another finding far away does not make the first one longer
    assert longest_diameter(mask, (3.0, 4.0)) == pytest.approx(5)
    mask[3, 4] = 1  # joined by a corner
    assert longest_diameter(mask, (3.0, 4.0)) == pytest.approx(10)
    volume = np.zeros((3, 8, 8), np.uint8)  # of a volume: the longest of any slice
    volume[0, 0, 0:4] = 1
    volume[2, 1:3, 0:6] = 1
    assert longest_diameter(volume, (0.5, 2.0)) == pytest.approx(np.hypot(1, 12))


def test_measures_in_millimetres_with_quantiles_among_samples_that_mark():
    masks = np.zeros((4, 10, 10), np.uint8)
    for i in range(4):
        masks[i, : 2 * i, :3] = 1  # 0, 6, 12, 18 pixels
    found = measure(masks, (0.5, 2.0))
    assert (found["finding_probability"], found["empty_share"]) == (0.75, 0.25)
    assert {"slices", "extent_mm"}.isdisjoint(found)
    assert found["area"]["unit"] == "mm^2"
    for name, q in (("q05", 5), ("q50", 50), ("q95", 95)):
        assert found["area"][name] == pytest.approx(np.percentile([6, 12, 18], q))
        lengths = [np.hypot(2 * i * 0.5, 6) for i in (1, 2, 3)]
        assert found["longest_diameter"][name] == pytest.approx(np.percentile(lengths, q))
    assert found["longest_diameter"]["unit"] == "mm"
    nothing = measure(np.zeros((3, 10, 10), np.uint8), (0.5, 2.0))
    assert (nothing["finding_probability"], nothing["empty_share"]) == (0, 1)
    assert nothing["area"] == {"unit": "mm^2", "q05": None, "q50": None, "q95": None}


def test_measures_of_a_volume_and_of_unknown_spacing():
    masks = np.ones((2, 3, 4, 5), np.uint8)
    found = measure(masks, (2.5, 0.5, 2.0))
    assert found["volume"] == {"unit": "mm^3", **dict.fromkeys(("q05", "q50", "q95"), pytest.approx(60 * 2.5))}
    assert found["longest_diameter"]["q50"] == pytest.approx(np.hypot(2, 10))
    assert (found["slices"], found["extent_mm"]) == (3, 7.5)
    nan = float("nan")
    found = measure(masks, (nan, 0.5, 2.0))  # slices at unknown distances: no volume in mm, but diameters
    assert found["volume"]["unit"] == "voxel"
    assert (found["slices"], found["extent_mm"]) == (3, None)
    assert found["volume"]["q50"] == 60
    assert found["longest_diameter"]["unit"] == "mm"
    found = measure(masks[:, 0], (nan, nan))
    assert (found["area"]["unit"], found["area"]["q50"]) == ("px^2", 20)
    assert found["longest_diameter"] == {"unit": "px", **dict.fromkeys(("q05", "q50", "q95"), pytest.approx(41**0.5))}
