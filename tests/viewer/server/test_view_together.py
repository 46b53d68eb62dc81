"""The real page with the real server in a browser: a click is marked where it was, and the brush saves a mask."""

import numpy as np
import pytest
from view_server import listening, serving, volume

from berdiff.cli.main import main
from berdiff.data.store import open_store

pytest.importorskip("berdiff_viewer.page")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("real_pages")]


def test_from_the_page_to_masks_and_back(model, tmp_path, new_tab):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "<b>scan.nii.gz").write_bytes(volume(np.diag([2.0, 2, 3, 1])))
    place = (7, 49 - 33, 39 - 20)  # upright, of the bright voxels
    serve = serving(model, [tmp_path / "in"], corrections=tmp_path / "corrections")
    with serve as (client, _), listening(client.app) as url:
        tab = new_tab(offline=False, viewport={"width": 1280, "height": 760}).open(url)
        page = tab.page
        assert page.locator("#items button").inner_text().startswith("<b>scan")
        tab.run("berdiff.setSmooth(false)")
        tab.run(f"berdiff.hooks.moveTo({list(place)})")
        page.mouse.click(*tab.where(place))
        page.wait_for_selector("#saves:not([hidden])")
        assert tab.run("berdiff.hooks.voxel()") == list(place)
        assert np.ptp(tab.colour((7, place[1] + 1, place[2] + 1))) > 20  # coloured where it is marked
        assert np.ptp(tab.colour((7, place[1] + 5, place[2] + 5))) == 0
        for z in (0, 6, 8, 11):  # the only bright slice is the clicked one
            tab.run(f"berdiff.hooks.moveTo({[z, *place[1:]]})")
            assert np.ptp(tab.colour((z, place[1] + 1, place[2] + 1))) == 0
        tab.run(f"berdiff.hooks.moveTo({list(place)})")
        with page.expect_download() as download:
            page.click("#saves [data-kind='nifti']")
        assert download.value.suggested_filename.endswith("-nifti.zip")
        assert tab.errors == []


def test_one_painted_slice_is_one_case_of_the_store(model, tmp_path, new_tab):
    (tmp_path / "in").mkdir()
    np.save(tmp_path / "in" / "scan.npy", np.random.default_rng(0).random((16, 24, 28), np.float32))
    serve = serving(model, [tmp_path / "in"], corrections=tmp_path / "corrections")
    with serve as (client, _), listening(client.app) as url:
        tab = new_tab(offline=False, viewport={"width": 1280, "height": 760}).open(url)
        page = tab.page
        tab.run("berdiff.hooks.moveTo([5, 12, 12])")
        page.click("#brush-start")
        page.mouse.click(*tab.where((5, 10, 9)))
        page.fill("#brush-name", "Anna")
        page.click("#brush-save")
        page.wait_for_selector("#message.good")
    command = ["data", "prepare", "folder", str(tmp_path / "corrections"), str(tmp_path / "s.zarr"), "--quiet"]
    assert main(command) == 0
    store = open_store(tmp_path / "s.zarr")
    assert store.cases.case.tolist()[0].endswith("_005")
    assert (len(store), store.cases.raters.tolist()) == (1, [1])
    assert store.read([0])[1][0, 0, 0, 10, 9] == 1
