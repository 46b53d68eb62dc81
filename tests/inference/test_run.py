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
from bright import make_model
from dicom_writer import write_slice
from PIL import Image

from berdiff.errors import InputError
from berdiff.inference import exports
from berdiff.inference.draw import Settings
from berdiff.inference.inputs import find
from berdiff.inference.record import Record
from berdiff.inference.run import Output, Run, Summary

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


def segment(inputs, out: Path, batch_size: int = 4, reverse: bool = False, kinds=KINDS, **changes) -> Summary:
    found = find(inputs if isinstance(inputs, list) else [inputs])
    settings = Settings(**{"samples": 3, "batch_size": batch_size, **changes})
    return Run(make_model(), settings, Output(out, kinds)).segment(found[::-1] if reverse else found)


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_batch_size_and_order_change_nothing(pictures, tmp_path):
    whole = segment(pictures, tmp_path / "a", batch_size=4)
    assert whole.done == ["p0", "p1", "p2", "p3", "p4", "p5", "p6"]
    segment(pictures, tmp_path / "b", batch_size=1)
    segment(pictures, tmp_path / "c", batch_size=3, reverse=True)
    first = tree(tmp_path / "a")
    assert len(first) == 1 + 7 * (3 + 4)  # settings, and for each: three samples, saliency, mask, json, done
    assert tree(tmp_path / "b") == first
    assert tree(tmp_path / "c") == first
    segment(pictures, tmp_path / "d", seed=1)
    assert tree(tmp_path / "d")["p0/samples/sample-1.png"] != first["p0/samples/sample-1.png"]


def test_what_is_done_is_skipped_and_new_inputs_are_added(pictures, tmp_path, monkeypatch):
    segment([pictures / "p0.png", pictures / "p1.png"], tmp_path / "out")
    written = []
    monkeypatch.setattr(exports, "write", lambda result, *rest, real=exports.write: (
        written.append(result.name), real(result, *rest))[1])  # fmt: skip
    again = segment(pictures, tmp_path / "out")
    assert again.skipped == ["p0", "p1"]
    assert again.done == written == ["p2", "p3", "p4", "p5", "p6"]
    monkeypatch.undo()
    segment(pictures, tmp_path / "once")
    assert tree(tmp_path / "out") == tree(tmp_path / "once")


KILLED = """
import sys, time
from pathlib import Path
sys.path[:0] = [{here!r}]
from test_run import segment
from berdiff.inference import exports
def slow(result, folder, *rest, real=exports.write):
    files = real(result, folder, *rest)
    time.sleep(0.2)  # so that the kill comes while files are there and their folder is not yet in place
    return files
exports.write = slow
segment(Path({inputs!r}), Path({out!r}), batch_size=2)
"""


def test_killed_in_the_middle_and_run_again_is_the_same_as_one_run(pictures, tmp_path):
    out = tmp_path / "out"
    script = KILLED.format(here=str(Path(__file__).parent), inputs=str(pictures), out=str(out))
    path = [*filter(None, [os.environ.get("PYTHONPATH")]), str(Path(__file__).parents[1] / "data")]
    process = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": os.pathsep.join(path)})
    deadline = time.monotonic() + 120
    while len(list(out.glob("p*/done.json"))) < 3 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert 3 <= len(list(out.glob("p*/done.json"))) < 7
    assert list(out.glob(".*.part")), "the kill was to leave something unfinished"
    rest = segment(pictures, out)
    assert len(rest.skipped) >= 3
    segment(pictures, tmp_path / "once")
    assert tree(out) == tree(tmp_path / "once")


def test_other_settings_in_the_same_folder_are_refused_with_the_difference(pictures, tmp_path):
    segment([pictures / "p0.png"], tmp_path / "out")
    with pytest.raises(
        InputError, match=r"out: expected the settings it was begun with, found others \(seed: there 0, now 5\)"
    ):
        segment([pictures / "p0.png"], tmp_path / "out", seed=5)
    with pytest.raises(InputError, match=r"write: there \['samples', 'saliency', 'mask', 'json'\], now \['mask'\]"):
        segment([pictures / "p0.png"], tmp_path / "out", kinds=("mask",))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").touch()
    with pytest.raises(InputError, match="full: expected a new folder or one of this segmentation, found other files"):
        segment([pictures / "p0.png"], tmp_path / "full")


def test_another_file_of_the_same_name_is_not_taken_for_done(pictures, tmp_path):
    segment([pictures / "p0.png"], tmp_path / "out")
    Image.fromarray(np.zeros((16, 16), np.uint8)).save(pictures / "p0.png")
    summary = segment([pictures / "p0.png"], tmp_path / "out")
    assert "p0: expected the results of" in summary.failed["p0"]
    assert "found those of another file or of an older one" in summary.failed["p0"]


