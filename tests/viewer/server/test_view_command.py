"""`berdiff view` itself: what it opens, what it refuses, and that it leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys

import httpx
import numpy as np
import pytest
from view_server import ended, picture, serving, upload_and_click

import berdiff
from berdiff.cli import view
from berdiff.cli.main import main
from berdiff.files import lock
from berdiff.inference.inputs import find_inputs
from berdiff.inference.region import Region
from berdiff.inference.settings import SegmentSettings
from berdiff.jobs.run import SegmentationJob
from berdiff.output.formats import OutputSettings
from berdiff_viewer.server.guard import Access
from berdiff_viewer.server.items import shared_items
from berdiff_viewer.server.models import Models, is_model
from berdiff_viewer.server.run import listen, printed_address
from berdiff_viewer.server.service import PREFIX, remove_leftovers
from fakes import make_store
from refusals import refused


def test_without_the_extra_it_is_one_sentence(capsys, monkeypatch):
    monkeypatch.setattr(view, "NEEDED", ("a_package_of_nobody",))
    assert main(["view"]) == 2
    sentence = capsys.readouterr().err
    assert sentence.startswith("berdiff view: a_package_of_nobody: ")
    assert sentence.count("\n") == 1
    assert "berdiff[viewer]" in sentence


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--port", "70000"], "--port: expected at most 65535, found 70000"),
        (["--queue", "0"], "--queue: expected"),
        (["--token", "short"], "--token: expected at least 16 letters, digits, - or _, found another one"),
        (["nothing-there"], "nothing-there: expected the folder of a run or of a model, or one of lidc"),
        (["lidc", "nothing-there.png"], "nothing-there.png: expected an image, a folder, a glob or a store"),
    ],
)
def test_bad_options_are_one_sentence(argv, sentence, capsys):
    assert main(["view", *argv]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"berdiff view: {sentence}")


def test_help_imports_neither_torch_nor_fastapi():
    code = "import sys; from berdiff.cli.main import main\ntry: main(['view', '--help'])\nexcept SystemExit: pass\n"
    code += "sys.exit(any(name in sys.modules for name in ('torch', 'fastapi', 'uvicorn')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--corrections" in done.stdout


def test_items_of_stores_folders_and_results(model, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.png").write_bytes(picture())
    (tmp_path / "in" / "broken.nii").write_bytes(b"junk")
    np.save(tmp_path / "in" / "stack.npy", np.zeros((4, 20, 24), np.float32))
    opened = berdiff.load(model, "cpu")
    settings = SegmentSettings(samples=3, region=Region((12, 30)))
    inputs = find_inputs([tmp_path / "in" / "a.png"])
    SegmentationJob(opened, settings, OutputSettings(tmp_path / "out")).segment(inputs)
    box = SegmentSettings(samples=2, region=Region((10, 10)))
    job = SegmentationJob(opened, box, OutputSettings(tmp_path / "volume"))
    job.segment(find_inputs([tmp_path / "in" / "stack.npy"]))
    store = make_store(tmp_path)
    paths = [tmp_path / "out", tmp_path / "volume", tmp_path / "in", store]
    with serving(model, paths) as (client, service):
        items = client.get("/api/state").json()["items"]
        found = [(item["group"], item["name"], item["kind"], item["shape"], bool(item["error"])) for item in items]
        assert found == [
            ("out", "a", "result", [40, 48], False),
            ("volume", "stack", "result", [4, 20, 24], False),
            ("in", "a", "image", [40, 48], False),
            ("in", "broken", "image", [], True),
            ("in", "stack", "volume", [4, 20, 24], False),
            ("store.zarr", "test/0", "image", [16, 16], False),
            ("store.zarr", "test/1", "image", [16, 16], False),
        ]
        assert str(tmp_path) not in client.get("/api/state").text
        known = [service.shared[item["id"]].disagreement for item in items]
        assert known == [0, 0, None, None, None, None, None]  # of the saved samples, which are all the same
        document = client.get(f"/api/items/{items[0]['id']}/document").json()
        assert (document["region"], document["samples"]["count"]) == ([[4, 20], [22, 38]], 3)
        saved = service.shared[items[0]["id"]].saved
        read = saved.result(service.images.shown(service.shared[items[0]["id"]]))
        expected = opened.segment(tmp_path / "in" / "a.png", 3, center=(12, 30))
        np.testing.assert_array_equal(read.pool, expected.pool)
        document = client.get(f"/api/items/{items[1]['id']}/document").json()
        assert (document["shape"], document["samples"]["count"]) == ([4, 20, 24], 2)
        broken = client.get(f"/api/items/{items[3]['id']}/document")
        assert (broken.status_code, broken.json()["error"].split(":")[0]) == (400, "broken.nii")
        assert client.post("/api/jobs", json={"item": items[3]["id"]}).status_code == 400
    assert len(shared_items([str(store)], ("ct",), "all", limit=3)) == 3


def test_the_same_model_twice_is_one_and_a_path_is_none(model, files):
    assert [entry.name for entry in Models("lidc", ["lidc-readers", "lidc"])][:2] == ["lidc", "lidc-readers"]
    assert is_model(str(model))
    assert is_model("lidc")
    assert not is_model(str(files))


def test_folders_of_killed_servers_are_removed_and_those_of_others_stay(tmp_path):
    dead, young, alive = (tmp_path / f"{PREFIX}{name}" for name in ("dead", "young", "alive"))
    for path in (dead, young, alive):
        path.mkdir()
        (path / "scan.png").write_bytes(b"")
    for path in (dead, alive):
        os.utime(path, (1, 1))
    held = lock(alive / "lock")
    os.utime(alive, (1, 1))
    remove_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [alive.name, young.name]
    assert held is not None
    held.close()


@pytest.mark.slow
def test_a_real_server_from_its_start_to_its_end(started, tmp_path):
    process, lines = started()
    url = lines[0].removeprefix("viewer: ")
    assert lines[1] == f"3D Slicer (MONAI Label server): {url.rstrip('/')}"
    with httpx.Client(base_url=url, timeout=60) as client:
        id = upload_and_click(client)
        assert client.get(f"/api/jobs/{id}/files?kind=json").status_code == 200
        assert client.get("/info/").json()["models"]["lidc-readers"]["type"] == "deepgrow"
        assert len(list((tmp_path / "tmp").rglob("a.png"))) == 1
        ended(process, tmp_path, signal.SIGINT)


@pytest.mark.slow
def test_another_address_prints_a_token_once(started, tmp_path):
    process, lines = started("--host", "0.0.0.0")
    url, token = lines[0].removeprefix("viewer: ").split("/?token=")
    assert len(token) == 32
    assert lines[1].endswith(f"/token/{token}")
    port = url.rpartition(":")[2]
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        assert client.get("/api/state").status_code == 401
        assert client.get(f"/token/{token}/info/").status_code == 200
    process.terminate()
    process.communicate(timeout=30)
    assert token not in (tmp_path / "log").read_text()


def test_the_addresses_as_json(capsys):
    url = printed_address(Access("127.0.0.1", "a-token"), 8000, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found == {"viewer": url, "monai_label": "http://127.0.0.1:8000/token/a-token"}


def test_a_port_that_is_taken_is_one_sentence():
    with listen("127.0.0.1", 0) as sock, refused("--host, --port", code="access"):
        listen("127.0.0.1", sock.getsockname()[1])
