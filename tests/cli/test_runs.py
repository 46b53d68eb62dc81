"""`berdiff runs` and `berdiff plot`."""

import json
from pathlib import Path

import pytest
from PIL import Image

from berdiff.cli.main import main


def make_run(folder: Path, seed: int = 0, ended: bool = True) -> Path:
    """A run folder of two log lines and two validations."""
    folder.mkdir(parents=True)
    config = {"recipe": "demo", "seed": seed, "model": {"method": "berdiff"}, "loop": {}}
    (folder / "config.json").write_text(json.dumps(config))
    rows = []
    for step in (10, 20):
        row = {"step": step, "minutes": step / 10, "skipped": 1}
        rows.append({"kind": "train", **row, "loss": (seed + 1) / step})
        rows.append({"kind": "validation", **row, "ged": 0.5 + step / 40, "hm_iou": 0.3 + seed / 10})
    if ended:
        rows.append({"kind": "end", **row, "reason": "finished: 20 steps"})
    (folder / "stats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_runs_lists(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    make_run(tmp_path / "runs/a")
    make_run(tmp_path / "runs/b", seed=1, ended=False)
    assert main(["runs", str(tmp_path / "runs"), "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["run"], first["step"], first["state"]) == ("a", 20, "finished: 20 steps")
    assert (first["loss"], first["ged"], first["best_ged"], first["best_step"]) == (0.05, 1.0, 0.75, 10)
    assert (second["run"], second["method"], second["state"]) == ("b", "berdiff", "running or killed")
    assert main(["runs", str(tmp_path / "runs/b"), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 1
    assert main(["runs", str(tmp_path / "runs")]) == 0
    assert "finished: 20 steps" in capsys.readouterr().out
    assert main(["runs", str(tmp_path)]) == 0
    assert "no runs in" in capsys.readouterr().out
    assert main(["runs", str(tmp_path / "none")]) == 2


def test_a_torn_last_line_is_left_out_but_a_wrong_one_is_not(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    run = make_run(tmp_path / "run")
    lines = (run / "stats.jsonl").read_text().splitlines(keepends=True)
    (run / "stats.jsonl").write_text("".join(lines[:3]) + lines[3][:20])
    assert main(["runs", str(run), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["state"] == "running or killed"
    (run / "stats.jsonl").write_text(lines[0] + "{\n" + lines[1])
    assert main(["runs", str(run)]) == 2
    assert "stats.jsonl, line 2: expected a line of statistics in JSON" in capsys.readouterr().err
    (run / "config.json").write_text("[]")
    assert main(["runs", str(run)]) == 2
    assert "config.json: expected an object" in capsys.readouterr().err


def test_plot_shows_the_curves_of_several_runs(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    runs = [str(make_run(tmp_path / name, seed)) for seed, name in enumerate(("a", "b"))]
    one, two = tmp_path / "one.png", tmp_path / "two.png"
    assert main(["plot", runs[0], "--out", str(one)]) == 0
    assert main(["plot", *runs, "--out", str(two)]) == 0
    assert Image.open(one).size == Image.open(two).size
    assert Image.open(one).tobytes() != Image.open(two).tobytes()
    capsys.readouterr()
    assert main(["plot", *runs, "--out", str(two), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"figure": str(two), "csv": None, "runs": runs}
    assert main(["plot", str(tmp_path), "--out", str(one), "--csv", str(tmp_path / "curves.csv")]) == 0
    assert Image.open(one).tobytes() == Image.open(two).tobytes()
    assert (tmp_path / "curves.csv").read_text().splitlines()[:2] == [
        "run,method,seed,samples,step,ged,hm_iou",
        "a,berdiff,0,,10,0.75,0.3",
    ]
    assert main(["plot", str(tmp_path / "none"), "--out", str(one)]) == 2
    assert main(["plot", runs[0], "--out", str(tmp_path / "curves.txt")]) == 2
