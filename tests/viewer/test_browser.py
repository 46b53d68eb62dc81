"""The page in a real browser: what is drawn is the result, the right way up, and controls change it."""

from dataclasses import replace

import nibabel
import numpy as np
import pytest
from made_results import part_of, result_2d, several_2d, volume_result

from berdiff.data.reading import read_images
from berdiff.inference.result import Result
from berdiff.output import html_report
from berdiff_viewer.document import result_document

GREY = np.array([51, 51, 51])  # 0.2 of white


def corner_result(n: int = 4, **changes: object) -> Result:
    """All samples mark a bar at the left of the top; the second and third, also the foot of the image's right side."""
    pool = np.zeros((n, 1, 16, 24), np.uint8)
    pool[:, 0, 1:3, 1:9] = 1
    pool[1:3, 0, 12:15, 20:23] = 1
    image = np.full((1, 16, 24), 0.2, np.float32)
    image[0, :4, 20:] = 1  # bright: the right end of the top
    return result_2d(size=(16, 24), spacing=(1.0, 1.0), pool=pool, image=image, **changes)


def is_grey(colour: np.ndarray) -> bool:
    return bool(np.abs(colour - GREY).max() <= 2)


def test_the_page_shows_image_and_saliency_the_right_way_up_and_asks_for_nothing(show):
    tab = show(result_document(corner_result()))
    tab.run("berdiff.setSmooth(false)")
    tab.set(contours=False)
    pixels = tab.pixels()
    frame = tab.page.locator("#frame").bounding_box()
    left, scale = frame["x"], frame["width"] / 24  # the image is as wide as the frame, and in its middle
    top = frame["y"] + (frame["height"] - 16 * scale) / 2
    places = [(1, 2), (2, 8), (2, 9), (9, 1), (13, 21), (13, 2), (2, 22), (10, 10)]
    at = {(y, x): pixels[round(top + (y + 0.5) * scale), round(left + (x + 0.5) * scale)] for y, x in places}
    assert not is_grey(at[1, 2])
    assert not is_grey(at[2, 8])
    assert all(is_grey(at[place]) for place in [(2, 9), (9, 1), (13, 2), (10, 10)])
    assert at[2, 22].min() > 250
    assert at[1, 2].sum() > at[13, 21].sum() > GREY.sum()  # 100 % is brighter than 50 %
    tab.set(level=0.6)
    assert is_grey(tab.colour((0, 13, 21)))
    assert not is_grey(tab.colour((0, 1, 2)))
    assert tab.requests == [tab.page.url]
    assert tab.errors == []


@pytest.mark.slow
def test_sliders_and_keys_change_what_is_drawn(show):
    tab = show(result_document(corner_result(raters=2)))
    page = tab.page
    tab.run("berdiff.setSmooth(false)")
    tab.set(contours=False, saliency=False)
    assert is_grey(tab.colour((0, 13, 21)))
    for key, number, marked in [("Right", 2, True), ("Right", 3, True), ("Right", 4, False), ("Left", 3, True)]:
        page.keyboard.press(f"Arrow{key}")
        assert page.inner_text("#sample-words") == f"sample {number} of 4"
        assert is_grey(tab.colour((0, 13, 21))) != marked
        assert not is_grey(tab.colour((0, 1, 3)))
    page.locator("#sample").fill("1")
    assert is_grey(tab.colour((0, 13, 21)))
    page.click("[data-representative='0']")
    assert "representative mask 1: 50 %" in page.inner_text("#legend")
    page.keyboard.press("m")
    assert is_grey(tab.colour((0, 1, 3)))
    page.keyboard.press("s")
    assert not is_grey(tab.colour((0, 1, 3)))
    page.keyboard.press("s")
    page.check("[data-rater='1']")
    assert "rater 2" in page.inner_text("#legend")
    assert tab.run("berdiff.hooks.state().raters") == [1]
    page.keyboard.press("r")
    page.keyboard.press("c")
    assert "more than 25 %" in page.inner_text("#legend")
    x, y = tab.where((0, 1, 1))
    edge = tab.pixels()[y - 30 : y + 30, x]  # somewhere above the bar's upper row is its outline
    assert any(not is_grey(colour) for colour in edge)
    page.locator("#window-width").fill("20")  # 0.2 lies at the foot of a narrow window around 0.5
    assert tab.colour((0, 10, 10)).max() < 3
    page.keyboard.press("w")
    assert is_grey(tab.colour((0, 10, 10)))
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#help").is_visible()
    assert tab.errors == []


