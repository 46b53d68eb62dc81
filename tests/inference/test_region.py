"""The region of interest: always inside the image, at least as large as the network, and what was asked for in it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berdiff.errors import InputError
from berdiff.inference.region import Region

SIZE = (16, 24)


def test_nothing_asked_is_all():
    assert Region().ranges((30, 40), SIZE, "x") == ((0, 30), (0, 40))
    assert Region().ranges((5, 30, 40), SIZE, "x") == ((0, 5), (0, 30), (0, 40))


def test_a_centre_in_the_middle_and_at_the_border():
    assert Region(center=(15, 20)).ranges((30, 40), SIZE, "x") == ((7, 23), (8, 32))
    assert Region(center=(0, 39)).ranges((30, 40), SIZE, "x") == ((0, 16), (16, 40))
    assert Region(center=(3, 15, 20)).ranges((5, 30, 40), SIZE, "x") == ((3, 4), (7, 23), (8, 32))
    assert Region(center=(15, 20), slices=(1, 3)).ranges((5, 30, 40), SIZE, "x") == ((1, 3), (7, 23), (8, 32))


@given(st.integers(16, 60), st.integers(24, 60), st.data())
def test_a_box_is_kept_and_widened_to_the_network(height, width, data):
    rows = sorted(data.draw(st.lists(st.integers(0, height), min_size=2, max_size=2, unique=True)))
    columns = sorted(data.draw(st.lists(st.integers(0, width), min_size=2, max_size=2, unique=True)))
    found = Region(box=(rows[0], columns[0], rows[1], columns[1])).ranges((height, width), SIZE, "x")
    for (first, last), (low, high), length, size in zip(found, (rows, columns), (height, width), SIZE, strict=True):
        assert 0 <= first <= low < high <= last <= length
        assert last - first == max(size, high - low)


@given(st.integers(16, 60), st.integers(24, 60), st.data())
def test_a_centre_gives_the_network_its_size(height, width, data):
    center = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
    found = Region(center=center).ranges((height, width), SIZE, "x")
    for (first, last), at, length, size in zip(found, center, (height, width), SIZE, strict=True):
        assert 0 <= first <= at < last <= length
        assert last - first == size


def test_slices_by_box_and_by_range():
    assert Region(box=(1, 0, 0, 4, 20, 30)).ranges((5, 30, 40), SIZE, "x") == ((1, 4), (0, 20), (0, 30))
    assert Region(slices=(None, 3)).ranges((5, 30, 40), SIZE, "x")[0] == (0, 3)
    assert Region(slices=(2, None)).ranges((5, 30, 40), SIZE, "x")[0] == (2, 5)
    assert Region(slices=(2, 99)).ranges((5, 30, 40), SIZE, "x")[0] == (2, 5)


def test_a_small_image_needs_pad():
    with pytest.raises(
        InputError, match=r"a\.png: expected at least 16x24 pixels, the size of the network, found 10x40"
    ):
        Region().ranges((10, 40), SIZE, "a.png")
    assert Region(pad=True).ranges((10, 40), SIZE, "x") == ((0, 10), (0, 40))
    assert Region(pad=True, center=(5, 20)).ranges((10, 40), SIZE, "x") == ((0, 10), (8, 32))


@pytest.mark.parametrize(
    ("asked", "shape", "message"),
    [
        ({"center": (40, 5)}, (30, 40), r"x: expected a region inside its 30 rows \(0 to 30\), found 40 to 41"),
        ({"center": (5, -1)}, (30, 40), "x: expected a region inside its 40 columns"),
        ({"box": (5, 5, 4, 9)}, (30, 40), "x: expected a region inside its 30 rows"),
        ({"box": (0, 0, 9, 41)}, (30, 40), "x: expected a region inside its 40 columns"),
        ({"slices": (5, 9)}, (5, 30, 40), "x: expected a region inside its 5 slices"),
        ({"center": (5, 1, 1)}, (5, 30, 40), "x: expected a region inside its 5 slices"),
        ({"slices": (0, 1)}, (30, 40), "x: expected a volume for a choice of slices, found a 2D image"),
        ({"center": (0, 1, 1)}, (30, 40), "x: expected a volume for a choice of slices, found a 2D image"),
    ],
)
def test_regions_outside_are_told(asked, shape, message):
    with pytest.raises(InputError, match=message):
        Region(**asked).ranges(shape, SIZE, "x")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"center": (1,)}, "--center: expected Y X or Z Y X, found 1 numbers"),
        ({"box": (1, 2, 3)}, "--box: expected Y0 X0 Y1 X1 or Z0 Y0 X0 Z1 Y1 X1, found 3 numbers"),
        ({"center": (1, 1), "box": (1, 2, 3, 4)}, "--center: expected no --box beside it, found both"),
        ({"center": (1, 1, 1), "slices": (0, 1)}, "--slices: expected no slice in --center or --box"),
    ],
)
def test_questions_that_make_no_sense(asked, message):
    with pytest.raises(InputError, match=message):
        Region(**asked)
