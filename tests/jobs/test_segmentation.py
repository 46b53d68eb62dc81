"""Many inputs into a folder: the same whatever the batch, the order or the kills; one bad file fails alone."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nibabel
import numpy as np
import pytest
from dicom_writer import write_slice
from made_results import write_series
from PIL import Image

from berdiff.inference.inputs import find_inputs
from berdiff.inference.settings import SegmentSettings
from berdiff.jobs.run import Outcome, SegmentationJob
from berdiff.output import exports
from berdiff.output.formats import OutputSettings
from fakes import bright_model, make_spec
from refusals import refused

KINDS = ("samples", "saliency", "mask", "json")


@pytest.fixture
def pictures(tmp_path) -> Path:
    """Seven pictures of three sizes, one of them twice the network's."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "in"
    folder.mkdir()
    for i, size in enumerate([(16, 16), (16, 16), (20, 16), (16, 16), (32, 33), (20, 16), (16, 16)]):
        Image.fromarray(rng.integers(0, 256, size, dtype=np.uint8)).save(folder / f"p{i}.png")
    return folder


def segment(inputs, out: Path, reverse: bool = False, kinds=KINDS, model=None, callbacks=(), **changes) -> Outcome:
    found = find_inputs(inputs if isinstance(inputs, list) else [inputs])
    settings = SegmentSettings(**{"samples": 3, "batch_size": 4, **changes})
    job = SegmentationJob(model or bright_model(), settings, OutputSettings(out, kinds), *callbacks)
    return job.segment(found[::-1] if reverse else found)


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_batch_size_and_order_change_nothing_and_what_is_done_is_skipped(pictures, tmp_path, monkeypatch):
    assert segment(pictures, tmp_path / "a").done == [f"p{i}" for i in range(7)]
    first = tree(tmp_path / "a")
    # settings, the two of the cohort, and for each: three samples, saliency, mask, json, thumbnail, done
    assert len(first) == 3 + 7 * (3 + 5)
    segment(pictures, tmp_path / "b", batch_size=1)
    segment(pictures, tmp_path / "c", batch_size=3, reverse=True)
    segment([pictures / "p0.png", pictures / "p1.png"], tmp_path / "d")
    written = []
    monkeypatch.setattr(exports, "write", lambda result, *rest, real=exports.write: (
        written.append(result.name), real(result, *rest))[1])  # fmt: skip
    again = segment(pictures, tmp_path / "d")
    assert again.skipped == ["p0", "p1"]
    assert again.done == written == ["p2", "p3", "p4", "p5", "p6"]
    for name in "bcd":
        assert tree(tmp_path / name) == first
    segment(pictures, tmp_path / "e", seed=1)
    assert tree(tmp_path / "e")["p0/samples/sample-1.png"] != first["p0/samples/sample-1.png"]


SLOW = """
import sys, time
from pathlib import Path
sys.path[:0] = [{here!r}]
from test_segmentation import segment
from berdiff.output import exports
def slow(result, folder, *rest, real=exports.write):
    files = real(result, folder, *rest)
    time.sleep({pause})  # so that files are there and their folder is not yet in place
    return files
exports.write = slow
print(segment(Path({inputs!r}), Path({out!r}), batch_size=2).failed)
"""


