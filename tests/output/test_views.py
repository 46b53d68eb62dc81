"""Pictures show the part that matters: nothing cut off, outlines on pixel edges, the channel that shows it best."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_results import part_of, result_2d, several_2d, volume_result

from berdiff.output.colours import LEVEL_COLOURS, SAMPLE_COLOUR, level_colours, target_colours
from berdiff.output.tiles import result_tiles, target_tiles
from berdiff.output.views import close_up


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
    assert close.of(samples).sum() == samples.sum()


def test_the_view_is_the_region_that_was_segmented():
    result = part_of(result_2d(size=(100, 120)), (3, 67), (2, 66))
    for pool in (result.pool, np.zeros_like(result.pool)):
        close = close_up(replace(result, pool=pool))
        assert close.box == (slice(0, 64), slice(0, 64))
        where, image = result_tiles(close, result.representatives())["image"]
        assert where.plane.shape == (100, 120)
        np.testing.assert_array_equal(where.plane[3:67, 2:66], image.plane)
        np.testing.assert_array_equal(np.argwhere(where.outlines[0][0])[[0, -1]], [[3, 2], [66, 65]])
    image = np.zeros((5, 200, 220))  # of a volume, the slice with most of it
    image[1, 50:60, 150:160] = 99
    image[3, 50:70, 150:170] = 99
    volume = volume_result(image, (2.0, 1.5, 1.0))
    close = close_up(volume)
    assert (close.words, volume.grid.aspect) == (", slice 3", 1.5)
    assert close.of(volume.samples).sum() == volume.samples[:, :, 3].sum()
    assert close.image.shape == (1, 64, 64)
    assert close_up(part_of(volume, (1, 5), (40, 80), (140, 180))).words == ", slice 3"  # of the whole volume


def test_several_targets_are_looked_at_more_closely():
    pool = np.zeros((2, 2, 128, 128), np.uint8)
    pool[:, :, 40:60, 50:70] = 1
    one = replace(result_2d(size=(128, 128)), pool=pool[:, :1])
    assert close_up(one).image.shape == (1, 128, 128)
    assert close_up(replace(one, pool=pool, targets=("a", "b"))).image.shape == (1, 64, 64)


def test_outlines_are_on_the_channel_in_which_the_finding_stands_out():
    result = result_2d(channels=3)
    marked = result.samples.any(axis=(0, 1))
    image = result.image.copy()
    image[1, marked] = 1  # bright in the second channel
    for channel, value in ((1, 1), (0, -5)):  # dark in the first, and more so
        image[channel, marked] = value
        shown = result_tiles(close_up(replace(result, image=image)), result.representatives())
        np.testing.assert_array_equal(shown["samples"][3].plane, image[channel])
        assert [tile.title for tile in shown["image"]] == ["channel 1", "channel 2", "channel 3"]


@pytest.mark.parametrize("kind", ["nested", "exclusive", "independent"])
def test_several_targets_are_outlined_together_each_in_its_colour(kind: str):
    result = several_2d(kind)
    close = close_up(result)
    shown = result_tiles(close, result.representatives())
    box = np.s_[..., *close.box]
    for section, masks in (("raters", result.raters), ("samples", result.samples), ("majority", [result.majority()])):
        for tile, of in zip(shown[section], masks, strict=True):  # type: ignore[arg-type]
            assert [colour for _, colour in tile.outlines] == list(target_colours(3))
            np.testing.assert_array_equal(np.stack([mask for mask, _ in tile.outlines]), of[box])
    assert shown["samples"][0].title == "sample 1: nothing"
    for k in range(3):
        contours, saliency, variance = target_tiles(close, k)
        np.testing.assert_array_equal(saliency.plane, result.saliency[k][box])
        np.testing.assert_array_equal(variance.plane, result.variance[k][box])
        assert [colour for _, colour in contours.outlines] == list(level_colours(k, 3))
        assert level_colours(k, 3)[1] == target_colours(3)[k]
    one = result_2d()
    tiles = result_tiles(close_up(one), one.representatives())
    assert not tiles["majority"]
    assert target_colours(1) == (SAMPLE_COLOUR,)
    assert level_colours(0, 1) == LEVEL_COLOURS
