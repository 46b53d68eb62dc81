"""What must not get in, and what must not get out: each refused, each with a sentence and nothing else."""

import base64
import gzip
import io
import json
import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from bombs import deflated, png_header
from dicom_writer import write_slice
from fastapi.testclient import TestClient
from view_server import ADDRESS, another, item_named, picture, serving, upload, volume

from berdiff_viewer import document as pages
from berdiff_viewer.server.guard import HEADERS, Access
from berdiff_viewer.server.items import SavedResult, saved_results


def zipped(*members, attributes=0, **options):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            info = zipfile.ZipInfo(name)
            info.external_attr, info.compress_type = attributes, zipfile.ZIP_DEFLATED
            archive.writestr(info, data, **options)
    return content.getvalue()


def stored_files(service):
    return [path for path in service.folder.rglob("*") if path.is_file() and path.name != "lock"]


NAMES = ("../../evil.png", "/etc/evil.png", "a/../../evil.png", "..\\evil.png", "C:\\evil.png")


@pytest.mark.parametrize("name", NAMES)
def test_no_name_leads_out_of_the_upload(server, name):
    client, service = server
    sentence = "evil.png: the name leads out of the upload"
    assert upload(client, ("x.zip", zipped((name, picture()))), status=400) == sentence
    if name[1] == ":":  # of a Windows path the form itself keeps the name alone
        assert upload(client, (name, picture()))[0]["name"] == "evil"
        assert all(service.folder in path.parents for path in stored_files(service))
    else:
        assert upload(client, (name, picture()), status=400) == sentence
        assert not stored_files(service)


def test_links_devices_and_passwords_are_no_images(server):
    client, service = server
    link = zipped(("a.png", b"/etc/passwd"), attributes=0o120777 << 16)
    assert "a link or a device" in upload(client, ("x.zip", link), status=400)
    secret = bytearray(zipped(("a.png", picture())))
    for mark in (b"PK\x03\x04", b"PK\x01\x02"):
        secret[secret.index(mark) + (6 if mark[2] == 3 else 8)] |= 1
    assert "has a password" in upload(client, ("x.zip", bytes(secret)), status=400)
    assert "a whole zip archive" in upload(client, ("x.zip", b"PK nothing"), status=400)
    assert not stored_files(service)


def test_bombs_are_stopped_by_declared_and_by_real_size(model, files):
    with serving(model, [files], unpacked_bytes=10**6, upload_files=20) as (client, service):
        sentence = "upload: it is larger than 0 MiB when unpacked"
        bomb = zipped(("a.npy", bytes(3 * 10**6)))
        assert len(bomb) < 10**4
        assert upload(client, ("x.zip", bomb), status=400) == sentence
        lying = bytearray(bomb)  # declares 100 bytes
        for mark, at in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
            place = lying.index(mark) + at
            lying[place : place + 4] = struct.pack("<I", 100)
        assert "a damaged one" in upload(client, ("x.zip", bytes(lying)), status=400)
        assert upload(client, ("x.nii.gz", gzip.compress(bytes(3 * 10**6))), status=400) == sentence
        assert upload(client, ("y.zip", zipped(("x.nii.gz", gzip.compress(bytes(3 * 10**6))))), status=400) == sentence
        many = zipped(*((f"{i}.png", b"") for i in range(21)))
        assert upload(client, ("x.zip", many), status=400) == "upload: 21 files are more than 20"
        assert not stored_files(service)
    with serving(model, [files], upload_bytes=1000) as (client, _):
        answer = client.post("/api/items", files=[("files", ("a.npy", bytes(5000)))])
        assert (answer.status_code, list(answer.json())) == (413, ["error", "detail"])
    with serving(model, [files], stored_bytes=300) as (client, _):
        assert "the room that is left" in upload(client, ("a.npy", bytes(5000)), status=400)


