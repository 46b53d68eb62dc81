"""The JSON interface: what a page does from its first request to the download."""

import base64
import gzip
import html
import io
import json
import re
import time
import zipfile

import nibabel
import numpy as np
import pytest
from dicom_writer import write_slice
from view_server import POINT, another, finished, item_named, picture, segmented, serving, upload, volume

import berdiff
from fakes import bright_model, make_spec


def unzipped(answer):
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_page_and_the_state(client):
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    (inside,) = re.findall('http-equiv="Content-Security-Policy" content="(.*?)"', page.text)
    assert page.headers["content-security-policy"] == f"{html.unescape(inside)}; frame-ancestors 'none'"
    state = client.get("/api/state").json()
    assert state["version"] == berdiff.__version__
    assert [model["name"] for model in state["models"]][:2] == ["blur", "lidc"]
    assert state["models"][0] | {"notes": []} == {
        "name": "blur", "size": [16, 16], "channels": ["ct"], "targets": ["nodule"], "kind": "independent",
        "patches": False, "notes": [], "sampler": None, "trained_on": "images of 16x16 pixels, spacing unknown",
    }  # fmt: skip
    assert state["models"][1]["sampler"]["steps"] == 3
    items = {item["name"]: (item["kind"], item["shape"], item["channels"], item["own"]) for item in state["items"]}
    assert items == {"picture": ("image", [40, 48], 1, False), "scan": ("volume", [12, 50, 40], 1, False)}
    assert state["corrections"] is True
    assert state["limits"]["samples"] == 64


def test_a_click_on_a_picture(client):
    item = item_named(client, "picture")["id"]
    document = client.get(f"/api/items/{item}/document").json()
    assert (document["name"], document["shape"], document["masks"]["count"]) == ("picture", [40, 48], 0)
    id = segmented(client, item, [12, 30], samples=5)
    document = client.get(f"/api/jobs/{id}/document").json()
    assert document["region"] == [[4, 20], [22, 38]]
    assert document["samples"]["count"] == 5
    files = unzipped(client.get(f"/api/jobs/{id}/files?kind=json"))
    assert sorted(files) == ["measurements.csv", "result.json"]
    facts = json.loads(files["result.json"])
    assert facts["source"] == {"kind": "png", "files": ["picture.png"]}  # no folder of this machine
    assert facts["measurements"]["nodule"]["area"]["q50"] == 25
    answer = client.get(f"/api/jobs/{id}/files?kind=dicom-seg")
    assert (answer.status_code, answer.json()["error"].split(":")[0]) == (400, "picture")


@pytest.mark.parametrize(
    ("asked", "ends"), [({}, (2, 12)), ({"extent": 4.0}, (6, 9)), ({"slice": True}, (7, 8))], ids=str
)
def test_a_click_on_a_volume_gives_the_masks_of_the_command_in_its_place(server, files, model, asked, ends):
    client, service = server
    item = item_named(client, "scan")["id"]
    turned = [7, 49 - 33, 39 - 20]  # the file has x to the right and y to the front; upright is left and back
    id = segmented(client, item, turned, samples=4, set="systematic", pool=9, **asked)
    document = client.get(f"/api/jobs/{id}/document").json()
    assert document["shape"] == [12, 50, 40]
    assert document["region"][0] == list(ends)
    (first, last), *_ = document["masks"]["box"]
    assert ends[0] <= first <= 7 < last <= ends[1]
    assert document["start"][0] == 7
    loaded = berdiff.load(model, "cpu")
    expected = loaded.segment(files / "scan.nii.gz", 4, center=turned, set="systematic", pool=9, **asked)
    (session,) = service.sessions.everyone()
    done = session.jobs[id].result
    np.testing.assert_array_equal(done.result.whole(done.result.pool), expected.whole(expected.pool))
    assert done.result.pool.shape[2] == ends[1] - ends[0]  # no more than these slices is kept
    assert done.result.measurements() == expected.measurements()
    assert done.result.chosen == expected.chosen
    assert done.result.settings == expected.settings
    written = unzipped(client.get(f"/api/jobs/{id}/files?kind=nifti"))
    mask = nibabel.Nifti1Image.from_bytes(gzip.decompress(written["mask.nii.gz"]))
    np.testing.assert_array_equal(mask.affine, np.diag([2.0, 2, 3, 1]))
    places = np.argwhere(np.asarray(mask.dataobj))
    assert len(places) == 9
    np.testing.assert_array_equal(places.mean(0), POINT)
    facts = json.loads(written["result.json"])
    assert facts["region"] == [list(ends) for ends in expected.region]
    assert facts["measurements"] == expected.measurements()
    size = "area" if "slice" in asked else "volume"
    assert {"area", "volume"} & {*facts["measurements"]["nodule"]} == {size}


