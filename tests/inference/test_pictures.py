"""Pictures show what is in the arrays: outlines on pixel edges, nothing cut off, the notes on each."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from made import result_2d, volume_result
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from berdiff.inference import exports
from berdiff.inference.overlay import overlay
from berdiff.inference.pictures import panel
from berdiff.inference.result import Source
from berdiff.inference.tiles import LEVEL_COLOURS, best_view, edges, tiles
from berdiff.inference.words import digest, percent


@given(arrays(np.uint8, st.tuples(st.integers(1, 7), st.integers(1, 7)), elements=st.integers(0, 1)))
def test_edges_are_the_sides_between_inside_and_outside(mask: np.ndarray):
    expected = set()
    height, width = mask.shape
    for r in range(height):
        for c in range(width):
            if not mask[r, c]:
                continue
            for dr, dc, side in (
                (-1, 0, ((c, r), (c + 1, r))),
                (1, 0, ((c, r + 1), (c + 1, r + 1))),
                (0, -1, ((c, r), (c, r + 1))),
                (0, 1, ((c + 1, r), (c + 1, r + 1))),
            ):
                inside = 0 <= r + dr < height and 0 <= c + dc < width and mask[r + dr, c + dc]
                if not inside:
                    expected.add(side)
    found = [(tuple(start), tuple(end)) for start, end in edges(mask).tolist()]
    assert len(found) == len(set(found))
    assert set(found) == expected


@settings(max_examples=30, deadline=None)
@given(
    size=st.tuples(st.integers(40, 300), st.integers(40, 300)),
    where=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    seed=st.integers(0, 99),
)
def test_the_view_cuts_nothing_off(size: tuple[int, int], where: tuple[float, float], seed: int):
    samples = np.zeros((2, 1, *size), np.uint8)
    first = [int(share * (length - 20)) for share, length in zip(where, size, strict=True)]
    samples[1, 0, first[0] : first[0] + 5 + seed % 15, first[1] : first[1] + 20] = 1
    view = best_view(replace(result_2d(n=2, size=size), samples=samples))
    assert view.of(samples).sum() == samples.sum()
    assert view.shape == view.of(samples).shape[-2:]


def test_the_view_is_the_region_that_was_segmented():
    result = result_2d(size=(100, 120), roi=((30, 94), (20, 84)))
    empty = replace(result, samples=np.zeros_like(result.samples))
    assert (best_view(empty).rows, best_view(empty).columns) == (slice(30, 94), slice(20, 84))
    view = best_view(result)  # its masks lie above the region: they are shown all the same
    assert view.of(result.samples).sum() == result.samples.sum()
    assert (view.rows.stop, view.columns.stop) == (94, 84)


def test_the_view_of_a_volume_is_the_slice_with_most_of_it():
    image = np.zeros((5, 200, 220))
    image[1, 50:60, 150:160] = 99
    image[3, 50:70, 150:170] = 99
    result = volume_result(image, (2.0, 1.5, 1.0), Source("array", shape=image.shape))
    view = best_view(result)
    assert view.number == 3
    assert view.aspect == 1.5
    assert view.of(result.samples).sum() == result.samples[:, :, 3].sum()
    assert view.shape == (64, 64)


def test_overlay_draws_each_contour_around_its_pixels():
    image = np.full((48, 64), 0.5, np.float32)
    saliency = np.zeros((48, 64), np.float32)
    saliency[10:20, 30:50] = 0.3  # reaches 25 % only
    saliency[12:18, 35:45] = 0.8  # reaches all
    picture = np.array(overlay(image, saliency, 1.0, "title", "note"))
    scale = 768 // 64
    assert picture.shape[1] == 768
    rgb = {level: tuple(int(c[i : i + 2], 16) for i in (1, 3, 5)) for level, c in zip((25, 50, 75), LEVEL_COLOURS)}  # noqa: B905
    drawn = picture[: 48 * scale]
    for level, (top, left, bottom, right) in ((25, (10, 30, 20, 50)), (75, (12, 35, 18, 45))):
        rows, columns = np.nonzero((drawn == rgb[level]).all(-1))
        ends = [rows.min(), columns.min(), rows.max(), columns.max()]
        np.testing.assert_allclose(ends, np.array([top, left, bottom, right]) * scale, atol=2)
    middle = drawn[15 * scale + 5, 40 * scale + 5]
    np.testing.assert_array_equal(middle, [128, 128, 128])  # the image inside stays untouched
    assert not (picture[48 * scale :] == 255).all()  # and there is a footer with words
    long = overlay(image, saliency, 1.0, "1.2.840." * 60, "note")
    assert long.width == 768
    assert (np.array(long)[48 * scale :, -9:] == 255).all()  # no word runs over the edge


def test_overlay_keeps_circles_round():
    tall = overlay(np.zeros((50, 100), np.float32), np.zeros((50, 100), np.float32), 2.0, "", "")
    square = overlay(np.zeros((100, 100), np.float32), np.zeros((100, 100), np.float32), 1.0, "", "")
    assert tall.size == square.size


def test_panel_shows_every_part_and_the_notes():
    result = result_2d(readers=4)
    figure = panel(result)
    titles = [ax.get_title() for ax in figure.axes if ax.images]
    shown = digest(result).representatives
    assert titles[:8] == [
        "image",
        *(f"reader {i}" for i in (1, 2, 3, 4)),
        "contours",
        "saliency, 0 to 1",
        "variance, 0 to 0.25",
    ]
    assert titles[8:24] == ["sample 1: nothing", *(f"sample {i}" for i in range(2, 17))]
    assert titles[24:] == [
        f"{percent(found.frequency)} of samples" + ("" if found.mask.any() else ": nothing") for found in shown
    ]
    assert figure.get_supxlabel() == "real readers, simulated CT; not for clinical use"
    words = "\n".join(text.get_text() for ax in figure.axes for text in ax.texts)
    assert "a finding in 93.8 % of the samples" in words
    assert "mm²" in words


def test_panel_draws_arrays_as_they_are():
    """Row 0 on top, column 0 left, and a pixel as high over wide as the spacing says."""
    result = result_2d()
    axes = [ax for ax in panel(result).axes if ax.images]
    np.testing.assert_array_equal(axes[0].images[0].get_array(), result.image[0])
    assert axes[0].images[0].get_extent() == [0, 24, 20, 0]
    assert axes[0].get_aspect() == pytest.approx(0.5 / 0.8)
    segments = axes[5].collections[0].get_segments()  # the second sample
    np.testing.assert_array_equal(np.array(segments), edges(result.samples[1, 0]))


def test_no_name_is_too_long_or_taken_for_a_formula(tmp_path: Path):
    name = "$x_{" + "1.3.6.1.4.1" * 30
    result = result_2d(n=2, name=name, targets=("$\\frac{$",), notes=("$_^$",))
    written = exports.write(result, tmp_path, ["panel", "overlay"])
    sizes = []
    for path in written:
        with Image.open(path) as picture:
            sizes.append(picture.width)
    assert sizes == [1440, 768]
    figure = panel(result)
    FigureCanvasAgg(figure).draw()
    for text in (figure._suptitle, figure._supxlabel):  # type: ignore[attr-defined]
        box = text.get_window_extent()
        assert 0 <= box.x0 < box.x1 <= figure.bbox.width


def test_tiles_of_a_part_say_where_it_is():
    result = result_2d(size=(200, 300))
    view = best_view(result)
    where, image = tiles(result, result.representatives(), view, 0)["image"]
    assert where.plane.shape == (200, 300)
    np.testing.assert_array_equal(where.plane[where.outlines[0][0]].reshape(view.shape), image.plane)


def test_outlines_are_drawn_on_the_channel_in_which_the_finding_stands_out():
    result = result_2d(channels=3)
    marked = result.samples.any(axis=(0, 1))
    image = result.image.copy()
    image[1, marked] = 1  # bright in the second channel
    shown = tiles(replace(result, image=image), result.representatives(), best_view(result), 0)
    np.testing.assert_array_equal(shown["samples"][3].plane, image[1])
    assert [tile.title for tile in shown["image"]] == ["channel 1", "channel 2", "channel 3"]
    image[0, marked] = -5  # dark in the first, and more so
    shown = tiles(replace(result, image=image), result.representatives(), best_view(result), 0)
    np.testing.assert_array_equal(shown["samples"][3].plane, image[0])


def test_plot_is_the_panel():
    result = result_2d(n=3)
    assert len(result.plot().axes) == len(panel(result).axes)
