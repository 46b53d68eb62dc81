"""The page with a server, a fake one: a click asks for the right voxel, masks come, and refusals are one sentence."""

import base64
import gzip
import re
from dataclasses import replace

import numpy as np
import pytest
from fake_api import TOKEN, FakeApi, served
from made_results import result_2d, volume_result

from berdiff.data.apply import Prepared
from berdiff_viewer.document import image_document, result_document

pytestmark = pytest.mark.slow


def volume():
    return volume_result(np.full((6, 20, 28), 20), (2.0, 1.0, 1.0))


def picture():
    return result_2d(
        size=(16, 24), spacing=(1.0, 1.0), image=np.full((1, 16, 24), 0.2, np.float32), name="<b>picture</b>"
    )


def opened(result):
    return Prepared(result.name, result.image, result.grid, notes=result.notes)


def segment(item, center):
    """Masks of 4 voxels around the centre."""
    result = {"v": volume, "p": picture}[item]()
    pool = np.zeros((4, 1, *result.image.shape[1:]), np.uint8)
    *z, y, x = center
    pool[(slice(None), 0, *z, slice(y - 2, y + 2), slice(x - 2, x + 2))] = 1
    return result_document(replace(result, pool=pool), image=False)


def message_colour(tab):
    words = tab.run("getComputedStyle(document.getElementById('message')).backgroundColor")
    return [int(value) for value in re.findall(r"\d+", words)]


@pytest.fixture
def live(new_tab):
    api = FakeApi({"v": image_document(opened(volume())), "p": image_document(opened(picture()))}, segment)
    with served(api) as address:
        yield api, new_tab(offline=False, viewport={"width": 1280, "height": 760}).open(address)


def test_a_click_segments_there_and_masks_are_drawn(live):
    api, tab = live
    page = tab.page
    assert page.locator("#items button").count() == 2
    assert page.input_value("#model") == "bright"
    tab.run("berdiff.setSmooth(false)")
    place = (3, 8, 20)
    tab.run("berdiff.hooks.moveTo([3, 0, 0])")
    page.fill("#samples", "4")
    page.fill("#seed", "7")
    api.hang = True  # until its progress was seen: on a busy machine it would be over before a look at the page
    page.mouse.click(*tab.where(place))
    page.wait_for_selector("#job-words:has-text('5 of 16')")
    api.hang = False
    page.wait_for_selector("#saves:not([hidden])")
    path, body, token = api.posts[0]
    assert (path, token) == ("/api/jobs", TOKEN)
    asked = {"item": "v", "center": list(place), "model": "bright", "samples": 4, "steps": None, "seed": 7}
    assert body == {**asked, "slice": False, "set": "independent"}
    assert tab.run("berdiff.hooks.voxel()") == list(place)  # the crosshair stays
    tab.set(contours=False)
    assert np.ptp(tab.colour((3, 7, 19))) > 20  # coloured where it is marked
    assert np.ptp(tab.colour((3, 12, 12))) == 0
    assert page.get_attribute("#saves [data-kind='dicom-seg']", "href") == "/api/jobs/j1/files?kind=dicom-seg"
    page.click("#items button:has-text('picture')")
    page.wait_for_selector("#items button[aria-pressed='true']:has-text('<b>picture</b>')")
    page.fill("#steps", "9")
    page.mouse.click(*tab.where((0, 5, 6)))
    page.wait_for_selector("#saves:not([hidden])")
    assert api.posts[1][1]["center"] == [5, 6]
    assert api.posts[1][1]["steps"] == 9
    assert all(url.startswith(tab.page.url) for url in tab.requests)
    assert tab.errors == []


def test_refusals_and_a_cancelled_job(live):
    api, tab = live
    page = tab.page
    page.set_input_files("#upload", {"name": "broken.png", "mimeType": "image/png", "buffer": b"no image"})
    page.wait_for_selector("#message:has-text('broken.png: expected an image, found a damaged file')")
    path, body, token = api.posts[0]
    assert (path, token) == ("/api/items", TOKEN)
    assert b'name="files"; filename="broken.png"' in body
    api.busy = True
    page.click("#run")
    page.wait_for_selector("#message:has-text('busy')")
    red, green, blue = message_colour(tab)
    assert red > max(green, blue)
    api.busy, api.hang = False, True
    page.click("#run")
    page.wait_for_selector("#job-words:has-text('5 of 16')")
    assert page.locator("#message").is_hidden()
    page.click("#cancel")
    page.wait_for_selector("#job", state="hidden")
    page.wait_for_function("() => berdiff.live.job === null")
    assert api.deleted == ["/api/jobs/j1"]


