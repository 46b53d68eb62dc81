"""Every command that prints a table, on a terminal of 80 columns: no line is longer, and no row loses its name."""

import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from berdiff.cli import evaluate as evaluate_command
from berdiff.cli.main import main
from berdiff.cli.segment import _print as print_outcome
from berdiff.evaluation.evaluate import evaluate
from berdiff.evaluation.settings import EvaluationSettings
from berdiff.inference.model import Model
from berdiff.jobs.run import Outcome
from berdiff.methods import folder
from berdiff.methods.berdiff import BerDiff
from fakes import Blur, MemoryStore, make_spec, make_store
from reproduce.tables import TABLES, scale, write

EDGE = 80
TARGETS = ("whole tumour", "tumour core", "enhancing tumour")
EVALUATIONS = ("berdiff-brats-regions-representative-64", "berdiff-brats-regions-systematic-64", "unet-brats-regions")
CASE = "BraTS-GLI-{:05d}-000/t1n-t1c-t2w-t2f/preprocessed/slice-{}"
Run = Callable[..., list[str]]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Call a function, the command line unless another is given, and return the lines that the terminal got."""
    monkeypatch.setenv("COLUMNS", str(EDGE))
    monkeypatch.setenv("TERM", "dumb")  # no colours

    def run(*args, do: Callable[..., object] = lambda *argv: main(list(argv))) -> list[str]:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", out := _Terminal())
            assert not do(*args)
        lines = [line.rstrip() for line in out.getvalue().splitlines()]
        assert [line for line in lines if len(line) > EDGE] == []
        assert not any("…" in line for line in lines), "cut without a word"
        return lines

    return run


def made(name: str, spread: float, store: MemoryStore) -> Model:
    segmenter = Blur(spread).build(store.input_spec)
    segmenter.weights_sha256 = name
    return Model(segmenter, name, store.input_spec, store.size)


@pytest.fixture(scope="module")
def evaluations(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Three of three targets each, with long names."""
    base, store = tmp_path_factory.mktemp("evaluations"), MemoryStore(24, targets=TARGETS)
    for name, spread in zip(EVALUATIONS, (0.1, 0.4, 0.0), strict=True):
        evaluate(made(name, spread, store), store, base / name, EvaluationSettings(samples=4, batch_size=32))
    return [str(base / name) for name in EVALUATIONS]


def tables_in(lines: list[str], heads: list[str]) -> list[list[str]]:
    """The lines below each head, up to the next empty one."""
    starts = [next(i for i, line in enumerate(lines) if line.startswith(head)) for head in heads]
    return [lines[start + 1 : lines.index("", start)] for start in starts]


def test_compare_several_targets(on_terminal: Run, evaluations: list[str]) -> None:
    lines = on_terminal("compare", *evaluations)
    tables = tables_in(lines, ["mean over targets", *(f"target {name}" for name in TARGETS)])
    for table in tables:
        labels = [re.split(r"  +|\b A ", line)[0] for line in table if not line.startswith(" ")]
        assert len({*labels}) == len(labels), "two rows look the same"
        assert {"GED 4", "HM-IoU 4", "Dice by slice", "Dice by patient"} <= {*labels}
        assert sum(re.search(r" C  +-?\d", line) is not None for line in table) == len(labels)
    assert {"Dice by slice where marked", "Dice by patient where marked"} <= {
        re.split(r"  +| A ", line)[0] for line in tables[1]
    }
    assert {f"{letter}: {name}" for letter, name in zip("ABC", EVALUATIONS, strict=True)} <= {*lines}


def test_compare_by_pipe_has_whole_names_unless_columns_is_set(evaluations, monkeypatch, capsys) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(["compare", *evaluations]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) > EDGE
    monkeypatch.setenv("COLUMNS", str(EDGE))
    assert main(["compare", *evaluations]) == 0
    assert max(len(line.rstrip()) for line in capsys.readouterr().out.splitlines()) <= EDGE


