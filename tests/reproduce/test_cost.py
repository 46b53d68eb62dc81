"""The cost figure: what is run is what is reported."""

from types import SimpleNamespace

import pytest
import torch

from berdiff.inference.model import Model
from fakes import TenLines, diffusion, make_spec
from reproduce import cost, side_by_side
from reproduce.side_by_side import durations, rounds, see_every_mask


@pytest.fixture(autouse=True)
def _no_garbage(monkeypatch):
    """Collecting it before every run matters to the clock alone, and takes longer than the tests."""
    monkeypatch.setattr(side_by_side, "gc", SimpleNamespace(collect=lambda: 0))


def test_every_point_is_run_warm_and_repeated(monkeypatch):
    segmenter, asked, seen = diffusion(TenLines()), [], []

    def sample(image, n, generators, sampler, callback):
        assert callback is see_every_mask
        asked.append((tuple(image.shape), n, sampler.steps))
        return torch.zeros(1, n, 1, *image.shape[-2:], dtype=torch.uint8)

    monkeypatch.setattr(segmenter, "sample", sample)
    model = Model(segmenter, "m", make_spec(), (16, 24))
    measured = cost.measure(model, (1, 4), (2, 10), False, 2, lambda *at: seen.append(at))
    pairs = [(1, 10), (4, 10), (16, 2), (16, 10)]
    assert asked == [((1, 1, 16, 24), n, k) for n, k in pairs] * 3
    assert seen[-1] == (15, 15), "and the plain U-net"
    assert list(measured.seconds) == pairs


def test_the_plain_u_net_asks_the_models_own_network_once(monkeypatch):
    segmenter, asked = diffusion(TenLines()), []
    denoise = segmenter.network.denoise
    monkeypatch.setattr(
        segmenter.network, "denoise", lambda y, t, x: asked.append((y.shape, y.any(), t)) or denoise(y, t, x)
    )
    monkeypatch.setattr(segmenter, "sample", lambda image, n, generators, sampler, callback: torch.zeros(1))
    monkeypatch.setattr(cost, "durations", lambda *runs, **rest: [run() is None or i for i, run in enumerate(runs, 1)])
    measured = cost.measure(Model(segmenter, "m", make_spec(), (16, 24)), (1,), (2,), False)
    assert [(shape, bool(marked), t.tolist()) for shape, marked, t in asked] == [((1, 1, 1, 16, 24), False, [[0]])]
    assert measured.seconds == {(1, 10): 1, (16, 2): 2, (16, 10): 3}
    assert (measured.paper_pass, measured.unet_pass) == (None, 4)


def test_durations_are_medians_without_the_warm_up(monkeypatch):
    clock = iter([0, 0, *(0, 1), *(0, 5), *(0, 9), *(0, 7), *(0, 2), *(0, 6)])  # a warm-up has no end; then in turns
    monkeypatch.setattr(side_by_side, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    order = []
    assert durations(lambda: order.append("a"), lambda: order.append("b")) == [2, 6]
    assert order == ["a", "b"] * 4
    clock = iter([0, 0, *(0, 1), *(0, 5), *(0, 9), *(0, 7)])  # rounds keep together what was measured together
    assert rounds(lambda: None, lambda: None, repeats=2) == [[1, 9], [5, 7]]
