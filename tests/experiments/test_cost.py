"""The cost figure: what is run is what is told, the files are whole, and bad input is one sentence."""

import csv
from types import SimpleNamespace

import pytest
import torch

from berdiff.cli.main import main
from berdiff.diffusion.schedule import linear
from berdiff.experiments import cost, side_by_side
from berdiff.experiments.side_by_side import durations, rounds
from berdiff.inference.model import Model
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.folder import save
from berdiff.networks.build import make_network


@pytest.fixture(autouse=True)
def _no_garbage(monkeypatch):
    """Collecting it before every run matters to the clock alone, and takes longer than the tests."""
    monkeypatch.setattr(side_by_side, "gc", SimpleNamespace(collect=lambda: 0))


@pytest.fixture
def folder(tmp_path):
    save(BerDiff(make_network("fast-tiny"), linear(100)), tmp_path / "tiny", {"size": [16, 16]})
    return str(tmp_path / "tiny")


class Recorder(BerDiff):
    """Notes what it was asked for."""

    def sample(self, image, n, generator, sampler=None, callback=None):
        self.asked.append((tuple(image.shape), n, sampler.steps))
        return torch.zeros(1, n, 1, *image.shape[-2:], dtype=torch.uint8)


def test_every_point_is_run_warm_and_repeated():
    recorder = Recorder(make_network("fast-tiny", image_channels=2), linear(100))
    recorder.asked = []
    seen = []
    measured = cost.measure(
        Model(recorder, "m", (16, 24), ("a", "b"), ("x",)), (1, 4), (2, 10), False, 2, lambda *at: seen.append(at)
    )
    pairs = [(1, 10), (4, 10), (16, 2), (16, 10)]
    assert recorder.asked == [((1, 2, 16, 24), n, k) for n, k in pairs] * 3
    assert seen[-1] == (12, 12)
    assert [(p.samples, p.steps) for p in measured.points] == pairs
    assert [p.samples for p in measured.over_samples()] == [1, 4, 16]
    assert [p.steps for p in measured.over_steps()] == [2, 10]


def test_durations_are_medians_without_the_warm_up(monkeypatch):
    clock = iter([0, 0, *(0, 1), *(0, 5), *(0, 9), *(0, 7), *(0, 2), *(0, 6)])  # a warm-up has no end; then in turns
    monkeypatch.setattr(side_by_side, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    order = []
    assert durations(lambda: order.append("a"), lambda: order.append("b")) == [2, 6]
    assert order == ["a", "b"] * 4


def test_rounds_keep_together_what_was_measured_together(monkeypatch):
    clock = iter([0, 0, *(0, 1), *(0, 5), *(0, 9), *(0, 7)])
    monkeypatch.setattr(side_by_side, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    assert rounds(lambda: None, lambda: None, repeats=2) == [[1, 9], [5, 7]]


def test_the_command_writes_a_figure_and_a_table(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(cost, "PAPER", "tiny")  # the 85.6 M network costs seconds
    out = tmp_path / "out"
    options = ["--model", folder, "--samples", "1", "2", "--steps", "3", "--repeats", "1", "--out", str(out)]
    assert main(["figure", "cost", *options]) == 0
    assert "16 masks in 10 steps: " in capsys.readouterr().out
    assert sorted(p.name for p in out.iterdir()) == ["cost.csv", "cost.png"]
    assert (out / "cost.png").read_bytes()[:4] == b"\x89PNG"
    with (out / "cost.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["model"], row["samples"], row["steps"]) for row in rows] == [
        ("tiny", "1", "10"),
        ("tiny", "2", "10"),
        ("tiny", "16", "3"),
        ("tiny", "16", "10"),
    ]
    ratio = {float(row["seconds"]) / float(row["paper_passes"]) for row in rows}
    assert max(ratio) == pytest.approx(min(ratio), rel=2e-3)  # all over the same pass

    assert main(["figure", "cost", *options, "--no-paper-pass"]) == 0
    assert "passes" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--samples", "0", "4"], r"--samples: expected whole numbers of at least 1, found [0, 4]"),
        (["--repeats", "0"], "--repeats: expected whole numbers of at least 1, found [0]"),
        (["--steps", "500"], "--steps: expected 1 <= steps <= T = 100, found 500"),
        (["--size", "24", "12"], "--size: expected height and width in multiples of 8, found 24 12"),
        (["--size", "24", "24"], "--size: expected multiples of 16 for the paper's network, or --no-paper-pass"),
        (["--model", "nowhere"], "nowhere: expected the folder of a run or of a model"),
    ],
)
def test_bad_options_are_one_sentence(folder, tmp_path, capsys, options, message, monkeypatch):
    if options[-2:] != ["24", "24"]:
        monkeypatch.setattr(cost, "PAPER", "tiny")
    assert main(["figure", "cost", "--model", folder, "--out", str(tmp_path / "out"), *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists()
