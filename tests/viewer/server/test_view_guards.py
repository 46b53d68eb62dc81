"""The server and MONAI Label's clients refuse what a model cannot know, as the command line does."""

import json
from dataclasses import replace

import numpy as np
import pytest
from dicom_writer import write_slice
from view_server import finished, item_named, serving

from berdiff.methods import folder
from berdiff_viewer.server.items import shared_items
from fakes import Blur, make_spec


@pytest.fixture
def asked(tmp_path):
    """(client, service) of a CT model that was trained on crops of 16x16, with an MR series."""
    spec = replace(make_spec((16, 16), rule="window", window=(-1000.0, 400.0)), modality="ct", crops=True)
    folder.save(Blur(spread=0.1).build(spec), tmp_path / "model" / "blur")
    values = np.random.default_rng(0).integers(0, 900, (40, 40)).astype(np.int16)
    for z in range(3):
        named = {"Modality": "MR", "SeriesDescription": "T2", "SeriesNumber": "4"}
        write_slice(tmp_path / "scans" / "brain" / f"{z}.dcm", values, 2.5 * z, **named)
        write_slice(tmp_path / "scans" / "chest" / f"{z}.dcm", values, 2.5 * z, series="1.9")
    with serving(tmp_path / "model" / "blur", [tmp_path / "scans"]) as both:
        yield both


def outcome(client, name: str, **request) -> dict:
    item = item_named(client, name)["id"]
    return finished(client, client.post("/api/jobs", json={"item": item, "model": "blur", **request}).json()["id"])


def test_a_job_is_refused_or_warns(asked):
    client, service = asked
    refused = outcome(client, "brain", center=[1, 20, 20])
    assert refused["state"] == "failed"
    assert "this is an MR" in refused["error"]
    done = outcome(client, "brain", center=[1, 20, 20], force=True)
    assert done["state"] == "done"
    job = next(job for one in service.sessions._all.values() for job in one.jobs.values() if job.id == done["id"])
    assert "this is an MR" in job.result.result.warnings[0]
    whole = outcome(client, "chest")
    assert whole["state"] == "failed"
    assert "--center" in whole["error"]


def test_monai_label(asked):
    client, _ = asked
    image = next(one for one in asked[1].shared.values() if one.name == "brain").series
    for force, status in ((False, 400), (True, 200)):
        params = json.dumps({"foreground": [[20, 20, 1]], "samples": 2, "force": force})
        answer = client.post(f"/infer/blur?image={image}&output=json", data={"params": params})
        assert answer.status_code == status, answer.text
        assert "this is an MR" in answer.text


def test_items_and_models_say_what_they_are(asked, tmp_path):
    client, _ = asked
    assert item_named(client, "brain")["title"] == "P1, T2 (series 4)"
    for series in ("1.2.31", "1.2.32"):  # of one number in one folder
        write_slice(tmp_path / "two" / f"{series}.dcm", np.zeros((20, 20)), series=series, SeriesNumber="4")
    titles = [item.title for item in shared_items([str(tmp_path / "two")], ("ct",))]
    assert titles == ["P1, series 4, UID ...1.2.31", "P1, series 4, UID ...1.2.32"]
    assert "crops around a finding" in client.get("/api/state").json()["models"][0]["trained_on"]
