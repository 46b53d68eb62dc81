"""What a segmentation survives: errors nobody foresaw in one input, results that were damaged, a corrected command."""

import json
import os
from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest
from PIL import Image
from test_segmentation import segment, tree

from berdiff.cli.main import main
from berdiff.files import lock
from berdiff.inference.inputs import find_inputs
from berdiff.inference.model import Model
from berdiff.inference.settings import SegmentSettings
from berdiff.jobs.findings import Centers
from berdiff.jobs.run import SegmentationJob
from berdiff.jobs.store import LOCK, ResultStore
from berdiff.methods.folder import save
from berdiff.output import exports
from berdiff.output.formats import OutputSettings
from fakes import Blur, bright_model, make_spec


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BERDIFF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    (tmp_path / "in").mkdir()
    for i in range(4):
        Image.fromarray(rng.integers(0, 256, (16, 16), dtype=np.uint8)).save(tmp_path / "in" / f"p{i}.png")
    return tmp_path / "in"


def fails_at(name: str, error: Exception, real):
    def call(*args, **kwargs):
        if any(name in str(getattr(arg, "name", arg)) for arg in args):
            raise error
        return real(*args, **kwargs)

    return call


@pytest.mark.parametrize(
    "error", [IndexError("odd"), MemoryError("Unable to allocate 9 GiB"), RuntimeError("odd shape")]
)
@pytest.mark.parametrize("where", ["open", "write"])
def test_an_error_nobody_foresaw_in_one_input_is_reported_and_the_others_go_on(
    pictures, tmp_path, monkeypatch, cache, error, where
):
    said: list[str] = []
    if where == "open":
        monkeypatch.setattr(Model, "open", fails_at("p1", error, Model.open))
    else:
        monkeypatch.setattr(exports, "write", fails_at("p1", error, exports.write))
    outcome = segment(pictures, tmp_path / "out", callbacks=(lambda done, total: None, said.append))
    assert outcome.done == ["p0", "p2", "p3"]
    assert list(outcome.failed) == ["p1"]
    assert said == [outcome.failed["p1"]]
    assert "p1.png: " in said[0]
    if not isinstance(error, MemoryError):
        (log,) = (cache / "logs").iterdir()
        assert str(log) in said[0]
        assert "Traceback" in log.read_text()
    monkeypatch.undo()
    assert segment(pictures, tmp_path / "out").done == ["p1"], "the same command does what is left"


def damage(folder: Path, how: str) -> None:
    file = folder / "saliency.png"
    if how == "gone":
        file.unlink()
    elif how == "short":
        file.write_bytes(file.read_bytes()[:-1])
    elif how == "empty":  # as a power cut leaves files that were never written to the disk
        file.write_bytes(b"")
    else:
        done = folder / "done.json"
        done.write_text(done.read_text()[:50])


@pytest.mark.parametrize("how", ["gone", "short", "empty", "done"])
def test_a_damaged_result_is_noticed_and_made_again(pictures, tmp_path, how):
    segment(pictures, tmp_path / "out")
    before = tree(tmp_path / "out")
    sizes = json.loads(before["p2/done.json"])["files"]
    assert sizes == {name: len(before[f"p2/{name}"]) for name in sizes}
    damage(tmp_path / "out" / "p2", how)
    again = segment(pictures, tmp_path / "out")
    assert (again.done, again.skipped) == (["p2"], ["p0", "p1", "p3"])
    assert tree(tmp_path / "out") == before


def test_a_damaged_finding_is_made_again_and_the_files_of_its_case_are(pictures, tmp_path):
    (tmp_path / "centers.csv").write_text("case,z,y,x,finding\np0,,9,9,one\np0,,3,4,two\np1,,5,5,\n")

    def run() -> tuple[list[str], list[str]]:
        findings = Centers(tmp_path / "centers.csv", mm=False)
        output = OutputSettings(tmp_path / "out", ("saliency", "json"))
        job = SegmentationJob(bright_model(), SegmentSettings(samples=2), output, findings=findings)
        outcome = job.segment(find_inputs([pictures / "p0.png", pictures / "p1.png"]))
        return outcome.done, outcome.skipped

    assert run()[0] == ["p0/one", "p0/two", "p1/finding-1"]
    before = tree(tmp_path / "out")
    damage(tmp_path / "out" / "p0" / "two", "short")
    assert run() == (["p0/two"], ["p0/one", "p1/finding-1"])
    assert tree(tmp_path / "out") == before
    (tmp_path / "out" / "p0" / "findings.csv").write_text("")
    assert run() == ([], ["p0/one", "p0/two", "p1/finding-1"])
    assert tree(tmp_path / "out") == before


