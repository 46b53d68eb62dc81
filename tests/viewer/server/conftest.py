"""Fixtures of a small server, with a model that marks what is bright around the click."""

import os
import subprocess
import sys

import numpy as np
import pytest
from view_server import picture, serving, volume

from berdiff.methods import folder
from berdiff_viewer import document
from berdiff_viewer.server import api
from fakes import Blur, make_spec

SIZE = 16


@pytest.fixture
def real_pages():
    """For a test of both together."""


@pytest.fixture(autouse=True)
def plain_pages(monkeypatch, request):
    """The page itself has tests of its own: here a document is what the server handed over."""
    if "real_pages" in request.fixturenames:
        return

    def of_result(result, chosen, image=True):
        shape = (result.grid.whole or result.grid).shape
        roi = result.region or tuple((0, side) for side in shape)
        masks = {"box": [list(ends) for ends in roi], "count": len(result.samples)}
        start = [(a + b) // 2 for a, b in roi]
        return {"name": result.name, "shape": list(shape), "start": start, "region": masks["box"], "masks": masks}

    def of_image(image, channels):
        return {"name": image.name, "shape": list(image.image.shape[1:]), "masks": None}

    policy = "default-src &#39;none&#39;; script-src &#39;sha256-x&#39;"
    page = f'<!doctype html><meta http-equiv="Content-Security-Policy" content="{policy}">'
    monkeypatch.setattr(api, "live_page", lambda token: f"{page}<p>{token}</p>")
    monkeypatch.setattr(document, "image_document", of_image)
    monkeypatch.setattr(document, "result_document", of_result)


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


@pytest.fixture
def server(model, files, tmp_path):
    with serving(model, [files], corrections=tmp_path / "corrections") as both:
        yield both


@pytest.fixture
def client(server):
    return server[0]


@pytest.fixture
def started(tmp_path):
    """Runs the command; returns (process, the lines it printed); stderr goes to the file `log`."""
    processes = []

    def start(*argv):
        (tmp_path / "tmp").mkdir(exist_ok=True)
        (tmp_path / "in.png").write_bytes(picture((80, 80), (40, 40)))
        command = [sys.executable, "-m", "berdiff.cli.main", "view", "lidc-readers", str(tmp_path / "in.png")]
        command += ["--port", "0", "--no-browser", *argv]
        environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "OMP_NUM_THREADS": "1"}
        with (tmp_path / "log").open("w") as log:  # a pipe that nobody reads would stop the server when it is full
            process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        processes.append(process)
        return process, [process.stdout.readline().strip() for _ in range(3)]

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()
