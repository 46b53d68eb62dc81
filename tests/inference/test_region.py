"""The region of interest: always inside the image, at least as large as the network, and what was asked for in it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berdiff.inference.region import Region
from refusals import refused

SIZE = (16, 24)


def test_regions_by_hand():
    plane, volume = (30, 40), (5, 30, 40)
    for region, shape, expected in [
        (Region(), plane, ((0, 30), (0, 40))),
        (Region(), volume, ((0, 5), (0, 30), (0, 40))),
        (Region(center=(15, 20)), plane, ((7, 23), (8, 32))),
        (Region(center=(0, 39)), plane, ((0, 16), (16, 40))),
        (Region((3, 15, 20), slice=True).around(volume, (1, 1, 1), "x"), volume, ((3, 4), (7, 23), (8, 32))),
        (Region((3, 15, 20), extent=1).around(volume, (1, 1, 1), "x"), volume, ((2, 5), (7, 23), (8, 32))),
        (Region(center=(15, 20), slices="1:3"), volume, ((1, 3), (7, 23), (8, 32))),
        (Region(box=(1, 0, 0, 4, 20, 30)), volume, ((1, 4), (0, 20), (0, 30))),
        (Region(slices=":3"), volume, ((0, 3), (0, 30), (0, 40))),
        (Region(slices="2:"), volume, ((2, 5), (0, 30), (0, 40))),
        (Region(slices="2:99"), volume, ((2, 5), (0, 30), (0, 40))),
        (Region(pad=True), (10, 40), ((0, 10), (0, 40))),
        (Region(pad=True, center=(5, 20)), (10, 40), ((0, 10), (8, 32))),
    ]:
        assert region.ranges(shape, SIZE, "x") == expected


@settings(deadline=None)
@given(st.integers(16, 60), st.integers(24, 60), st.data())
def test_a_box_is_kept_and_widened_to_the_network_and_a_centre_gives_its_size(height, width, data):
    rows = sorted(data.draw(st.lists(st.integers(0, height), min_size=2, max_size=2, unique=True)))
    columns = sorted(data.draw(st.lists(st.integers(0, width), min_size=2, max_size=2, unique=True)))
    box = Region(box=(rows[0], columns[0], rows[1], columns[1])).ranges((height, width), SIZE, "x")
    for (first, last), (low, high), length, size in zip(box, (rows, columns), (height, width), SIZE, strict=True):
        assert 0 <= first <= low < high <= last <= length
        assert last - first == max(size, high - low)
    center = Region(center=(rows[0], columns[0])).ranges((height, width), SIZE, "x")
    for (first, last), at, length, size in zip(center, (rows[0], columns[0]), (height, width), SIZE, strict=True):
        assert 0 <= first <= at < last <= length
        assert last - first == size


@pytest.mark.parametrize(
    ("asked", "shape", "where", "code"),
    [
        ({"center": (40, 5)}, (30, 40), "x", "place"),
        ({"center": (5, -1)}, (30, 40), "x", "place"),
        ({"box": (5, 5, 4, 9)}, (30, 40), "x", "place"),
        ({"slices": "5:9"}, (5, 30, 40), "x", "place"),
        ({"slices": "0:1"}, (30, 40), "x", "kind"),
        ({"center": (0, 1, 1)}, (30, 40), "x", "kind"),
        ({}, (10, 40), "x", "shape"),
        ({"center": (1,)}, (30, 40), "center", "value"),
        ({"box": (1, 2, 3)}, (30, 40), "box", "value"),
        ({"center": (1, 1), "box": (1, 2, 3, 4)}, (30, 40), "center", "conflict"),
        ({"center": (1, 1, 1), "slices": "0:1"}, (30, 40), "slices", "conflict"),
        ({"slices": "a:b"}, (5, 30, 40), "slices", "value"),
        ({"slices": "-1:3"}, (5, 30, 40), "slices", "value"),
    ],
)
def test_regions_that_make_no_sense(asked, shape, where, code):
    with refused(where, code=code):
        region = Region(**asked)
        region.check()
        region.ranges(shape, SIZE, "x")