def test_all_slices_of_a_volume_where_the_masks_fit(server, model, files):
    client, _ = server
    item = item_named(client, "scan")["id"]
    id = segmented(client, item, [16, 19], samples=2)  # this place in all slices
    assert client.get(f"/api/jobs/{id}/document").json()["region"] == [[0, 12], [8, 24], [11, 27]]
    with serving(model, [files], pool_bytes=1000) as (small, _):
        answer = small.post("/api/jobs", json={"item": item_named(small, "scan")["id"], "model": "blur"})
        job = finished(small, answer.json()["id"])
    assert (job["state"], job["error"].split(" (")[0]) == ("failed", "scan: expected at most 0 MiB of masks")


def test_uploads_of_every_kind(client, tmp_path):
    (one,) = upload(client, ("my scan.png", picture()))
    assert (one["name"], one["own"], one["kind"]) == ("my scan", True, "image")
    (two,) = upload(client, ("brain.nii.gz", volume(np.diag([-1.0, -1, 1, 1]))))
    assert two["shape"] == [12, 50, 40]
    segmented(client, two["id"], [7, 33, 20])
    content = io.BytesIO()
    np.save(content, np.zeros((3, 20, 24), np.float32))
    (three,) = upload(client, ("stack.npy", content.getvalue()))
    assert three["shape"] == [3, 20, 24]
    names = [write_slice(tmp_path / f"{z}.dcm", np.zeros((20, 24), np.int16), float(z)) for z in range(4)]
    (four,) = upload(client, *((f"CT/{path.name}", path.read_bytes()) for path in names))
    assert (four["kind"], four["shape"]) == ("volume", [4, 20, 24])
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for path in names:
            zipped.write(path, f"series/{path.name}")
        zipped.writestr("series/README.txt", "left out")
    (five,) = upload(client, ("series.zip", archive.getvalue()))
    assert five["shape"] == [4, 20, 24]
    own = [item for item in client.get("/api/state").json()["items"] if item["own"]]
    assert len(own) == 5
    document = client.get(f"/api/items/{four['id']}/document").json()
    assert document["shape"] == [4, 20, 24]


def test_bad_requests_are_one_sentence(client):
    item = item_named(client, "picture")["id"]
    for body, status, sentence in [
        ({"item": item, "samples": 10**6}, 422, "samples: Input should be less than or equal to 64"),
        ({"item": item, "center": [1, 2, 3, 4]}, 422, "center"),
        ({"item": item, "center": [-1, 5]}, 422, "center.0: "),
        ({"item": item, "path": "/etc/passwd"}, 422, "path: "),
        ({"item": item, "model": "/etc"}, 404, "model: only blur, lidc"),
        ({"item": "none"}, 404, "item: "),
        ("{", 422, "JSON"),
    ]:
        kind = {"content": body, "headers": {"Content-Type": "application/json"}} if body == "{" else {"json": body}
        answer = client.post("/api/jobs", **kind)
        assert answer.status_code == status, answer.text
        assert sentence in answer.json()["error"]
    outside = client.post("/api/jobs", json={"item": item, "center": [500, 3], "model": "blur"}).json()["id"]
    job = finished(client, outside)
    assert job["state"] == "failed"
    assert job["error"].startswith("picture: expected a region inside its 40 rows")
    assert client.get(f"/api/jobs/{outside}/document").status_code == 404
    for path in ("/api/jobs/x", "/api/items/x/document", "/nothing", "/api/jobs/x/files?kind=json"):
        assert client.get(path).status_code == 404
        assert list(client.get(path).json()) == ["error", "detail"]
    assert "PNG, JPG, TIFF, NIfTI" in upload(client, ("letter.txt", b"hello"), status=400)
    assert upload(client, ("bad.png", b"no picture"), status=400).startswith("bad.png: expected a picture")
    assert upload(client, ("bad.nii", b"no volume" * 50), status=400).startswith("bad.nii: expected a NIfTI file")