@pytest.mark.slow
def test_decoded_masks_are_the_samples(show):
    result = several_2d("nested")
    document = result_document(result)
    tab = show(document)
    rows, columns = (slice(*ends) for ends in document["masks"]["box"])
    for m, k in [(1, 0), (3, 2), (7, 1)]:
        decoded = np.reshape(
            tab.run(f"berdiff.hooks.mask({m}, {k})"), (rows.stop - rows.start, columns.stop - columns.start)
        )
        np.testing.assert_array_equal(decoded, result.samples[m, k, rows, columns])
    assert tab.page.locator("#targets button").count() == 4
    tab.page.click("#targets button:has-text('tumour core')")
    assert tab.run("berdiff.hooks.state().target") == 1
    assert tab.page.locator("#measurements table").count() == 1
    finding = result.measurements()["tumour core"]["finding_probability"]
    assert f"{100 * finding:.3g} %" in tab.page.inner_text("#measurements")


@pytest.mark.slow
def test_millimetres_under_the_cursor_of_an_oblique_volume_are_nibabels(show, tmp_path):
    stored = np.zeros((20, 24, 12), np.int16) + 20
    stored[3:6, 15:20, 8:10] = 99
    turn = nibabel.eulerangles.euler2mat(0.2, -0.1, 0.3)
    affine = nibabel.affines.from_matvec(turn @ np.diag([1.0, 1.2, 2.5]), (-31.5, 12.25, 7.125))
    nibabel.save(nibabel.Nifti1Image(stored, affine), tmp_path / "a.nii.gz")
    file = read_images([tmp_path / "a.nii.gz"], 1)
    result = volume_result(file.values[0], file.grid.spacing, file.grid)
    tab = show(result_document(result))
    tab.run("berdiff.setSmooth(false)")
    tab.set(contours=False)
    upright = np.argwhere(file.values[0] == 99)
    inside = tuple(int(v) for v in upright[len(upright) // 2])
    tab.run(f"berdiff.hooks.moveTo({list(inside)})")
    for axis in range(3):  # in each plane the cursor is over the marked block, and says where
        x, y = tab.where(inside, axis)
        assert not is_grey(tab.pixels()[y, x])
        tab.page.mouse.move(x, y)
        assert tab.page.get_attribute("#place", "data-voxel") == " ".join(map(str, inside))
        told = [float(mm) for mm in tab.page.get_attribute("#place", "data-mm").split()]
        back = nibabel.affines.apply_affine(np.linalg.inv(affine), told)
        assert stored[tuple(np.rint(back).astype(int))] == 99
        np.testing.assert_allclose(back, np.rint(back), atol=1e-3)
    before = tab.run("berdiff.hooks.voxel()")
    tab.page.keyboard.press("ArrowUp")
    assert tab.run("berdiff.hooks.voxel()") == [before[0] + 1, *before[1:]]
    for view in ("axial", "coronal", "sagittal", "3d", "all"):
        tab.page.click(f"[data-view='{view}']")
    x, y = tab.where(inside, 0)
    tab.page.mouse.click(x, y)
    assert tab.run("berdiff.hooks.voxel()")[1:] == list(inside[1:])
    assert tab.errors == []


@pytest.mark.slow
def test_outlines_lie_on_the_colours_at_any_zoom(show):
    """NiiVue draws the colours and the page draws the outlines: both by the same voxels."""
    tab = show(result_document(corner_result()))
    tab.run("berdiff.setSmooth(false)")
    tab.run("berdiff.hooks.moveTo([0, 6, 12])")
    before = tab.where((0, 6, 12))
    tab.run("berdiff.view.zoom(1.6)")
    assert np.abs(np.subtract(tab.where((0, 6, 12)), before)).max() <= 1  # around the crosshair
    tab.set(contours=False)
    x, y = tab.where((0, 2, 8))
    (right, _), (_, below) = tab.where((0, 2, 9)), tab.where((0, 3, 8))
    pixels = tab.pixels()
    assert not is_grey(pixels[y, x + (right - x) // 2 - 2])  # up to its edge it is coloured, and not beyond
    assert is_grey(pixels[y, x + (right - x) // 2 + 3])
    assert not is_grey(pixels[y + (below - y) // 2 - 2, x])
    assert is_grey(pixels[y + (below - y) // 2 + 3, x])
    tab.set(contours=True, saliency=False)
    edge = tab.pixels()[y, x + (right - x) // 2 - 2 : x + (right - x) // 2 + 3]
    assert any(not is_grey(colour) for colour in edge)


@pytest.mark.slow
def test_hostile_names_are_shown_as_text(show):
    evil = "<img src=x onerror=\"document.body.dataset.bad='yes'\"><script>document.body.dataset.bad='yes'</script>"
    result = several_2d("exclusive", name=evil, targets=(evil, "b", "c"), notes=(evil,))
    tab = show(result_document(result))
    assert tab.page.inner_text("#name") == evil
    assert tab.page.get_attribute("body", "data-bad") is None
    assert evil in tab.page.inner_text("#targets")
    assert tab.errors == []


@pytest.mark.slow
@pytest.mark.parametrize(("width", "height"), [(1280, 800), (420, 800)])
def test_nothing_is_wider_than_the_window(show, width, height):
    tab = show(
        result_document(several_2d("nested", name="a long name of a case " * 4)),
        viewport={"width": width, "height": height},
    )
    assert tab.run("document.documentElement.scrollWidth") <= width
    frame = tab.page.locator("#frame").bounding_box()
    assert frame["width"] > 0.6 * width
    assert frame["height"] > 250


@pytest.mark.slow
def test_a_part_of_a_large_volume_says_so_and_keeps_its_places(show):
    image = np.full((20, 30, 40), 20)
    image[12:14, 4:8, 30:34] = 99
    tab = show(result_document(volume_result(image, (2.0, 1.0, 1.0)), limit=4000))
    assert "A part of the image is shown" in tab.page.inner_text("#notes")
    tab.run("berdiff.setSmooth(false)")
    tab.set(contours=False)
    tab.run("berdiff.hooks.moveTo([12, 5, 31])")
    assert tab.run("berdiff.hooks.voxel()") == [12, 5, 31]
    assert not is_grey(tab.colour((12, 5, 31)))
    assert is_grey(tab.colour((12, 7, 27)))


@pytest.mark.slow
def test_another_channel_is_another_picture_under_the_same_masks(show):
    image = np.stack([np.full((16, 24), share, np.float32) for share in (0.2, 0.8)])
    tab = show(result_document(replace(corner_result(), image=image, channels=("t1", "t2"))))
    tab.set(contours=False)
    tab.run("berdiff.hooks.moveTo([0, 6, 12])")
    tab.page.select_option("#channel", label="t2")
    tab.page.wait_for_function("() => berdiff.hooks.state().channel === 1 && !berdiff.view.hold")
    assert np.abs(tab.colour((0, 10, 10)) - 204).max() <= 2
    assert np.ptp(tab.colour((0, 1, 2))) > 20
    tab.page.select_option("#channel", label="t1")
    tab.page.wait_for_function("() => berdiff.hooks.state().channel === 0 && !berdiff.view.hold")
    assert is_grey(tab.colour((0, 10, 10)))
    assert tab.run("berdiff.hooks.voxel()") == [0, 6, 12]


DEPTH = 12


def slab_document(first: int, last: int) -> dict:
    """Of a volume (12, 20, 24) in which the slices from `first` to `last` were segmented.

    All samples mark the rows 0 to 5 and columns 8 to 13 of each slice of the slab; so does a rater.
    """
    pool = np.zeros((4, 1, DEPTH, 20, 24), np.uint8)
    pool[..., first:last, 0:6, 8:14] = 1
    whole = volume_result(np.full((DEPTH, 20, 24), 20), (2.0, 1.0, 1.0))
    slab = part_of(replace(whole, pool=pool, raters=pool[:1]), (first, last), (0, 20), (0, 24))
    return {**result_document(slab), "region": None}  # whose outline is no mark


def painted(tab, view: str, voxel: tuple[int, int, int], **layers: object) -> list[int]:
    """What the layers change in a plane or in 3D: its top, bottom, left and right in pixels of the window;
    nothing where they change nothing."""
    off = {"contours": False, "saliency": False, "mask": False, "raters": []}
    tab.run(f"berdiff.setView('{view}')")
    tab.run(f"berdiff.hooks.moveTo({list(voxel)})")
    box = tab.page.locator("#frame").bounding_box()
    frame = (slice(int(box["y"]), int(box["y"] + box["height"])), slice(int(box["x"]), int(box["x"] + box["width"])))
    tab.set(**off)
    before = tab.pixels()[frame]
    tab.set(**{**off, **layers})
    changed = np.abs(tab.pixels()[frame] - before).max(-1) > 12
    rows, columns = np.flatnonzero(changed.any(1)) + int(box["y"]), np.flatnonzero(changed.any(0)) + int(box["x"])
    return [int(ends[i]) for ends in (rows, columns) for i in (0, -1)] if len(rows) else []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "last", "layer"),
    [
        *((*slab, {"saliency": True}) for slab in [(6, 7), (4, 8), (0, 1), (11, 12)]),
        (6, 7, {"mask": True}),
        (6, 7, {"raters": [0]}),
    ],
)
def test_only_the_segmented_slices_are_marked_in_every_plane(show, first, last, layer):
    tab = show(slab_document(first, last))
    tab.run("berdiff.setSmooth(false)")
    for z in sorted({0, first - 1, first, last - 1, last, DEPTH - 1} & set(range(DEPTH))):
        assert bool(painted(tab, "axial", (z, 3, 10), **layer)) == (first <= z < last), z
    for axis, view in ((1, "coronal"), (2, "sagittal")):
        top, bottom, left, right = painted(tab, view, (first, 3, 10), **layer)
        half = abs(tab.where((1, 3, 10), axis)[1] - tab.where((0, 3, 10), axis)[1]) / 2
        assert abs(top - (tab.where((last - 1, 3, 10), axis)[1] - half)) <= 4  # the head is above
        assert abs(bottom - (tab.where((first, 3, 10), axis)[1] + half)) <= 4
        ends = sorted(tab.where((first, *place), axis)[0] for place in ((0, 8), (5, 13)))
        half = abs(tab.where((first, 1, 9), axis)[0] - tab.where((first, 0, 8), axis)[0]) / 2
        assert abs(left - (ends[0] - half)) <= 4
        assert abs(right - (ends[1] + half)) <= 4
    assert tab.errors == []


@pytest.mark.slow
@pytest.mark.parametrize(("first", "last"), [(6, 7), (4, 8)])
def test_only_the_segmented_slices_are_marked_in_3d(show, first, last):
    tab = show(slab_document(first, last))
    tab.run("berdiff.setView('3d')")
    tab.run("berdiff.view.nv.setRenderAzimuthElevation(180, 0)")  # from the front, at the height of the middle
    top, bottom, _, _ = painted(tab, "3d", (first, 3, 10), saliency=True)
    head, foot, _, _ = painted(show(slab_document(0, DEPTH)), "3d", (0, 3, 10), saliency=True)
    assert (bottom - top) / (foot - head) == pytest.approx((last - first) / DEPTH, abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("width", [800, 1400, 1900])
def test_a_reports_words_and_pictures_lie_below_each_other(new_tab, tmp_path, width):
    result = result_2d()
    entry = html_report.ReportEntry(result, result.representatives())
    (tmp_path / "report.html").write_text(html_report.page("report", [entry]), encoding="utf-8")
    page = new_tab(viewport={"width": width, "height": 900}).page
    page.goto((tmp_path / "report.html").as_uri())
    words = page.locator(".case > p").first.bounding_box()
    pictures = [box.bounding_box() for box in page.locator(".case > div").all()]
    assert words["y"] + words["height"] <= min(box["y"] for box in pictures)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