def test_the_brush_saves_another_rater(live):
    api, tab = live
    page = tab.page
    page.click("#items button:has-text('picture')")
    page.wait_for_selector("#items button[aria-pressed='true']:has-text('picture')")
    page.click("#brush-start")
    page.locator("#brush-size").fill("1")
    page.mouse.move(*tab.where((0, 3, 4)))
    page.mouse.down()
    page.mouse.move(*tab.where((0, 3, 9)))
    page.mouse.up()
    page.mouse.click(*tab.where((0, 10, 10)))
    page.keyboard.press("z")  # the click is taken back
    page.click("#brush-erase")
    page.mouse.click(*tab.where((0, 3, 6)))
    page.fill("#brush-name", "Dr. A")
    page.click("#brush-save")
    page.wait_for_selector("#message:has-text('Saved as the mask of Dr. A.')")
    red, green, blue = message_colour(tab)
    assert green > max(red, blue)
    path, body, token = api.posts[0]
    assert (path, token, body["name"], body["target"]) == ("/api/items/p/raters", TOKEN, "Dr. A", "nodule")
    mask = np.frombuffer(gzip.decompress(base64.b64decode(body["mask"])), np.uint8).reshape(16, 24)
    expected = np.zeros((16, 24), np.uint8)
    expected[3, 4:10] = 1
    expected[3, 6] = 0
    np.testing.assert_array_equal(mask, expected)
    assert body["slices"] is None
    assert not page.locator("#brush-slices").is_visible()
    assert tab.errors == []


def test_the_brush_knows_the_slices_that_were_looked_at(live):
    api, tab = live
    page = tab.page

    def looked_at():
        return page.inner_text("#brush-count")

    def paint(z, row, column):
        tab.run(f"berdiff.hooks.moveTo([{z}, {row}, {column}])")
        page.mouse.click(*tab.where((z, row, column)))

    page.click("#brush-start")
    assert looked_at() == "0 of 6 slices"
    page.click("#brush-save")
    page.wait_for_selector("#message:has-text('looked at')")
    assert api.posts == []
    paint(2, 5, 5)
    paint(2, 9, 9)
    paint(4, 5, 5)
    assert looked_at() == "2 of 6 slices"
    page.keyboard.press("z")  # the only stroke of slice 4, and one of two of slice 2
    page.keyboard.press("z")
    assert looked_at() == "1 of 6 slices"
    tab.run("berdiff.hooks.moveTo([3, 0, 0])")
    assert page.get_attribute("#brush-looked", "aria-pressed") == "false"
    page.keyboard.press("l")
    assert page.get_attribute("#brush-looked", "aria-pressed") == "true"
    tab.run("berdiff.hooks.moveTo([0, 0, 0])")
    assert page.get_attribute("#brush-looked", "aria-pressed") == "false"
    page.click("#brush-looked")
    page.click("#brush-looked")
    page.click("#brush-erase")
    paint(5, 5, 5)  # nothing is there to erase
    assert looked_at() == "2 of 6 slices"
    page.click("#brush-save")
    page.wait_for_selector("#message:has-text('Saved')")
    (_, body, _) = api.posts[0]
    assert body["slices"] == [2, 3]
    mask = np.frombuffer(gzip.decompress(base64.b64decode(body["mask"])), np.uint8).reshape(6, 20, 28)
    assert np.flatnonzero(mask.any((1, 2))).tolist() == [2]
    assert tab.errors == []


def test_a_new_target_is_asked_for_once(live):
    api, tab = live
    page, asked = tab.page, []
    api.known = {"lesion"}
    answers = [False, True]

    def answer(dialog):
        asked.append(dialog.message)
        (dialog.accept if answers.pop(0) else dialog.dismiss)()

    page.on("dialog", answer)
    page.click("#items button:has-text('picture')")
    page.wait_for_selector("#items button[aria-pressed='true']:has-text('picture')")
    page.click("#brush-start")
    for saved in (False, True):
        with page.expect_event("dialog"):
            page.click("#brush-save")
        if saved:
            page.wait_for_selector("#message:has-text('Saved')")
    page.click("#brush-start")
    page.click("#brush-save")
    page.wait_for_selector("#message:has-text('Saved')")
    assert len(asked) == 2
    assert all("nodule" in words for words in asked)
    assert [body.get("new_target", False) for _, body, _ in api.posts] == [False, False, True, False]
