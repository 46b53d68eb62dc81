"""A server in the test's own process, and what a client does with it."""

import gzip
import io
import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import nibabel
import numpy as np
import uvicorn
from fastapi.testclient import TestClient
from PIL import Image

from berdiff_viewer.server.common import Limits
from berdiff_viewer.server.corrections import Corrections
from berdiff_viewer.server.guard import Access
from berdiff_viewer.server.items import shared_items
from berdiff_viewer.server.models import Models
from berdiff_viewer.server.run import create_app
from berdiff_viewer.server.service import Service

ADDRESS = "http://127.0.0.1:8000"
POINT = np.array([20, 33, 7])  # i, j, k of the bright voxels' middle in `volume`


def picture(size=(40, 48), at=(12, 30)) -> bytes:
    pixels = (np.indices(size).sum(0) % 16).astype(np.uint8)  # few values would be a label map's
    pixels[at[0] - 2 : at[0] + 3, at[1] - 2 : at[1] + 3] = 255
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    return content.getvalue()


def volume(affine, shape=(40, 50, 12), point=POINT) -> bytes:
    """A .nii.gz, bright in 3x3x1 voxels around `point` (i, j, k)."""
    values = np.zeros(shape, np.float32)
    i, j, k = point
    values[i - 1 : i + 2, j - 1 : j + 2, k] = 1
    return gzip.compress(nibabel.Nifti1Image(values, affine).to_bytes())


@contextmanager
def serving(model, paths=(), access=None, corrections=None, **limits):
    """(client, service); the client has a session's cookie, and its token in every request."""
    models = Models(str(model), device="cpu")
    shared = shared_items([str(path) for path in paths], models.first.spec.channels) if paths else []
    kept = Corrections(corrections) if corrections else None
    service = Service(models, {item.id: item for item in shared}, replace(Limits(), **limits), kept)
    access = access or Access()
    with TestClient(create_app(service, access), base_url=ADDRESS) as client:
        if access.token is None:
            client.headers["X-Berdiff-Token"] = client.get("/api/state").json()["token"]
        yield client, service


def item_named(client, name):
    return next(item for item in client.get("/api/state").json()["items"] if item["name"] == name)


def finished(client, id, seconds=20.0):
    """The job once it is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        job = client.get(f"/api/jobs/{id}").json()
        if job["state"] in ("done", "failed", "cancelled"):
            return job
        time.sleep(0.005)
    raise AssertionError(f"{job} after {seconds} s")


def segmented(client, item, center, **options):
    answer = client.post("/api/jobs", json={"item": item, "center": center, "model": "blur", **options})
    assert answer.status_code == 202, answer.text
    id = answer.json()["id"]
    assert finished(client, id) == {"id": id, "state": "done", "place": None, "done": 0, "total": 1, "error": ""}
    return id


def another(client):
    """A second browser at the same server."""
    other = TestClient(client.app, base_url=ADDRESS)
    other.headers["X-Berdiff-Token"] = other.get("/api/state").json()["token"]
    return other


def upload(client, *files, status=200):
    answer = client.post("/api/items", files=[("files", file) for file in files])
    assert answer.status_code == status, answer.text
    return answer.json()["items"] if status == 200 else answer.json()["error"]


@contextmanager
def listening(app):
    """The URL of an application on a port of its own."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False, lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=10)


def ended(process, tmp_path, number=signal.SIGTERM):
    """By a signal: nothing is left behind, and the log has neither failures nor names."""
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    err = (tmp_path / "log").read_text()
    assert (process.returncode, out, err.splitlines()[-1]) == (0, "", "stopped"), err
    assert not list((tmp_path / "tmp").iterdir())
    assert "POST /api/jobs 202" in err
    assert not [word for word in ("Traceback", "internal error", "a.png", tmp_path.name) if word in err]


def upload_and_click(client):
    client.headers["X-Berdiff-Token"] = client.get("/api/state").json()["token"]
    (item,) = client.post("/api/items", files=[("files", ("a.png", picture((80, 80), (40, 40))))]).json()["items"]
    body = {"item": item["id"], "center": [40, 40], "samples": 4, "force": True}  # a model of CT
    id = client.post("/api/jobs", json=body).json()["id"]
    assert finished(client, id, 60)["state"] == "done"
    return id