def test_an_input_that_went_away_fails_alone(pictures, tmp_path, monkeypatch):
    found = find_inputs([pictures])
    os.remove(pictures / "p1.png")
    settings, output = SegmentSettings(samples=2, batch_size=4), OutputSettings(tmp_path / "out", ("mask",))
    outcome = SegmentationJob(bright_model(), settings, output).segment(found)
    assert outcome.done == ["p0", "p2", "p3"]
    assert "p1.png: the file is gone" in outcome.failed["p1"]


def test_a_command_that_was_corrected_as_our_message_advises_goes_on(pictures, tmp_path, capsys):
    """--pad, after other inputs were segmented without it, and where nothing was."""
    save(Blur().build(make_spec()), tmp_path / "blur")
    Image.new("L", (8, 8)).save(pictures / "small.png")
    for inputs, others in ((pictures, 4), (pictures / "small.png", 0)):
        out = tmp_path / f"out-{others}"
        command = ["segment", str(tmp_path / "blur"), str(inputs), "--out", str(out), "--samples", "2"]
        assert main(command) == 2
        assert "--pad" in capsys.readouterr().err
        assert main([*command, "--seed", "1", "--pad"]) == (2 if others else 0), "another seed is another segmentation"
        capsys.readouterr()
        if others:
            assert main([*command, "--pad"]) == 0
            shown = capsys.readouterr().out
            assert f"1 segmented, {others} found done, 0 failed" in shown


@pytest.mark.parametrize("odd", ["$x_1^$ [red]", 3, None])
def test_a_result_whose_facts_are_odd_is_not_in_the_table(pictures, tmp_path, odd):
    segment(pictures, tmp_path / "out")
    file = tmp_path / "out" / "p0" / "done.json"
    content = json.loads(file.read_text())
    content["measurements"]["nodule"]["area"]["unit"] = odd
    file.write_text(json.dumps(content))
    segment([pictures / f"p{i}.png" for i in (1, 2, 3)], tmp_path / "out")  # the table is of all that is there
    lines = (tmp_path / "out" / "cohort.csv").read_text().splitlines()[1:]
    assert sorted(line.split(",")[1] for line in lines) == ["p1", "p2", "p3"]


def test_an_input_at_which_two_processes_died_is_left_and_those_beside_it_are_not(pictures, tmp_path):
    """p1 was in both batches, p2 in one; a third process is alive, so the claims of the dead are still there."""
    out = tmp_path / "out"
    out.mkdir()
    with lock(out / LOCK, shared=True) as held:  # type: ignore[union-attr]
        store = ResultStore(out, {}, "segmentation")
        for name, attempts in (("p1", 2), ("p2", 1)):
            store._claim(out, name).write_text("." * attempts)
        outcome = segment(pictures, out)
        assert outcome.done == ["p0", "p2", "p3"]
        assert outcome.failed["p1"].endswith("p1.png: 2 workers died at it (out of memory?)")
        again = segment(pictures, out)  # the others hear of it, and do not die at it too
        assert (again.skipped, list(again.failed)) == (["p0", "p2", "p3"], ["p1"])
        assert not held.closed
    assert segment(pictures, out).done == ["p1"], "a new command tries again"


def test_what_is_found_done_has_its_warnings_again(tmp_path):
    """A result that was forced once is worth no more in the next run; the table of a case warns as that of all."""
    labels = np.zeros((16, 16, 3), np.int16)
    labels[5:9, 5:9, 1] = 1
    nibabel.save(nibabel.Nifti1Image(labels, np.eye(4)), tmp_path / "in.nii.gz")
    (tmp_path / "c.csv").write_text("case,z,y,x\nin,1,8,8\n")
    model = bright_model(replace(make_spec(rule="window", window=(-1000.0, 400.0)), modality="ct"))

    def run(out: str, force: bool, findings=None):
        settings = SegmentSettings(samples=2, force=force)
        output = OutputSettings(tmp_path / out, ("json",))
        return SegmentationJob(model, settings, output, findings=findings).segment(
            find_inputs([tmp_path / "in.nii.gz"])
        )

    first = run("out", True)
    assert "few different values" in first.warnings["in"][0]
    again = run("out", False)
    assert again.skipped == ["in"]
    assert again.warnings == first.warnings
    centers = Centers(tmp_path / "c.csv", mm=False)
    found = run("found", True, centers)
    assert run("found", False, centers).warnings == found.warnings
    facts = json.loads((tmp_path / "found/in/findings.json").read_text())
    assert facts["findings"][0]["warnings"] == found.warnings["in/finding-1"]
    assert "WARNING: " in (tmp_path / "found/in/findings.csv").read_text()