def test_evaluate_several_targets(on_terminal: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, name = MemoryStore(24, targets=TARGETS), "unet-brats-regions-ninety-minutes-on-two-cores-with-hurdle"
    monkeypatch.setattr(evaluate_command.Evaluate, "open", lambda self: (made(name, 0.3, store), store))
    lines = on_terminal("evaluate", "model", "--out", str(tmp_path / "e"), "--samples", "16", "--quiet")
    head = lines[: next(i for i, line in enumerate(lines) if line.startswith("GED 1 "))]
    assert "".join(line.split()[0] for line in head if not line.startswith(" ")) == name  # folded, but whole
    (table,) = tables_in(lines, ["by target"])
    assert any(line.startswith("Dice by patient where marked ") for line in table)
    words = " ".join(" ".join(lines).split())
    assert all(f"P(finding), {target} " in words for target in TARGETS)


def test_demo(on_terminal: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    store.cases.case[:] = [CASE.format(i, i) for i in range(len(store))]
    monkeypatch.setattr("berdiff.data.held_out.open_held_out", lambda: store)
    folder.save(Blur().build(make_spec(targets=("disc",))), tmp_path / "blur")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Path, "as_uri", lambda path: "file:///report.html")  # as long as the folder of the tests
    lines = on_terminal("demo", "--model", "blur", "--cases", "4", "--samples", "3", "--quiet")
    names = [line.split()[0] for line in lines if "slice-" in line]
    assert len({*names}) == 4
    assert all(re.search(r"-000/t1n-.*/slice-\d+$|^\.\.\..*/slice-\d+$", name) for name in names)


def test_segment_with_names_that_end_alike(on_terminal: Run) -> None:
    sizes = {"q05": 148.2, "q50": 246.1, "q95": 320.9}
    of = {
        "finding_probability": 0.94,
        "empty_share": 0.06,
        "disagreement": 0.216,
        "longest_diameter": {"unit": "mm", **sizes},
    }
    one = {**of, "volume": {"unit": "mm^3", **sizes}, "slices": 13, "extent_mm": 32.5}
    names = [f"patient-{i}/a/study/of/brats/with/a/long/name/t1n-t1c-t2w-t2f.nii.gz" for i in range(3)]
    outcome = Outcome(names, measurements={name: dict.fromkeys(TARGETS, one) for name in names})
    lines = on_terminal(outcome, "results in out", do=print_outcome)
    rows = [line.split()[0] for line in lines if "94%" in line]
    assert len(rows) == 9
    assert len({*rows}) == 3
    assert all(word in " ".join(lines) for name in TARGETS for word in name.split())


def test_runs(on_terminal: Run, tmp_path: Path) -> None:
    for seed in range(2):
        path = tmp_path / f"berdiff-brats-regions-representative-two-cores-seed-{seed}"
        path.mkdir()
        config = {"recipe": "berdiff-brats-regions-cpu", "seed": seed, "model": {"method": "berdiff"}, "loop": {}}
        (path / "config.json").write_text(json.dumps(config))
        rows = [{"kind": "train", "step": 20000, "minutes": 90, "loss": 0.5}]
        rows += [{"kind": "end", "step": 20000, "reason": "stopped: the loss was not finite fifty times in a row"}]
        (path / "stats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = on_terminal("runs", str(tmp_path))
    assert sum(bool(re.match(r"\S*-seed-[01] ", line)) for line in lines) == 2
    assert all(" ".join(lines).count(word) == 2 for word in ("stopped:", "finite", "fifty", "row"))
    left_out = " ".join(lines[next(i for i, line in enumerate(lines) if line.startswith("left out to fit: ")) :])
    assert "skipped, seed, method" in left_out
    assert left_out.strip().endswith("--json has all")


def test_search(on_terminal: Run, tmp_path: Path) -> None:
    folder.save(BerDiff("fast-tiny", "power2.5", 20).build(make_spec()), tmp_path / "own")
    store = make_store(tmp_path, train=2, val=2)
    options = ["--counts", "2", "--samples", "2", "--limit", "1", "--quiet"]
    lines = on_terminal("search", str(tmp_path / "own"), "--data", str(store), "--out", str(tmp_path / "s"), *options)
    assert sum("independent" in line or "shared" in line for line in lines) == 14
    assert any("unbiased" in line for line in lines)


@pytest.mark.parametrize("name", ["lidc", "losses", "sampling", "brats"])
def test_a_finished_table(on_terminal: Run, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the words of the real table and numbers of the usual length."""
    table = TABLES[name]
    metrics = ["ged_16", "ged_8", "ged_4", "ged_1", "hm_iou_16"]

    def figure(value: float) -> dict[str, float]:
        return {"value": value, "low": value - 0.02, "high": value + 0.02}

    row = {"metrics": dict.fromkeys(metrics, figure(0.735)), "by_seed": {name: [0.7, 0.8] for name in metrics}}
    row |= {"slices": 300, "patients": 82, "steps": [2000, 2000], "paper": dict.fromkeys(metrics, 0.3)}
    decided = {"better": 0.735, "worse": 0.8, "difference": figure(0.065), "verdict": "holds"}
    result = {
        "title": table.title,
        "heads": list(table.heads),
        "metrics": metrics,
        "rows": [{**row, "label": list(of.label)} for of in table.rows],
        "others": {},
        "references": {"one rater, repeated": {"ged_16": 0.3}},
        "caption": ["a caption of many words " * 10],
        "claims": [
            {"text": of.text, "whose": of.whose, "slices": 300, "metrics": {"ged_16": decided}} for of in table.claims
        ],
    }

    def run_table(*_: object) -> dict:
        write.write(result, tmp_path)
        return result

    monkeypatch.setattr(write, "_picture", lambda *_: None)
    monkeypatch.setattr("reproduce.tables.run.run_table", run_table)
    monkeypatch.setattr("reproduce.tables.run.TableJob.check", lambda job: None)
    monkeypatch.setattr("reproduce.cli.table.open_data", lambda address: SimpleNamespace(size=(128, 128)))
    monkeypatch.setattr(scale, "cpu", lambda *_, **__: None)
    monkeypatch.chdir(tmp_path)
    lines = on_terminal("table", name, "--out", ".", "--quiet")
    words = " ".join(lines)
    assert "left out to fit: patients, slices, training steps; --json has all" in words
    assert sum(line.endswith("0.755)") for line in lines) == len(table.rows), "whole intervals"
    for of in table.rows:
        assert all(word in words for word in " ".join(of.label).split())


def test_a_planned_table(on_terminal: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {"label": "Gaussian diffusion, the same network", "seed": 0, "run": "gaussian-seed-0-of-two"}
    entry |= {"method": "gaussian", "training": "10 minutes", "batch": 8, "parameters": 1914801}
    entry |= {"sampler": "ddim in 1000 steps, shared noise", "slices": 300, "network_passes": 384000, "state": "to do"}
    planned = [{"row": name, **entry} for name in ("gaussian", "ddim-shared-1000")]
    monkeypatch.setattr("reproduce.tables.run.plan", lambda job: planned)
    monkeypatch.setattr("reproduce.tables.run.TableJob.check", lambda job: None)
    monkeypatch.setattr("reproduce.cli.table.open_data", lambda address: SimpleNamespace(size=(128, 128)))
    monkeypatch.setattr(scale, "cpu", lambda *_, **__: None)
    lines = on_terminal("table", "lidc", "--out", str(tmp_path), "--dry-run", "--quiet")
    (row,) = (line for line in lines if line.startswith("ddim-shared-1000 "))
    assert row.endswith("384000 to do")
    assert any(line.startswith("left out to fit: run, batch") for line in lines)


def test_data(on_terminal: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(3):
        for kind in ("images", "masks"):
            (tmp_path / "in" / kind).mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((8, 8), 200, np.uint8)).save(tmp_path / "in" / kind / f"case-{i}.png")
    monkeypatch.chdir(tmp_path)
    prepared = on_terminal("data", "prepare", "folder", "in", "own.zarr", "--quiet")
    for lines in (prepared, on_terminal("data", "info", "own.zarr", "--quiet")):
        options = next(i for i, line in enumerate(lines) if line.startswith("options "))
        assert lines[options + 1].startswith(" " * 9), "the options of this source are more than a line"
        assert all(f"{name}=" in " ".join(lines) for name in ("image_name", "mask_name", "fit", "grey"))
    assert on_terminal("data", "verify", "own.zarr", "--quiet") == ["own.zarr: whole"]


def test_train_dry_run(on_terminal: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"parameters": 3006309, "fits": "no: " + "a long sentence of what would be needed " * 4}
    monkeypatch.setattr("berdiff.training.estimate.estimate", lambda config: found)
    lines = on_terminal("train", "lidc-cpu", "--data", str(make_store(tmp_path)), "--dry-run")
    assert lines[0] == "parameters  3006309"
    assert len(lines) > 2
    assert " ".join(line[12:] for line in lines[1:]) == found["fits"].strip()


def test_figures(on_terminal: Run, evaluations: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = on_terminal("figure", "frontier", *evaluations, "--metric", "ged_4", "--out", "f", "--quiet")
    assert all(any(line.startswith(f"{name}: GED 4 ") for line in lines) for name in EVALUATIONS)
    table = "MSE of the estimated probability " * 4 + "\n\n| function | mean |\n| --- | --- |\n| step | 0.0021 |\n"
    monkeypatch.setattr("reproduce.toy.run_toy", lambda *_: [])
    monkeypatch.setattr("reproduce.toy_figure.write_toy", lambda *_: table)
    lines = on_terminal("figure", "toy", "--out", "t", "--quiet")
    assert "step      0.0021" in lines
    assert lines[-1] == "figure: t/toy.png"


@pytest.mark.parametrize("argv", [[], ["data", "prepare"], ["doctor"]])
def test_lists(on_terminal: Run, argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERDIFF_CACHE", "cache")  # as long as the folder of the tests
    monkeypatch.setenv("HF_HOME", "hub")
    monkeypatch.setattr(sys, "executable", "python")
    monkeypatch.chdir(tmp_path)
    lines = on_terminal(*argv) if argv != ["doctor"] else on_terminal(do=_doctor)
    assert len(lines) > 15


def _doctor() -> None:
    from berdiff.cli import doctor
    from berdiff.text_tables import show_pairs

    found = doctor.examine()
    show_pairs(doctor._pairs({**found, "installed_in": "berdiff"}))


def test_a_real_terminal(tmp_path: Path) -> None:
    """Its width is found without COLUMNS."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 60, 0, 0))
    text = "from berdiff.text_tables import show; show([(['case', 'a'], [['x/' * 60 + 'end', 'three words here']])])"
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    with subprocess.Popen(
        [sys.executable, "-c", text], stdin=slave, stdout=slave, stderr=slave, env={**environment, "TERM": "xterm"}
    ) as process:
        os.close(slave)
        shown = b""
        while b"here" not in shown and (more := os.read(master, 4096)):
            shown += more
        process.kill()
    os.close(master)
    row = re.sub(r"\x1b\[[\d;]*m", "", shown.decode()).splitlines()[1]
    assert row.startswith("...")
    assert "x/end three words here" in row
    assert len(row) == 60
