"""The real page with the real server in a browser: a click is marked where it was, and the brush saves a mask."""

import numpy as np
import pytest
from view_server import listening, serving, volume

pytest.importorskip("berdiff.viewer.page")
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
