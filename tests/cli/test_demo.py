"""`berdiff demo` from the command line."""

import json
from pathlib import Path

import pytest

from berdiff.cli.main import main
from berdiff.methods import folder
from fakes import Blur, MemoryStore, make_spec


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    monkeypatch.setattr("berdiff.data.held_out.open_held_out", MemoryStore)
    folder.save(Blur().build(make_spec(targets=("disc",))), tmp_path / "blur")
    argv = ["demo", "--model", str(tmp_path / "blur"), "--out", str(tmp_path / "out"), "--cases", "2", "--samples", "3"]
    assert main(argv) == 0
    printed = capsys.readouterr()
    assert (tmp_path / "out/report.html").resolve().as_uri() in printed.out
    assert "berdiff segment lidc IMAGES" in printed.out
    assert printed.err.startswith("device: ")
    assert main([*argv, "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert len(scores["cases"]) == 2
    assert scores["report"] == str(tmp_path / "out/report.html")
    assert f"{scores['mean']['ged']:.3f}" in printed.out
    for options, message in [
        (["--steps", "2"], "--steps: expected no sampler options for the method blur, which has no steps"),
        (["--cases", "0"], "--cases: expected at least 1, found 0"),
        (["--model", "no-such-model"], "no-such-model: expected the folder of a run or of a model"),
    ]:
        assert main([*argv, *options]) == 2
        assert f"berdiff demo: {message}" in capsys.readouterr().err.splitlines()[-1]
