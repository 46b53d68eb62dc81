"""`berdiff figure`: each writes its picture whole, and bad input is one sentence."""

import csv
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from berdiff.cli import repository
from berdiff.cli.main import main
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.folder import save
from berdiff.methods.unet import UNet
from fakes import make_spec, make_store
from reproduce import cost, side_by_side


@pytest.fixture
def models(tmp_path):
    for name, config in (("tiny", BerDiff("fast-tiny", T=100)), ("unet", UNet("fast-tiny"))):
        save(config.build(make_spec()), tmp_path / name)
    return [str(tmp_path / "tiny"), str(tmp_path / "unet")]


def written(argv, capsys) -> list[str]:
    """What --json prints: nothing else, and files that are there."""
    capsys.readouterr()
    assert main(["figure", *argv, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["figure"] == found["files"][0]
    assert all(Path(file).is_file() for file in found["files"])
    return found["files"]


def test_cost_writes_a_figure_and_a_table(models, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(side_by_side, "gc", SimpleNamespace(collect=lambda: 0))
    monkeypatch.setattr(cost, "PAPER", "tiny")  # the 85.6 M network costs seconds
    out = tmp_path / "out"
    options = ["--model", models[0], "--samples", "1", "2", "--steps", "3", "--repeats", "1", "--out", str(out)]
    assert main(["figure", "cost", *options]) == 0
    assert "16 masks in 10 steps: " in capsys.readouterr().out
    assert sorted(p.name for p in out.iterdir()) == ["cost.csv", "cost.png"]
    assert (out / "cost.png").read_bytes()[:4] == b"\x89PNG"
    with (out / "cost.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = [(row["model"], row["samples"], row["steps"]) for row in rows]
    assert found == [("tiny", "1", "10"), ("tiny", "2", "10"), ("tiny", "16", "3"), ("tiny", "16", "10")]
    for passes in ("paper_passes", "unet_passes"):
        ratio = {float(row["seconds"]) / float(row[passes]) for row in rows}
        assert max(ratio) == pytest.approx(min(ratio), rel=2e-3)  # all over the same pass
    assert main(["figure", "cost", *options, "--no-paper-pass"]) == 0
    text = capsys.readouterr().out
    assert [Path(file).name for file in written(["cost", *options, "--no-paper-pass"], capsys)] == [
        "cost.png",
        "cost.csv",
    ]
    assert "passes of the plain U-net" in text
    assert "the paper's network" not in text


@pytest.mark.parametrize("figure", ["examples-lidc", "examples-brats"])
def test_examples_of_several_models(models, tmp_path, figure, capsys):
    data, out = str(make_store(tmp_path, train=2, val=0)), tmp_path / "examples.png"
    options = ["--data", data, "--samples", "3", "--cases", "1", "--device", "cpu"]
    assert written([figure, *models, *options, "--out", str(out)], capsys) == [str(out)]
    assert out.read_bytes().startswith(b"\x89PNG")


def test_process_of_a_trained_model(models, tmp_path, capsys):
    data, out = str(make_store(tmp_path, train=2, val=0)), tmp_path / "process.png"
    options = ["--data", data, "--chains", "2", "--steps", "3", "--noise", "shared", "--device", "cpu"]
    assert written(["process", "--model", models[0], *options, "--out", str(out)], capsys) == [str(out)]
    assert out.read_bytes().startswith(b"\x89PNG")


def test_frontier_of_two_evaluations(models, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(side_by_side, "gc", SimpleNamespace(collect=lambda: 0))
    data, folders = str(make_store(tmp_path, train=2, val=0)), []
    for model in models:
        folders.append(str(tmp_path / "evaluations" / Path(model).name))
        options = ["--data", data, "--samples", "2", "--device", "cpu", "--out", folders[-1]]
        assert main(["evaluate", model, *options]) == 0
    out = tmp_path / "frontier"
    options = ["--metric", "ged_2", "--repeats", "1", "--device", "cpu", "--out", str(out)]
    assert main(["figure", "frontier", *folders, "--models", *models, *options]) == 0
    text = capsys.readouterr().out
    assert "tiny: GED 2 " in text
    assert "measured side by side" in text
    assert sorted(path.name for path in out.iterdir()) == ["frontier.csv", "frontier.png"]
    assert main(["figure", "frontier", folders[0], "--data", data, *options]) == 2
    assert "expected how the model was trained" in capsys.readouterr().err
    files = written(["frontier", *folders, "--metric", "ged_2", "--out", str(out)], capsys)
    assert [Path(file).name for file in files] == ["frontier.png", "frontier.csv"]


def test_bad_options_are_one_sentence(models, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        "reproduce.cli.figure.open_data", lambda address: pytest.fail("no data is needed to refuse these")
    )
    out = str(tmp_path / "out")
    measure = ["cost", "--model", models[0], "--out", out, "--device", "cpu"]
    for options, message in (
        (["toy", "--seeds", "0"], "berdiff figure: --seeds: expected at least 1, found 0"),
        ([*measure, "--samples", "0", "4"], r"--samples: expected whole numbers of at least 1, found [0, 4]"),
        ([*measure, "--repeats", "0"], "--repeats: expected whole numbers of at least 1, found [0]"),
        ([*measure, "--steps", "500"], "--steps: expected 1 <= steps <= T = 100, found 500"),
        ([*measure, "--size", "24", "12"], "--size: expected height and width in multiples of 8, found 24 12"),
        ([*measure, "--size", "24", "24"], "--size: expected multiples of 16 for the paper's network, or --no-paper"),
        (["cost", "--model", "nowhere"], "nowhere: expected the folder of a run or of a model"),
        (["cost", "--model", models[1], "--out", out], "expected no sampler options for the method unet"),
        (["examples-lidc", *models, "--out", "examples.jpg"], "--out: expected a name ending in .png"),
        (["process", "--out", "process.svg"], "--out: expected a name ending in .png, found process.svg"),
        (["process", "--model", models[1]], "--model: expected a Bernoulli diffusion, found unet, a unet"),
        (["frontier", "x", "--models", models[0], "--data", "d.zarr"], "--data: expected none beside --models, whose"),
        (["frontier", str(tmp_path), "--out", out], "expected a finished evaluation with metrics.json, found none"),
    ):
        assert main(["figure", *options]) == 2
        assert message in capsys.readouterr().err.splitlines()[-1]
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", [["figure", "toy"], ["table", "--help"]])
def test_an_installed_wheel_says_that_it_needs_the_repository(command, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(repository, "ROOT", tmp_path)
    assert main(command) == 2
    words = "only the repository of berdiff has this command: clone it and run `pip install -e .` there"
    assert capsys.readouterr().err == f"berdiff {command[0]}: {words}\n"
