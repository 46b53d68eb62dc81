"""`berdiff doctor`: true of this machine, and right about what is missing."""

import json
import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import berdiff
from berdiff.cli import doctor
from berdiff.cli.main import main

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=! ;]", of)[0] for of in requirements}


def test_it_knows_every_dependency_and_extra():
    assert names(PROJECT["dependencies"]) == {*doctor._packages("")}
    extras = PROJECT["optional-dependencies"]
    assert {*doctor.EXTRAS} == extras.keys() - {"dev", "docs"}, "those are not for users"
    for extra in doctor.EXTRAS:
        assert names(extras[extra]) == {*doctor._packages(extra)}, extra


def test_it_says_what_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys):
    monkeypatch.setenv("BERDIFF_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "file").write_bytes(b"0" * 2_000_000)
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["berdiff"] == berdiff.__version__
    assert found["packages"]["torch"] == metadata.version("torch")
    assert found["folders"]["cache (BERDIFF_CACHE)"] == {
        "path": str(tmp_path / "cache"),
        "exists": True,
        "bytes": 2_000_000,
    }
    assert not found["folders"]["embedded data"]["exists"]
    assert found["machine"]["threads"] >= 1
    assert "lidc" in found["bundled_weights"]


def test_it_says_what_is_missing_and_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, capsys):
    known = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name in ("ray", "scipy") else known(name))
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(re.match(r'\[ray\] +without ray: pip install "berdiff\[ray\]"', line) for line in lines)
    assert any(re.match(r"missing +scipy$", line) for line in lines)
    assert all(len(line) <= 80 or " " not in line.strip().split(None, 1)[-1] for line in lines)


@pytest.mark.parametrize(
    ("flags", "words"), [("avx2 amx_bf16", "not usable: a product in it ends"), ("avx2", "no bf16")]
)
def test_bf16_is_tried_where_amx_is_announced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: str, words: str):
    (tmp_path / "cpuinfo").write_text(f"model name : made up\nflags : {flags}\n")
    monkeypatch.setattr(doctor, "CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr("berdiff.device.bf16_ends_by", lambda: "SIGILL")
    assert words in dict(doctor._pairs(doctor.examine()))["processor"]