def test_bad_files_fail_alone_and_are_counted(pictures, tmp_path):
    (pictures / "letter.png").write_text("Dear sir")
    Image.fromarray(np.zeros((16, 16, 3), np.uint8) + np.arange(3, dtype=np.uint8)).save(pictures / "colour.png")
    Image.fromarray(np.zeros((9, 16), np.uint8)).save(pictures / "small.png")
    write_slice(pictures / "series" / "0.dcm", np.zeros((16, 16), np.int16))
    (pictures / "series" / "1.dcm").write_bytes(b"broken" * 100)
    (pictures / "v.nii.gz").write_bytes(b"broken" * 100)
    said: list[str] = []
    found = find([pictures, tmp_path / "nothing.png"])
    run = Run(make_model(), Settings(samples=3, batch_size=4), Output(tmp_path / "out", KINDS), say=said.append)
    summary = run.segment(found)
    assert summary.done == [f"p{i}" for i in range(7)]
    assert set(summary.failed) == {"letter", "colour", "small", "series", "v", "nothing.png"}
    assert said == list(summary.failed.values())
    for name, part in {
        "letter": "letter.png: expected a picture",
        "colour": "colour.png: expected 1 channel(s), found 3",
        "small": "small.png: expected at least 16x16 pixels, the size of the network, found 9x16",
        "series": "1.dcm: expected a DICOM file",
        "v": "v.nii.gz: expected a NIfTI file",
        "nothing.png": "nothing.png: expected an image",
    }.items():
        assert part in summary.failed[name]
        assert "\n" not in summary.failed[name]
        assert not (tmp_path / "out" / name).exists()
    segment([pictures / f"p{i}.png" for i in range(7)], tmp_path / "good")
    good = tree(tmp_path / "good")
    assert {name: data for name, data in tree(tmp_path / "out").items() if name in good} == good


def test_what_cannot_be_written_for_one_input_fails_it_alone(pictures, tmp_path):
    """DICOM SEG refers to DICOM images: a picture has none. Those beside it in the batch are written."""
    write_slice(tmp_path / "s" / "0.dcm", np.zeros((16, 16), np.int16), 0)
    write_slice(tmp_path / "s" / "1.dcm", np.zeros((16, 16), np.int16), 1)
    model = make_model(window=[-1024, 400])
    found = find([pictures / "p0.png", pictures / "p1.png"])
    summary = Run(model, Settings(samples=2), Output(tmp_path / "out", ("dicom-seg",))).segment(found)
    assert not summary.done
    assert all("expected a DICOM input for dicom-seg" in sentence for sentence in summary.failed.values())
    assert len(summary.failed) == 2


def test_unwritable_folders_are_told(pictures, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"file/out: expected a folder that can be written, found Not a directory"):
        segment(pictures, tmp_path / "file" / "out")

    def full(*rest):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(exports, "write", full)
    with pytest.raises(InputError, match=r"out: expected a folder that can be written, found No space left on device"):
        segment(pictures, tmp_path / "out")
    monkeypatch.undo()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["settings.json"]  # nothing half written
    assert len(segment(pictures, tmp_path / "out").done) == 7


def test_what_is_written_by_default(tmp_path, pictures):
    nibabel.save(
        nibabel.Nifti1Image(np.random.default_rng(0).random((16, 18, 3)), np.diag([1, 1, 2, 1])), pictures / "v.nii.gz"
    )
    summary = segment([pictures / "v.nii.gz", pictures / "p0.png"], tmp_path / "out", kinds=None)
    assert set(summary.done) == {"v", "p0"}
    assert (tmp_path / "out/v/samples.nii.gz").is_file()
    assert (tmp_path / "out/p0/samples/sample-1.png").is_file()
    done = json.loads((tmp_path / "out/p0/done.json").read_text())
    assert sorted(done["files"]) == sorted(name.removeprefix("p0/") for name in tree(tmp_path / "out")
                                           if name.startswith("p0/") and not name.endswith("done.json"))  # fmt: skip


def test_progress_counts_slices(tmp_path, pictures):
    nibabel.save(nibabel.Nifti1Image(np.random.default_rng(0).random((16, 18, 3)), np.eye(4)), pictures / "v.nii.gz")
    (pictures / "bad.png").write_text("no")
    told: list[tuple[int, int | None]] = []
    settings = Settings(samples=2, batch_size=3)
    Run(make_model(), settings, Output(tmp_path / "out", ("json",)), progress=lambda *of: told.append(of)).segment(
        find([pictures])
    )
    assert told[-1] == (11, 11)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert {total for _, total in told} == {11}


def test_a_settings_file_that_is_none(tmp_path):
    (tmp_path / "settings.json").write_text("[]")
    with pytest.raises(InputError, match=r"settings\.json: expected the settings of a segmentation, found something"):
        Record(tmp_path, {})
