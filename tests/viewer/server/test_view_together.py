"""The page and the server in a browser: a click is marked where it was, refusals are one sentence, the brush saves."""

import json
import re
import threading
from dataclasses import replace

import numpy as np
import pytest
from view_server import listening, picture, serving, volume

from berdiff.cli.main import main
from berdiff.data.images import read_mask
from berdiff.data.store import open_store
from fakes import bright_model, make_spec

pytestmark = pytest.mark.slow
PLACE = (7, 49 - 33, 39 - 20)  # upright, of the bright voxels


@pytest.fixture
def live(model, tmp_path, new_tab):
    """(tab, service) of a server of a volume, a stack and a picture."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "<b>scan.nii.gz").write_bytes(volume(np.diag([2.0, 2, 3, 1])))
    (tmp_path / "in" / "picture.png").write_bytes(picture())
    np.save(tmp_path / "in" / "stack.npy", np.random.default_rng(0).random((16, 24, 28), np.float32))
    serve = serving(model, [tmp_path / "in"], corrections=tmp_path / "corrections")
    with serve as (client, service), listening(client.app) as url:
        yield new_tab(offline=False, viewport={"width": 1280, "height": 760}).open(url), service


def choose(tab, name):
    tab.page.click(f"#items button:has-text('{name}')")
    tab.page.wait_for_selector(f"#items button[aria-pressed='true']:has-text('{name}')")


def saved(tab, name):
    tab.page.fill("#brush-name", name)
    tab.page.click("#brush-save")
    tab.page.wait_for_selector(f"#message:has-text('Saved as the mask of {name}.')")


def message_colour(tab):
    words = tab.run("getComputedStyle(document.getElementById('message')).backgroundColor")
    return [int(value) for value in re.findall(r"\d+", words)]


def test_a_click_segments_there_and_a_correction_knows_what_it_was_of(live, tmp_path):
    tab, _ = live
    page = tab.page
    assert page.locator("#items button").all_inner_texts()[0].startswith("<b>scan")
    tab.run("berdiff.setSmooth(false)")
    tab.run(f"berdiff.hooks.moveTo({list(PLACE)})")
    page.fill("#samples", "4")
    page.fill("#seed", "7")
    page.mouse.click(*tab.where(PLACE))
    page.wait_for_selector("#saves:not([hidden])")
    assert tab.run("berdiff.hooks.voxel()") == list(PLACE)  # the crosshair stays
    z, y, x = PLACE
    assert np.ptp(tab.colour((z, y + 1, x + 1))) > 20  # coloured where it is marked
    assert np.ptp(tab.colour((z, y + 5, x + 5))) == 0
    for other in (0, 6, 8, 11):  # the only bright slice is the clicked one
        tab.run(f"berdiff.hooks.moveTo({[other, y, x]})")
        assert np.ptp(tab.colour((other, y + 1, x + 1))) == 0
    tab.run(f"berdiff.hooks.moveTo({list(PLACE)})")
    with page.expect_download() as download:
        page.click("#saves [data-kind='nifti']")
    assert download.value.suggested_filename.endswith("-nifti.zip")
    tab.set(mask=True, sample=3)
    page.click("#brush-start")
    page.keyboard.press("l")
    saved(tab, "Anna")
    (note,) = (json.loads(path.read_text()) for path in (tmp_path / "corrections").glob("notes/Anna/*/*.json"))
    assert note["slices"] == [z]
    assert note["corrected_from"]["sample"] == 3
    settings = note["corrected_from"]["settings"]
    assert (settings["model"], settings["samples"], settings["seed"]) == ("blur", 4, 7)
    assert settings["region"]["center"] == list(PLACE)
    assert all(url.startswith(page.url) or url.startswith("blob:") for url in tab.requests)
    assert tab.errors == []


def test_refusals_and_a_cancelled_job(live):
    tab, service = live
    page, limits, gate = tab.page, service.limits, threading.Event()
    page.set_input_files("#upload", {"name": "broken.png", "mimeType": "image/png", "buffer": b"no image"})
    page.wait_for_selector("#message:has-text('broken.png: expected a')")
    service.limits = replace(limits, jobs_per_session=0)
    page.click("#run")
    page.wait_for_selector("#message:has-text('under way')")
    red, green, blue = message_colour(tab)
    assert red > max(green, blue)
    service.limits = limits
    service.models.first._model = loaded = bright_model(make_spec((16, 16)))
    denoise = loaded.segmenter.network.denoise
    loaded.segmenter.network.denoise = lambda *given: (gate.wait(30), denoise(*given))[1]
    page.click("#run")
    page.wait_for_selector("#job-words:has-text('drawing masks')")
    assert page.locator("#message").is_hidden()
    page.click("#cancel")
    page.wait_for_selector("#job", state="hidden")
    gate.set()
    page.wait_for_function("() => berdiff.live.job === null")
    (job,) = (job for one in service.sessions.everyone() for job in one.jobs.values())
    assert job.stop


def test_the_brush_saves_another_rater(live, tmp_path):
    tab, _ = live
    page = tab.page
    choose(tab, "picture")
    page.click("#brush-start")
    assert not page.locator("#brush-slices").is_visible()
    page.locator("#brush-size").fill("1")
    page.mouse.move(*tab.where((0, 3, 4)))
    page.mouse.down()
    page.mouse.move(*tab.where((0, 3, 9)))
    page.mouse.up()
    page.mouse.click(*tab.where((0, 10, 10)))
    page.keyboard.press("z")  # the click is taken back
    page.click("#brush-erase")
    page.mouse.click(*tab.where((0, 3, 6)))
    saved(tab, "Dr. A")
    red, green, blue = message_colour(tab)
    assert green > max(red, blue)
    (path,) = (tmp_path / "corrections").glob("masks/Dr.-A/nodule/picture-*.png")
    expected = np.zeros((40, 48), np.uint8)
    expected[3, 4:10] = 1
    expected[3, 6] = 0
    np.testing.assert_array_equal(read_mask(path), expected)
    assert tab.errors == []


def test_the_brush_knows_the_slices_that_were_looked_at(live, tmp_path):
    tab, _ = live
    page, root = tab.page, tmp_path / "corrections"
    choose(tab, "stack")

    def looked_at():
        return page.inner_text("#brush-count")

    def paint(z, row, column):
        tab.run(f"berdiff.hooks.moveTo([{z}, {row}, {column}])")
        page.mouse.click(*tab.where((z, row, column)))

    page.click("#brush-start")
    assert looked_at() == "0 of 16 slices"
    page.click("#brush-save")
    page.wait_for_selector("#message:has-text('looked at')")
    assert not root.exists()
    paint(2, 5, 5)
    paint(2, 9, 9)
    paint(4, 5, 5)
    assert looked_at() == "2 of 16 slices"
    page.keyboard.press("z")  # the only stroke of slice 4, and one of two of slice 2
    page.keyboard.press("z")
    assert looked_at() == "1 of 16 slices"
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
    assert looked_at() == "2 of 16 slices"
    saved(tab, "Anna")
    assert tab.errors == []
    assert main(["data", "prepare", "folder", str(root), str(tmp_path / "s.zarr"), "--quiet"]) == 0
    store = open_store(tmp_path / "s.zarr")
    assert [case[-4:] for case in store.cases.case.tolist()] == ["_002", "_003"]
    masks = store.read([0, 1])[1]
    assert masks[0, 0, 0, 5, 5] == 1
    assert not masks[1].any()


def test_a_new_target_is_asked_for_once(live):
    tab, service = live
    page, asked, answers = tab.page, [], [False, True]
    service.known_targets = lambda: {one: one for one in ["lesion", *service.corrections.targets()]}

    def answer(dialog):
        asked.append(dialog.message)
        (dialog.accept if answers.pop(0) else dialog.dismiss)()

    page.on("dialog", answer)
    choose(tab, "picture")
    page.click("#brush-start")
    with page.expect_event("dialog"):
        page.click("#brush-save")
    assert service.corrections.targets() == []
    with page.expect_event("dialog"):
        page.click("#brush-save")
    page.wait_for_selector("#message:has-text('Saved')")
    page.click("#brush-start")
    page.click("#brush-save")
    page.wait_for_selector("#message:has-text('Saved')")
    assert ["nodule" in words for words in asked] == [True, True]
    assert service.corrections.targets() == ["nodule"]