def test_a_header_that_promises_too_much_is_refused_before_decoding(client, tmp_path, monkeypatch):
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", None)  # decoding would fail loudly
    monkeypatch.setattr("berdiff.data.dicom.read_pixels", None)

    def refused(path):
        return upload(client, (path.name, path.read_bytes()), status=400)

    assert "(--max-pixels)" in refused(png_header(tmp_path / "a.png", 2**30, 2**30))
    huge = bytearray(gzip.decompress(volume(np.eye(4))))
    for side, option in ((30000, "--max-pixels"), (800, "--max-gigabytes")):
        huge[40:56] = struct.pack("<8h", 3, side, side, side, 1, 1, 1, 1)
        assert option in upload(client, ("a.nii.gz", gzip.compress(bytes(huge))), status=400)
    assert "--max-pixels" in refused(
        write_slice(tmp_path / "a.dcm", np.zeros((4, 4), np.int16), Rows=60_000, Columns=60_000)
    )
    series = [write_slice(tmp_path / f"{z}.dcm", np.zeros((4, 4)), z, Rows=2**13, Columns=2**13) for z in range(9)]
    assert "--max-pixels" in upload(client, *((path.name, path.read_bytes()) for path in series), status=400)
    assert "more in a deflated file" in refused(deflated(tmp_path / "b.dcm", 64))
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (100000, 100000)}".ljust(117) + "\n"
    npy = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
    assert "a .npy file of numbers" in upload(client, ("a.npy", npy), status=400)
    pickled = io.BytesIO()
    np.save(pickled, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    assert "a .npy file of numbers" in upload(client, ("a.npy", pickled.getvalue()), status=400)


def test_an_upload_is_never_a_store_nor_a_format_that_was_not_asked_for(client):
    manifest = zipped(("manifest.json", b"{}"), ("cases.csv", b"case\n"), ("a.png", picture()))
    assert [item["name"] for item in upload(client, ("x.zip", manifest))] == ["a"]
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n(run me) print\n%%EOF\n"
    assert upload(client, ("a.png", eps), status=400).startswith("a.png: expected a picture")


def test_other_hosts_and_origins_are_refused(server):
    client, _ = server
    body = {"item": "s0", "center": [12, 30], "model": "blur"}
    for host in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "[", "localhost:port"):
        answer = client.get("/api/state", headers={"Host": host})
        assert (answer.status_code, answer.json()["error"].split(":")[0]) == (400, "Host")
        assert "set-cookie" not in answer.headers
    for origin in ("http://evil.example", "null", "http://127.0.0.1:9000", "https://localhost:8000", "http://["):
        answer = client.post("/api/jobs", json=body, headers={"Origin": origin})
        assert (answer.status_code, answer.json()["error"].split(":")[0]) == (403, "Origin")
        put = client.put("/session/", files=[("files", ("a.png", picture()))], headers={"Origin": origin})
        assert put.status_code == 403
    assert client.post("/api/jobs", json=body, headers={"Origin": ADDRESS}).status_code == 202
    for site in ("cross-site", "same-site"):
        assert client.get("/api/state", headers={"Sec-Fetch-Site": site}).status_code == 403
        assert client.get("/", headers={"Sec-Fetch-Site": site}).status_code == 200  # a link to the page
    answer = client.options(
        "/api/jobs", headers={"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    )
    assert not [name for name in answer.headers if name.startswith("access-control")]
    for name in ("localhost:8000", "127.0.0.1:1", "[::1]:8000"):
        assert client.get("/api/state", headers={"Host": name}).status_code == 200


def test_what_changes_something_needs_the_token_of_the_very_session(server):
    client, _ = server
    body, right = {"item": "s0", "center": [12, 30], "model": "blur"}, client.headers["X-Berdiff-Token"]
    foreign = another(client).headers["X-Berdiff-Token"]
    mask = base64.b64encode(gzip.compress(bytes(40 * 48))).decode()
    for token in ("", "wrong", foreign, right[:-1], b"\xfc"):
        headers = {"X-Berdiff-Token": token}
        for answer in (
            client.post("/api/jobs", json=body, headers=headers),
            client.post("/api/items", files=[("files", ("a.png", picture()))], headers=headers),
            client.delete("/api/jobs/x", headers=headers),
            client.post("/api/items/s0/raters", json={"name": "a", "target": "b", "mask": mask}, headers=headers),
        ):
            assert answer.status_code == 403
    bare = TestClient(client.app, base_url=ADDRESS)
    assert bare.post("/api/jobs", json=body).status_code == 403
    assert bare.post("/api/jobs", json=body, headers={"X-Berdiff-Token": right}).status_code == 202  # a program


def test_another_address_than_this_machines_needs_a_token_for_everything(model, files):
    token = "t" * 20
    access = Access("0.0.0.0", token)
    with serving(model, [files], access) as (client, _):
        paths = ("/", "/api/state", "/openapi.json", "/info/", "/datastore/", "/session/x", "/?token=wrong", "/nothing")
        for path in (*paths, f"/api/state?token={token}", "/token/wrong/info/", "/token//info/"):
            answer = client.get(path)
            assert (path, answer.status_code, list(answer.json())) == (path, 401, ["error", "detail"])
            assert "set-cookie" not in answer.headers
        for headers in ({"X-Berdiff-Token": token}, {"Authorization": f"Bearer {token}"}):
            assert client.get("/info/", headers=headers).status_code == 200
        assert client.get(f"/token/{token}/info/").json()["name"] == "berdiff"
        assert client.get("/info/").status_code == 401
        first = client.get(f"/?token={token}", follow_redirects=False)
        assert (first.status_code, first.headers["location"]) == (303, "/")  # the token leaves the address bar
        assert client.get("/").status_code == 200  # by the cookie
        assert client.get("/api/state").status_code == 200
        assert client.get("/api/state", headers={"Host": "evil.example"}).status_code == 400
        assert client.get("/api/state", headers={"Host": "192.168.7.9:8000"}).status_code == 200
    assert Access("127.0.0.1").token is None


def test_headers_of_every_answer(client):
    for path in ("/", "/api/state", "/nothing", "/openapi.json"):
        answer = client.get(path)
        for name, value in HEADERS.items():
            if (name, path) != ("Content-Security-Policy", "/"):
                assert answer.headers[name] == value
        assert "server" not in answer.headers
    cookie = TestClient(client.app, base_url=ADDRESS).get("/api/state").headers["set-cookie"]
    assert cookie.endswith("; Path=/; HttpOnly; SameSite=Lax")


def test_a_script_in_a_name_stays_text(server):
    client, service = server
    name = "<script>alert(1)</script>\x1b[31m.png"
    (item,) = upload(client, (name, picture()))
    assert item["name"] == "<script>alert(1)</script>_[31m"
    (item,) = upload(client, ("<img src=x onerror=alert(1)>.png", picture()))
    answer = client.get("/api/state")
    assert answer.headers["content-type"] == "application/json"
    assert item["name"] in [one["name"] for one in answer.json()["items"]]
    assert "onerror=alert" not in client.get("/").text
    assert "\x1b" not in answer.text
    assert service.folder in stored_files(service)[0].parents


def test_an_unexpected_failure_tells_the_client_nothing(server, monkeypatch, caplog):
    client, service = server
    quiet = TestClient(client.app, base_url=ADDRESS, raise_server_exceptions=False, cookies=client.cookies)

    def fail(*given):
        raise RuntimeError("secret of patient X in /etc")

    monkeypatch.setattr(pages, "image_document", fail)
    answer = quiet.get("/api/items/s0/document")
    assert (answer.status_code, answer.json()["error"]) == (500, "the server met a problem that its log has")
    monkeypatch.setattr(service.models.first, "load", fail)
    id = client.post("/api/jobs", json={"item": "s0", "center": [12, 30], "model": "blur"}).json()["id"]
    while (job := client.get(f"/api/jobs/{id}").json())["state"] in ("queued", "running"):
        pass
    assert job["error"] == "the segmentation failed for a reason that the server's log has"
    assert "internal error RuntimeError" in caplog.text
    assert "secret" not in caplog.text


def test_the_log_has_no_names(server, caplog):
    client, _ = server
    caplog.set_level("INFO", "berdiff.view")
    (item,) = upload(client, ("Smith John.png", picture()))
    client.get(f"/api/items/{item['id']}/document")
    client.get("/datastore/image?image=Smith")
    client.get("/patients/Smith")
    lines = [record.getMessage() for record in caplog.records if record.name == "berdiff.view"]
    assert len(lines) >= 4
    assert "Smith" not in caplog.text.replace("HTTP Request", "") or not [line for line in lines if "Smith" in line]
    assert any(line.startswith("GET /api/items/{id}/document 200") for line in lines)
    assert any(line.startswith("GET (no such page) 404") for line in lines)


def test_a_rater_s_mask_is_not_unpacked_beyond_its_image(client):
    item = item_named(client, "picture")["id"]
    for content, sentence in [
        (gzip.compress(bytes(10**7)), "mask: it must have 40x48 bytes"),
        (gzip.compress(bytes(10)), "mask: it must have 40x48 bytes"),
        (b"no gzip", "mask: "),
        (gzip.compress(b"\x02" * 1920), "mask: only"),
    ]:
        body = {"name": "anna", "target": "nodule", "mask": base64.b64encode(content).decode()}
        answer = client.post(f"/api/items/{item}/raters", json=body)
        assert answer.status_code == 400
        assert answer.json()["error"].startswith(sentence)
    for name in ("..", "/", "///", " "):
        body = {"name": name, "target": "nodule", "mask": base64.b64encode(gzip.compress(bytes(1920))).decode()}
        assert client.post(f"/api/items/{item}/raters", json=body).status_code == 400


def result_of(folder: Path, source: dict[str, str]) -> SavedResult:
    """As it is read of a folder whose result says that it was made of this."""
    facts = {"targets": ["nodule"], "kind": "independent", "region": None, "settings": {}, "notes": []}
    (folder / "a").mkdir()
    (folder / "settings.json").write_text("{}")
    (folder / "a" / "done.json").write_text(json.dumps({"name": "a", "sources": [source]}))
    (folder / "a" / "result.json").write_text(json.dumps(facts))
    (one,) = saved_results(folder)
    return one


@pytest.mark.parametrize("address", ["s3://bucket/store", "http://127.0.0.1:9/store", "https://x/y"])
def test_an_address_in_done_json_is_not_opened(tmp_path, monkeypatch, address):
    monkeypatch.setattr("berdiff.remote.filesystem", lambda *_: pytest.fail("it was opened"))
    monkeypatch.setattr("berdiff.inference.copies.filesystem", lambda *_: pytest.fail("it was opened"))
    assert "addresses out of files are not opened" in result_of(tmp_path, {"path": address, "case": "a"}).source.error


@pytest.mark.parametrize(
    ("path", "found"), [("x" * 5000, "too long"), ("gone.png", "no such file"), ("fifo", "a FIFO")]
)
def test_a_path_in_done_json_that_is_no_file_is_a_sentence(tmp_path, monkeypatch, path, found):
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.chdir(tmp_path)
    error = result_of(tmp_path, {"path": path}).source.error
    assert "a: expected the image that it was made of, found" in error
    assert found in error
