"""Many workers: the same bytes as one process, each input once, and a worker that dies takes nothing with it."""

import os
import signal
import sys
import time
from dataclasses import dataclass, replace
from multiprocessing import active_children
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from light_workers import LightWork
from PIL import Image
from test_segmentation import tree

from berdiff.cli.main import main
from berdiff.device import share_devices
from berdiff.errors import InputError
from berdiff.inference.inputs import find_inputs
from berdiff.inference.model import load
from berdiff.inference.settings import SegmentSettings
from berdiff.jobs import workers
from berdiff.jobs.run import Outcome, SegmentationJob
from berdiff.jobs.store import ResultStore
from berdiff.jobs.workers import Processes, Work, segment
from berdiff.methods import folder
from berdiff.methods.berdiff import BerDiff
from berdiff.output.formats import OutputSettings
from fakes import make_spec

COUNT = 5
FAST = ["--samples", "16", "--steps", "1", "--write", "samples", "json"]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    torch.manual_seed(0)
    segmenter = BerDiff(preset="tiny", T=20, prediction="mask").build(make_spec((32, 32)))
    path = tmp_path_factory.mktemp("models") / "model"
    folder.save(segmenter, path)
    return path


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("in")
    for i in range(COUNT):
        Image.fromarray(rng.integers(0, 256, (32, 32), dtype=np.uint8)).save(path / f"p{i}.png")
    return path


@dataclass(frozen=True)
class Dying(Work):
    """Its workers kill themselves at the input p1: always, or only where no other has before."""

    once: Path | None = None

    def open(self, number: int) -> SegmentationJob:
        job = super().open(number)
        real = job.model.open

        def fatal(item, settings):
            if item.name == "p1" and (self.once is None or not self.once.exists()):
                if self.once is not None:
                    self.once.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return real(item, settings)

        object.__setattr__(job.model, "open", fatal)
        return job


def run(model: Path, pictures: Path, out, engine, kind=Work, sentences=None, **more) -> Outcome:
    settings = SegmentSettings(samples=16, sampler=replace(SegmentSettings().sampler, steps=1), batch_size=3)
    output = OutputSettings(out, ("samples", "json"))
    work = kind({"path_or_name": str(model), "device": "cpu"}, settings, output, **more)
    report = [].append if sentences is None else sentences.append
    job = SegmentationJob(load(model, "cpu"), settings, output, report=report)
    return segment(job, work, find_inputs([pictures]), engine, 2)


@pytest.fixture(params=["local", "ray"])
def engine(request, monkeypatch) -> str:
    if request.param == "ray":
        pytest.importorskip("ray")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))  # so that workers find this module
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return request.param


@pytest.mark.parametrize(
    ("fate", "error", "sentence"),
    [
        ("refused", InputError, r"^--device: expected one, found none$"),
        ("broken", RuntimeError, "a mistake of ours"),
        ("stillborn", InputError, r"^--workers: every worker died"),
    ],
)
def test_what_ends_the_command_ends_every_worker(pictures, tmp_path, fate, error, sentence):
    command = SimpleNamespace(store=ResultStore(tmp_path, {}, "x"), settled=lambda item: False)
    work = LightWork(fate, workers=2)
    with pytest.raises(error, match=sentence):
        workers._run(command, work, find_inputs([pictures]), Processes(work))  # type: ignore[arg-type]
    assert not active_children()


@pytest.mark.slow
def test_the_same_bytes_as_one_process(engine, model, pictures, tmp_path, capsys):
    command = ["segment", str(model), str(pictures), *FAST, "--device", "cpu", "--out"]
    assert main([*command, str(tmp_path / "one")]) == 0
    assert main([*command, str(tmp_path / "two"), "--engine", engine, "--workers", "2"]) == 0
    assert f"{COUNT} segmented, 0 found done, 0 failed" in capsys.readouterr().out
    assert len(tree(tmp_path / "one")) == 3 + COUNT * 19
    assert tree(tmp_path / "two") == tree(tmp_path / "one")
    assert run(model, pictures, tmp_path / "one", engine).skipped == [f"p{i}" for i in range(COUNT)]


@pytest.mark.slow
def test_what_a_dead_worker_was_at_is_tried_once_more(engine, model, pictures, tmp_path):
    outcome = run(model, pictures, tmp_path / "out", engine, kind=Dying, once=tmp_path / "once")
    assert (tmp_path / "once").exists()
    assert outcome.done == [f"p{i}" for i in range(COUNT)]
    assert not outcome.failed
    assert len(tree(tmp_path / "out")) == 3 + COUNT * 19


@pytest.mark.slow
@pytest.mark.parametrize("where", ["folder", "object store"])
def test_an_input_that_kills_every_worker_is_reported_and_the_rest_goes_on(where, model, pictures, tmp_path, bucket):
    started, sentences = time.monotonic(), []
    out = tmp_path / "out" if where == "folder" else f"{bucket}/out"
    outcome = run(model, pictures, out, "local", kind=Dying, sentences=sentences)
    assert time.monotonic() - started < 300
    assert outcome.done == ["p0", "p2", "p3", "p4"]
    assert sentences == list(outcome.failed.values())
    assert sentences[0].endswith("p1.png: 2 workers died at it (out of memory?)")
    assert not list((tmp_path / "out").glob("p1*"))


@pytest.mark.slow
def test_one_bad_file_fails_alone_and_other_settings_are_refused(model, pictures, tmp_path, capsys):
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"no picture")
    command = ["segment", str(model), str(pictures), str(bad), *FAST, "--device", "cpu", "--workers", "2"]
    command += ["--out", str(tmp_path / "out")]
    assert main([*command]) == 2
    printed = capsys.readouterr()
    assert f"{COUNT} segmented, 0 found done, 1 failed" in printed.out
    assert "bad.png: expected " in printed.err
    assert main([*command, "--seed", "1"]) == 2
    assert "(seed: there 0, now 1)" in capsys.readouterr().err
    assert main([*command[:-2], "--out", str(tmp_path / "out"), "--workers", "0"]) == 2
    assert "--workers: expected at least 1, found 0" in capsys.readouterr().err


def test_gpus_are_shared_out(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [share_devices("auto", number) for number in range(3)] == ["cuda:0", "cuda:1", "cuda:0"]
    assert share_devices("cuda:1", 0) == "cuda:1"
    assert share_devices("cpu", 3) == "cpu"


def test_ray_that_is_not_installed_is_named(model, pictures, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    command = ["segment", str(model), str(pictures), *FAST, "--engine", "ray", "--out", str(tmp_path / "out")]
    assert main(command) == 2
    assert "pip install 'berdiff[ray]'" in capsys.readouterr().err