@pytest.fixture
def stepping(server):
    """The server with a model of many slow steps."""
    client, service = server
    loaded = bright_model(make_spec((16, 16)))
    slow = {"on": True}
    denoise = loaded.segmenter.network.denoise

    def denoised(*arguments):
        time.sleep(0.02 if slow["on"] else 0)
        return denoise(*arguments)

    loaded.segmenter.network.denoise = denoised
    service.models.first._model = loaded
    return client, slow


def test_the_queue_is_bounded_and_says_so(stepping):
    client, slow = stepping
    item = item_named(client, "picture")["id"]
    body = {"item": item, "center": [12, 30], "model": "blur", "steps": 50, "samples": 1}
    first = client.post("/api/jobs", json=body).json()["id"]
    while client.get(f"/api/jobs/{first}").json()["state"] == "queued":
        time.sleep(0.005)
    waiting = [client.post("/api/jobs", json=body).json()["id"] for _ in range(3)]
    assert [client.get(f"/api/jobs/{id}").json()["place"] for id in waiting] == [0, 1, 2]
    fifth = client.post("/api/jobs", json=body)
    assert fifth.status_code == 429
    assert fifth.json()["error"] == "4 segmentations of yours are under way; wait for one of them"
    others = [another(client), another(client)]
    answers = [other.post("/api/jobs", json=body) for other in others for _ in range(3)]
    assert [answer.status_code for answer in answers] == [202] * 5 + [429]
    assert answers[-1].json()["error"].startswith("the server is busy: 8 segmentations are waiting")
    assert answers[-1].headers["retry-after"] == "1"
    assert client.get(f"/api/jobs/{first}/document").status_code == 409
    assert client.delete(f"/api/jobs/{waiting[0]}").json()["state"] == "cancelled"
    client.delete(f"/api/jobs/{first}")
    assert finished(client, first)["state"] == "cancelled"
    slow["on"] = False
    assert finished(client, waiting[1])["state"] == "done"
    assert finished(client, waiting[2])["done"] == 50


def test_a_job_whose_client_has_left_is_cancelled(stepping, server):
    client, _ = stepping
    body = {"item": item_named(client, "picture")["id"], "center": [12, 30], "model": "blur", "steps": 50}
    id = client.post("/api/jobs", json=body).json()["id"]
    job = server[1].sessions.everyone()[0].jobs[id]
    while job.done == 0 and not job.over:
        time.sleep(0.005)
    job.asked -= 60
    end = time.monotonic() + 20
    while not job.over and time.monotonic() < end:
        time.sleep(0.01)
    assert job.state == "cancelled"
    assert 0 < job.done < 50


def test_results_and_sessions_do_not_pile_up(model, files):
    with serving(model, [files], results=2) as (client, service):
        item = item_named(client, "picture")["id"]
        ids = [segmented(client, item, [12, 30], samples=1, seed=seed) for seed in range(4)]
        assert [client.get(f"/api/jobs/{id}").status_code for id in ids] == [404, 200, 200, 200]  # 2 and the newest
        (own,) = upload(client, ("a.png", picture()))
        (session,) = service.sessions.everyone()
        assert len(list(session.folder.rglob("*.png"))) == 1
        session.seen -= 3601
        service.sessions.expire()
        assert not session.folder.exists()
        answer = client.get(f"/api/items/{own['id']}/document")
        assert (answer.status_code, answer.json()["error"].split(":")[0]) == (403, "session")
        assert not service.images._kept.keys() & {(own["id"], "shown"), (own["id"], "file None")}
    assert not service.folder.exists()


def test_a_session_cannot_see_what_is_anothers(server):
    client, _ = server
    (own,) = upload(client, ("a.png", picture()))
    id = segmented(client, own["id"], [12, 30])
    other = another(client)
    assert own["id"] not in [item["id"] for item in other.get("/api/state").json()["items"]]
    mask = base64.b64encode(gzip.compress(bytes(40 * 48))).decode()
    for answer in (
        other.get(f"/api/items/{own['id']}/document"),
        other.get(f"/api/jobs/{id}"),
        other.get(f"/api/jobs/{id}/document"),
        other.get(f"/api/jobs/{id}/files?kind=json"),
        other.delete(f"/api/jobs/{id}"),
        other.post("/api/jobs", json={"item": own["id"], "center": [12, 30]}),
        other.post(f"/api/items/{own['id']}/raters", json={"name": "x", "target": "y", "mask": mask}),
    ):
        assert answer.status_code == 404
