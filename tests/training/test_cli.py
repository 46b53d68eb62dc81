"""The commands as a user gives them, with the real network at its smallest."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from berdiff.cli.main import main
from berdiff.methods import folder as model_folder
from berdiff.training import session
from berdiff.training.session import train
from berdiff.training.stop import RunStopped

from .standin import make_standin, small_config

TINY = ["--loop.batch-size", "4", "--data.crop", "None", "--loop.log-every", "1", "--validation.samples", "2"]
TINY += ["--validation.cases", "2", "--validation.every", "2", "--sampler.steps", "2"]
TINY += ["--engine.accelerator", "cpu", "--engine.devices", "1"]


@pytest.fixture(scope="module")
def runs(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of the stand-in."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        train(replace(small_config(store), seed=seed), folder / f"seed-{seed}", make_standin)
    return folder


def test_train_resume_and_load(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    run = tmp_path / "run"
    command = ["train", "demo", "--data", str(store), "--out", str(run), *TINY]
    assert main([*command, "--dry-run", "--max-steps", "7"]) == 0
    shown = capsys.readouterr().out
    estimate = json.loads(shown[shown.rindex("\n{") :])
    assert estimate["parameters"] > 100_000
    assert estimate["seconds_per_step"] > 0
    assert '"max_steps": 7' in shown
    assert not run.exists()
    assert main([*command, "--max-steps", "2"]) == 0
    assert main([*command, "--max-steps", "4"]) == 0
    assert "resuming after step 2" in capsys.readouterr().out
    assert json.loads((run / "config.json").read_text())["recipe"] == "demo"
    segmenter = model_folder.load(run / "model")
    samples = segmenter.sample(torch.rand(1, 1, 16, 16), 2, torch.Generator().manual_seed(0))
    assert samples.shape == (1, 2, 1, 16, 16)
    assert main([*command, "--optim.lr", "3"]) == 2
    assert "--optim.lr: 0.002 -> 3.0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["no-such-recipe"], "RECIPE: expected one of lidc-paper, "),
        (["demo", "--out", "x", "--data", "nowhere"], "nowhere: expected a prepared store"),
        (["demo", "--out", "x", "--max-steps", "0"], "--loop.max-steps: expected at least 1, found 0"),
        (["demo", "--out", "x", "--data", "STORE", "--data.crop", "17"], "crop: expected 1 to 16, found 17"),
        (
            ["demo", "--out", "x", "--data", "STORE", "--data.crop", "10"],
            "--data.crop: expected height and width in mult",
        ),
        (
            ["demo", "--out", "x", "--data", "STORE", *TINY, "--model.preset", "huge"],
            "--model: preset: expected one of",
        ),
        (
            ["demo", "--out", "x", "--data", "STORE", "--engine.strategy", "magic"],
            "--engine: expected settings that fit",
        ),
        (["demo", "--out", "x", "--engine.accelerator", "gpu"], "--engine: expected settings that fit"),
    ],
)
def test_bad_input_is_one_sentence(store: Path, options, words: str, capsys, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", *(str(store) if option == "STORE" else option for option in options)]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not (tmp_path / "x").exists()


def test_runs_lists(runs: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["runs", str(runs), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["run"] for row in rows] == ["seed-0", "seed-1"]
    assert [row["step"] for row in rows] == [24, 24]
    assert rows[0]["state"] == "finished: 24 steps"
    assert 0 < rows[0]["best_ged"] <= rows[0]["ged"]
    assert main(["runs", str(runs / "seed-1"), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 1
    assert main(["runs", str(runs)]) == 0
    assert "seed-1" in capsys.readouterr().out
    assert main(["runs", str(runs / "none")]) == 2


def test_runs_reads_past_a_torn_line_but_not_past_a_wrong_one(runs: Path, tmp_path: Path, capsys) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_bytes((runs / "seed-0/config.json").read_bytes())
    lines = (runs / "seed-0/stats.jsonl").read_text().splitlines(keepends=True)
    (run / "stats.jsonl").write_text("".join(lines[:3]) + lines[3][:20])
    assert main(["runs", str(tmp_path), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["state"] == "running or killed"
    (run / "stats.jsonl").write_text(lines[0] + "{\n" + lines[1])
    assert main(["runs", str(tmp_path)]) == 2
    assert "stats.jsonl: expected JSON in line 2" in capsys.readouterr().err


def test_plot_draws_the_curves_of_several_runs(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    from PIL import Image

    one, two = tmp_path / "one.png", tmp_path / "two.png"
    assert main(["plot", str(runs / "seed-0"), "--out", str(one)]) == 0
    assert main(["plot", str(runs / "seed-0"), str(runs / "seed-1"), "--out", str(two)]) == 0
    assert Image.open(one).size == Image.open(two).size
    assert Image.open(one).tobytes() != Image.open(two).tobytes()
    capsys.readouterr()
    assert main(["plot", str(runs), "--out", str(one)]) == 2
    assert "expected a run folder of `berdiff train`" in capsys.readouterr().err
    assert main(["plot", str(runs / "seed-0"), "--out", str(tmp_path / "curves.txt")]) == 2


@pytest.mark.parametrize(("reason", "code"), [("stopped by SIGINT", 130), ("stopped by SIGTERM", 143)])
def test_an_interrupted_run_does_not_look_like_a_finished_one(monkeypatch, reason: str, code: int) -> None:
    monkeypatch.setattr(session, "train", lambda config, run: reason)
    with pytest.raises(SystemExit) as left:
        main(["train", "demo", "--out", "x"])
    assert left.value.code == code


def test_a_run_that_cannot_go_on_ends_with_one_sentence(monkeypatch, capsys: pytest.CaptureFixture) -> None:
    def stop(config, run):
        raise RunStopped("no room on the disk")

    monkeypatch.setattr(session, "train", stop)
    with pytest.raises(SystemExit) as left:
        main(["train", "demo", "--out", "x"])
    assert left.value.code == 1
    assert capsys.readouterr().err == "berdiff train: no room on the disk\n"
