"""The page with a server, a fake one: a click asks for the right voxel, masks come, and refusals are one sentence."""

import base64
import gzip
from dataclasses import replace

import numpy as np
import pytest
from fake_api import TOKEN, FakeApi, served
from made_results import result_2d, volume_result

from berdiff.inference.opening import OpenedImage
from berdiff.viewer.document import image_document, result_document

pytestmark = pytest.mark.slow


def volume():
    return volume_result(np.full((6, 20, 28), 20), (2.0, 1.0, 1.0))


def picture():
    return result_2d(
        size=(16, 24), spacing=(1.0, 1.0), image=np.full((1, 16, 24), 0.2, np.float32), name="<b>picture</b>"
    )


def opened(result):
    return OpenedImage(result.name, result.image, result.spacing, result.geometry, None, result.notes)


def segment(item, center):
    """Masks of 4 voxels around the centre."""
    result = {"v": volume, "p": picture}[item]()
    pool = np.zeros((4, 1, *result.image.shape[1:]), np.uint8)
    *z, y, x = center
    pool[(slice(None), 0, *z, slice(y - 2, y + 2), slice(x - 2, x + 2))] = 1
    return result_document(replace(result, pool=pool), image=False)


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
    path, body, token = api.posts[0]
    assert (path, token, body["name"], body["target"]) == ("/api/items/p/raters", TOKEN, "Dr. A", "nodule")
    mask = np.frombuffer(gzip.decompress(base64.b64decode(body["mask"])), np.uint8).reshape(16, 24)
    expected = np.zeros((16, 24), np.uint8)
    expected[3, 4:10] = 1
    expected[3, 6] = 0
    np.testing.assert_array_equal(mask, expected)
    assert tab.errors == []
