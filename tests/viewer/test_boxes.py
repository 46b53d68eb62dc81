"""The part of an image that goes into the page: bounded, around the finding, whole where that fits."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from berdiff_viewer.document import MAX_SIDE, around, bounded_box, cut, marked_box, overlap


@st.composite
def shapes_and_cores(draw):
    shape = draw(st.lists(st.integers(1, 300), min_size=2, max_size=3))
    firsts = [draw(st.integers(0, side - 1)) for side in shape]
    core = tuple((first, draw(st.integers(first + 1, side))) for first, side in zip(firsts, shape, strict=True))
    return tuple(shape), core


def voxels(box):
    return int(np.prod([last - first for first, last in box]))


@settings(max_examples=50)
@given(shapes_and_cores(), st.integers(1, 10**6))
def test_it_is_as_large_as_it_may_be_and_holds_the_core_where_that_fits(case, most):
    shape, core = case
    box = bounded_box(shape, core, most)
    assert all(0 <= first < last <= side for (first, last), side in zip(box, shape, strict=True))
    assert voxels(box) <= most
    if int(np.prod(shape)) <= most:
        assert box == tuple((0, side) for side in shape)
    elif voxels(core) <= most:
        assert all(a <= c and d <= b for (a, b), (c, d) in zip(box, core, strict=True))


def test_a_side_is_no_longer_than_a_graphics_card_takes():
    assert bounded_box((5000, 100), ((10, 20), (0, 5)), 10**9)[0][1] <= 5000
    (first, last), _ = bounded_box((5000, 100), ((4900, 4990), (0, 5)), 10**9)
    assert last - first == MAX_SIDE
    assert first <= 4900
    assert last >= 4990


def test_what_is_marked():
    masks = np.zeros((2, 1, 4, 6, 8), np.uint8)
    assert marked_box(masks, axes=3) is None
    masks[0, 0, 1, 2, 3] = masks[1, 0, 2, 2, 6] = 1
    assert marked_box(masks, axes=3) == ((1, 3), (2, 3), (3, 7))
    other = np.zeros((1, 1, 4, 6, 8), np.uint8)
    other[..., 0, 5, 3] = 1
    assert around(marked_box(masks, 3), None, marked_box(other, 3)) == ((0, 3), (2, 6), (3, 7))
    assert around(None) is None
    assert cut(masks, ((1, 3), (2, 3), (3, 7))).shape == (2, 1, 2, 1, 4)
    part = masks[..., 1:3, 2:5, 3:8]  # of a region: what of it is in a box, 0 around it
    region = ((1, 3), (2, 5), (3, 8))
    np.testing.assert_array_equal(cut(part, ((0, 2), (0, 4), (2, 8)), region), masks[..., :2, :4, 2:8])
    assert not cut(part, ((3, 4), (0, 6), (0, 8)), region).any()
    assert overlap(((0, 3), (2, 6)), ((2, 9), (0, 4))) == ((2, 3), (2, 4))
    assert overlap(((0, 3),), ((3, 5),)) is None
