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

import pytest

from berdiff.cli.main import main
from berdiff.evaluation.evaluate import evaluate
from berdiff.evaluation.settings import EvaluationSettings
from berdiff.inference.model import Model
from fakes import Blur, MemoryStore

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
