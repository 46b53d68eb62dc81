"""What a model cannot know is refused by the server and to MONAI Label's clients, as the command line does."""

import json
from dataclasses import replace

import numpy as np
from dicom_writer import write_slice
from view_server import finished, item_named, serving

from berdiff.methods import folder
from berdiff_viewer.server.items import shared_items
from fakes import Blur, make_spec


def test_a_ct_model_and_an_mr_series(tmp_path):
    spec = replace(make_spec((16, 16), rule="window", window=(-1000.0, 400.0)), modality="ct", crops=True)
    folder.save(Blur(spread=0.1).build(spec), tmp_path / "model" / "blur")
    values = np.random.default_rng(0).integers(0, 900, (40, 40)).astype(np.int16)
    for z in range(3):
        named = {"Modality": "MR", "SeriesDescription": "T2", "SeriesNumber": "4"}
        write_slice(tmp_path / "scans" / "brain" / f"{z}.dcm", values, 2.5 * z, **named)
    with serving(tmp_path / "model" / "blur", [tmp_path / "scans"]) as (client, service):
        item = item_named(client, "brain")
        assert item["title"] == "P1, T2 (series 4)"
        body = {"item": item["id"], "model": "blur", "center": [1, 20, 20]}
        jobs = [client.post("/api/jobs", json={**body, "force": force}).json()["id"] for force in (False, True)]
        refused, warned = (finished(client, id) for id in jobs)
        assert (refused["state"], "this is an MR" in refused["error"]) == ("failed", True)
        assert warned["state"] == "done"
        (session,) = service.sessions.everyone()
        assert "this is an MR" in session.jobs[jobs[1]].result.result.warnings[0]
        for force, status in ((False, 400), (True, 200)):
            params = json.dumps({"foreground": [[20, 20, 1]], "samples": 2, "force": force})
            image = service.shared[item["id"]].series
            answer = client.post(f"/infer/blur?image={image}&output=json", data={"params": params})
            assert (answer.status_code, "this is an MR" in answer.text) == (status, True)


def test_series_of_one_number_are_told_apart(tmp_path):
    for series in ("1.2.31", "1.2.32"):
        write_slice(tmp_path / "two" / f"{series}.dcm", np.zeros((20, 20)), series=series, SeriesNumber="4")
    titles = [item.title for item in shared_items([str(tmp_path / "two")], ("ct",))]
    assert titles == ["P1, series 4, UID ...1.2.31", "P1, series 4, UID ...1.2.32"]
