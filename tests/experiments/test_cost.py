"""The cost figure: what is run is what is reported."""

from types import SimpleNamespace

import pytest
import torch

from berdiff.experiments import cost, side_by_side
from berdiff.experiments.side_by_side import durations, rounds
from berdiff.inference.model import Model
from fakes import TenLines, diffusion, make_spec


@pytest.fixture(autouse=True)
def _no_garbage(monkeypatch):
    """Collecting it before every run matters to the clock alone, and takes longer than the tests."""
    monkeypatch.setattr(side_by_side, "gc", SimpleNamespace(collect=lambda: 0))


def test_every_point_is_run_warm_and_repeated(monkeypatch):
    segmenter, asked, seen = diffusion(TenLines()), [], []

    def sample(image, n, generators, sampler):
        asked.append((tuple(image.shape), n, sampler.steps))
        return torch.zeros(1, n, 1, *image.shape[-2:], dtype=torch.uint8)

    monkeypatch.setattr(segmenter, "sample", sample)
    model = Model(segmenter, "m", make_spec(channels=("a", "b")), (16, 24))
    measured = cost.measure(model, (1, 4), (2, 10), False, 2, lambda *at: seen.append(at))
    pairs = [(1, 10), (4, 10), (16, 2), (16, 10)]
    assert asked == [((1, 2, 16, 24), n, k) for n, k in pairs] * 3
    assert seen[-1] == (12, 12)
    assert list(measured.seconds) == pairs


def test_durations_are_medians_without_the_warm_up(monkeypatch):
    clock = iter([0, 0, *(0, 1), *(0, 5), *(0, 9), *(0, 7), *(0, 2), *(0, 6)])  # a warm-up has no end; then in turns
    monkeypatch.setattr(side_by_side, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    order = []
    assert durations(lambda: order.append("a"), lambda: order.append("b")) == [2, 6]
    assert order == ["a", "b"] * 4
    clock = iter([0, 0, *(0, 1), *(0, 5), *(0, 9), *(0, 7)])  # rounds keep together what was measured together
    assert rounds(lambda: None, lambda: None, repeats=2) == [[1, 9], [5, 7]]
