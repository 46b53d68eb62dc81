"""Pictures show the part that matters: nothing cut off, outlines on pixel edges, the channel that shows it best."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from made_results import result_2d, volume_result

from berdiff.output.tiles import edges, result_tiles
from berdiff.output.views import close_up


@settings(deadline=None)
@given(arrays(np.uint8, st.tuples(st.integers(1, 7), st.integers(1, 7)), elements=st.integers(0, 1)))
def test_edges_are_the_sides_between_inside_and_outside(mask: np.ndarray):
    expected = set()
    padded = np.pad(mask, 1)
    for r, c in np.argwhere(mask):
        for dr, dc, side in (
            (-1, 0, ((c, r), (c + 1, r))),
            (1, 0, ((c, r + 1), (c + 1, r + 1))),
            (0, -1, ((c, r), (c, r + 1))),
            (0, 1, ((c + 1, r), (c + 1, r + 1))),
        ):
            if not padded[r + 1 + dr, c + 1 + dc]:
                expected.add(side)
    found = [(tuple(start), tuple(end)) for start, end in edges(mask).tolist()]
    assert len(found) == len(set(found))
    assert set(found) == expected


@settings(max_examples=30, deadline=None)
@given(
    size=st.tuples(st.integers(40, 300), st.integers(40, 300)),
    where=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    more=st.integers(0, 14),
)
def test_the_view_cuts_nothing_off(size: tuple[int, int], where: tuple[float, float], more: int):
    samples = np.zeros((2, 1, *size), np.uint8)
    first = [int(share * (length - 20)) for share, length in zip(where, size, strict=True)]
    samples[1, 0, first[0] : first[0] + 5 + more, first[1] : first[1] + 20] = 1
    close = close_up(replace(result_2d(n=2, size=size), pool=samples))
    assert close.result.samples.sum() == samples.sum()
    np.testing.assert_array_equal(close.plane[:, *close.box], close.result.image)


def test_the_view_is_the_region_that_was_segmented():
    result = result_2d(size=(100, 120), roi=((30, 94), (20, 84)))
    empty = replace(result, pool=np.zeros_like(result.pool))
    assert close_up(empty).box == (slice(30, 94), slice(20, 84))
    close = close_up(result)  # its masks lie above the region: they are shown all the same
    assert close.result.samples.sum() == result.samples.sum()
    assert [ends.stop for ends in close.box] == [94, 84]
    image = np.zeros((5, 200, 220))  # of a volume, the slice with most of it
    image[1, 50:60, 150:160] = 99
    image[3, 50:70, 150:170] = 99
    volume = volume_result(image, (2.0, 1.5, 1.0))
    close = close_up(volume)
    assert (close.words, volume.aspect, close.result.aspect) == (", slice 3", 1.5, 1.5)
    assert close.result.samples.sum() == volume.samples[:, :, 3].sum()
    assert close.result.image.shape == (1, 64, 64)


def test_tiles_of_a_part_show_where_it_is():
    result = result_2d(size=(200, 300))
    where, image = result_tiles(close_up(result), result.representatives(), 0)["image"]
    assert where.plane.shape == (200, 300)
    np.testing.assert_array_equal(where.plane[where.outlines[0][0]].reshape(image.plane.shape), image.plane)


def test_outlines_are_on_the_channel_in_which_the_finding_stands_out():
    result = result_2d(channels=3)
    marked = result.samples.any(axis=(0, 1))
    image = result.image.copy()
    image[1, marked] = 1  # bright in the second channel
    for channel, value in ((1, 1), (0, -5)):  # dark in the first, and more so
        image[channel, marked] = value
        shown = result_tiles(close_up(replace(result, image=image)), result.representatives(), 0)
        np.testing.assert_array_equal(shown["samples"][3].plane, image[channel])
        assert [tile.title for tile in shown["image"]] == ["channel 1", "channel 2", "channel 3"]