def start(pictures: Path, out: Path, pause: float) -> "subprocess.Popen[str]":
    tests = Path(__file__).parents[1]
    script = SLOW.format(here=str(tests / "jobs"), inputs=str(pictures), out=str(out), pause=pause)
    path = [*filter(None, [os.environ.get("PYTHONPATH")]), str(tests), str(tests / "data"), str(tests / "output")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    return subprocess.Popen([sys.executable, "-c", script], env=env, stdout=subprocess.PIPE, text=True)


def wait_for(out: Path, count: int, process: "subprocess.Popen[str]") -> None:
    """Until so many inputs are done and the next is being written."""
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if len(list(out.glob("p*/done.json"))) >= count and list(out.glob(".*.part/result.json")):
            return
        time.sleep(0.01)


def test_killed_and_run_again_or_run_by_two_at_once_is_the_same_as_one_run(pictures, tmp_path):
    segment(pictures, tmp_path / "once")
    out, both = tmp_path / "out", tmp_path / "both"
    process, other = start(pictures, out, 0.3), start(pictures, both, 0.3)
    wait_for(out, 2, process)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert 2 <= len(list(out.glob("p*/done.json"))) < 7
    assert list(out.glob(".*.part")), "the kill was to leave something unfinished"
    assert len(segment(pictures, out).skipped) >= 2
    assert tree(out) == tree(tmp_path / "once")
    wait_for(both, 1, other)
    segment(pictures, both, reverse=True)  # while the other is at work: neither removes what the other writes
    assert other.communicate(timeout=120)[0] == "{}\n"
    assert tree(both) == tree(tmp_path / "once")


def test_other_settings_or_another_file_of_the_same_name_are_refused(pictures, tmp_path):
    out = tmp_path / "out"
    segment([pictures / "p0.png"], out)
    with refused(out, "(seed: there 0, now 5)", code="changed"):
        segment([pictures / "p0.png"], out, seed=5)
    with refused(out, "write: there ['samples', 'saliency', 'mask', 'json'], now ['mask']", code="changed"):
        segment([pictures / "p0.png"], out, kinds=("mask",))
    Image.fromarray(np.zeros((16, 16), np.uint8)).save(pictures / "p0.png")
    (out / "p1").mkdir()
    (out / "p1" / "thesis.txt").write_text("years of work")
    failed = segment([pictures / "p0.png", pictures / "p1.png"], out).failed
    assert all(f"{out}/{name}: the files there are not of" in failed[name] for name in ("p0", "p1"))
    assert (out / "p1" / "thesis.txt").exists()


def test_a_set_is_the_same_however_it_is_batched_and_a_pool_that_is_not_used_binds_nobody(pictures, tmp_path):
    chosen = {"set": "representative", "pool": 6}
    segment(pictures, tmp_path / "a", **chosen)
    segment([pictures / "p0.png"], tmp_path / "b", batch_size=1, **chosen)
    segment(pictures, tmp_path / "b", batch_size=3, reverse=True, **chosen)
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
    segment(pictures, tmp_path / "c")
    assert segment(pictures, tmp_path / "c", pool=5).skipped == [f"p{i}" for i in range(7)]
    for changes, difference in [({**chosen, "pool": 7}, "pool: there 6"), ({}, "set: there 'representative'")]:
        with refused(difference, code="changed"):
            segment(pictures, tmp_path / "a", **changes)


def test_bad_files_fail_alone_and_are_counted(pictures, tmp_path):
    (pictures / "letter.png").write_text("Dear sir")
    Image.fromarray(np.zeros((16, 16, 3), np.uint8) + np.arange(3, dtype=np.uint8)).save(pictures / "colour.png")
    Image.fromarray(np.zeros((9, 16), np.uint8)).save(pictures / "small.png")
    write_slice(pictures / "series" / "0.dcm", np.zeros((16, 16), np.int16))
    (pictures / "series" / "1.dcm").write_bytes(b"broken" * 100)
    (pictures / "v.nii.gz").write_bytes(b"broken" * 100)
    nibabel.save(nibabel.Nifti1Image(np.random.default_rng(0).random((16, 18, 3)), np.eye(4)), pictures / "w.nii.gz")
    reported: list[str] = []
    steps: list[tuple[int, int | None]] = []
    callbacks = (lambda *step: steps.append(step)), reported.append
    outcome = segment([pictures, tmp_path / "nothing.png"], tmp_path / "out", callbacks=callbacks)
    assert sorted(outcome.done) == [*(f"p{i}" for i in range(7)), "w"]
    assert reported == list(outcome.failed.values())
    expected = {name: f"{name}.png: " for name in ("letter", "colour", "small")}
    expected |= {"series": "1.dcm: ", "v": "v.nii.gz: ", "nothing.png": "nothing.png: "}
    assert set(outcome.failed) == set(expected)
    for name, part in expected.items():
        assert part in outcome.failed[name]
        assert "\n" not in outcome.failed[name]
        assert not (tmp_path / "out" / name).exists()
    # progress counts slices: seven pictures, six bad files, three slices
    assert steps[-1] == (16, 16)
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert {total for _, total in steps} == {16}
    segment([pictures / f"p{i}.png" for i in range(7)], tmp_path / "good")
    good = {name: data for name, data in tree(tmp_path / "good").items() if not name.startswith("cohort")}
    assert {name: data for name, data in tree(tmp_path / "out").items() if name in good} == good


def test_what_cannot_be_written_for_one_input_fails_it_alone(pictures, tmp_path):
    """DICOM SEG refers to DICOM images: a picture has none. What is beside it in the batch is written."""
    model = bright_model(make_spec(rule="window", window=(-1024.0, 400.0)))
    (path,) = write_series(tmp_path / "s", np.zeros((1, 16, 16), int))
    outcome = segment([pictures / "p0.png", path], tmp_path / "out", kinds=("dicom-seg",), model=model)
    assert "expected a DICOM input for dicom-seg" in outcome.failed["p0"]
    assert outcome.done == ["000"]


def test_unwritable_folders_are_reported(pictures, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with refused("file/out", "Not a directory", code="access"):
        segment(pictures, tmp_path / "file" / "out")

    def full(*rest):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(exports, "write", full)
    with refused("out", "No space left on device", code="access"):
        segment(pictures, tmp_path / "out")
    monkeypatch.undo()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["settings.json"]  # nothing half written
    assert len(segment(pictures, tmp_path / "out", seed=3).done) == 7  # and no result to hold its settings


def test_what_is_written_by_default(tmp_path, pictures):
    volume = nibabel.Nifti1Image(np.random.default_rng(0).random((16, 18, 3)), np.diag([1, 1, 2, 1]))
    nibabel.save(volume, pictures / "v.nii.gz")
    outcome = segment([pictures / "v.nii.gz", pictures / "p0.png"], tmp_path / "out", kinds=None)
    assert set(outcome.done) == {"v", "p0"}
    assert (tmp_path / "out/v/samples.nii.gz").is_file()
    assert (tmp_path / "out/p0/samples/sample-1.png").is_file()
    files = [name.removeprefix("p0/") for name in tree(tmp_path / "out") if name.startswith("p0/")]
    done = json.loads((tmp_path / "out/p0/done.json").read_text())
    assert sorted([*done["files"], "done.json"]) == sorted(files)
