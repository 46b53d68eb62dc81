"""A server in the test's own process, with a model that marks what is bright around the click."""

import io
import time
from contextlib import contextmanager
from dataclasses import replace

import nibabel
import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from berdiff.methods import folder
from berdiff.viewer.server import pages
from berdiff.viewer.server.app import create_app
from berdiff.viewer.server.corrections import Corrections
from berdiff.viewer.server.guard import Access
from berdiff.viewer.server.items import shared_items
from berdiff.viewer.server.limits import Limits
from berdiff.viewer.server.models import Models
from berdiff.viewer.server.service import Service
from fakes import Blur, make_spec

SIZE = 16
POINT = np.array([20, 33, 7])  # i, j, k of the bright voxels' middle in `write_volume`


@pytest.fixture(autouse=True)
def plain_pages(monkeypatch):
    """The page itself has tests of its own: here a document is what the server handed over."""

    def of_result(result, chosen, image=False):
        shape, roi = result.pool.shape[2:], result.roi or tuple((0, side) for side in result.pool.shape[2:])
        masks = {"box": [list(ends) for ends in roi], "count": len(result.samples)}
        start = [(a + b) // 2 for a, b in roi]
        return {"name": result.name, "shape": list(shape), "start": start, "region": masks["box"], "masks": masks}

    def of_image(image, channels, raters):
        return {"name": image.name, "shape": list(image.image.shape[1:]), "masks": None}

    page = '<meta http-equiv="Content-Security-Policy" content="default-src &#39;none&#39;; script-src &#39;sha256-x&#39;">'
    monkeypatch.setattr(pages, "live_page", lambda token: f"<!doctype html>{page}<p>{token}</p>")
    monkeypatch.setattr(pages, "image_document", of_image)
    monkeypatch.setattr(pages, "result_document", of_result)


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A folder with the method `blur`: a pixel is marked where the image is brighter than about 0.4."""
    path = tmp_path_factory.mktemp("models") / "blur"
    folder.save(Blur(spread=0.1).build(make_spec((SIZE, SIZE))), path)
    return path


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """A picture and a volume that all sessions share."""
    root = tmp_path_factory.mktemp("shared")
    (root / "picture.png").write_bytes(picture())
    (root / "scan.nii.gz").write_bytes(volume(np.diag([2.0, 2, 3, 1])))
    return root


def picture(size=(40, 48), at=(12, 30)) -> bytes:
    pixels = np.zeros(size, np.uint8)
    pixels[at[0] - 2 : at[0] + 3, at[1] - 2 : at[1] + 3] = 255
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    return content.getvalue()


def volume(affine, shape=(40, 50, 12), point=POINT) -> bytes:
    """A .nii.gz, bright in 3x3x1 voxels around `point` (i, j, k)."""
    values = np.zeros(shape, np.float32)
    i, j, k = point
    values[i - 1 : i + 2, j - 1 : j + 2, k] = 1
    import gzip

    return gzip.compress(nibabel.Nifti1Image(values, affine).to_bytes())


@contextmanager
def serving(model, paths=(), access=None, corrections=None, **limits):
    """(client, service); the client has a session's cookie, and its token in every request."""
    models = Models(str(model), device="cpu")
    shared = shared_items([str(path) for path in paths], models.first.spec.channels) if paths else []
    kept = Corrections(corrections) if corrections else None
    service = Service(models, {item.id: item for item in shared}, replace(Limits(), **limits), kept)
    access = access or Access()
    with TestClient(create_app(service, access), base_url="http://127.0.0.1:8000") as client:
        if access.token is None:
            client.headers["X-Berdiff-Token"] = client.get("/api/state").json()["token"]
        yield client, service


@pytest.fixture
def server(model, files, tmp_path):
    with serving(model, [files], corrections=tmp_path / "corrections") as both:
        yield both


@pytest.fixture
def client(server):
    return server[0]


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
