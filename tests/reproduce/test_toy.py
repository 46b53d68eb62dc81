"""The 1D toy: its networks are independent, its estimates are probabilities, and its figure is written whole."""

import json

import pytest
import torch

from berdiff.diffusion.schedule import linear
from reproduce import toy
from reproduce.toy import KERNELS, SeedsMLP, ToyConfig, ToyCurve, run_toy
from reproduce.toy_figure import noise_floor, write_toy

SMALL = ToyConfig(seeds=2, checkpoints=(5, 10), batch=32, width=8, points=20, samples=5, steps=3)


def test_seeds_are_independent_networks():
    """Moving one seed's weights moves that seed's output and no other's gradient."""
    net = SeedsMLP(3, 8, 1000, torch.Generator().manual_seed(0))
    y_t, x, t = torch.zeros(3, 4), torch.rand(3, 4), torch.randint(1, 1001, (3, 4))
    net(y_t, t, x)[1].sum().backward()
    for p in net.parameters():
        assert p.grad is not None
        assert p.grad[1].any()
        assert not p.grad[0].any()
        assert not p.grad[2].any()


def test_run_reports_every_kernel_function_and_seed():
    seen = []
    curves = run_toy(SMALL, lambda done, total: seen.append((done, total)))
    assert [(c.function, c.kernel) for c in curves] == [(f, k) for f in toy.FUNCTIONS for k in KERNELS]
    assert seen[-1] == (40, 40)
    for curve in curves:
        assert curve.mse.shape == (2, 2)
        assert curve.probability.shape == (2, 20)
        assert ((curve.probability >= 0) & (curve.probability <= 1)).all()


def test_a_perfect_bernoulli_model_scores_the_noise_floor():
    """With the exact P(eps = 1 | y_t, x) for a network, the MSE is p (1 - p) / samples: the sampler adds no bias."""
    config = ToyConfig(seeds=2, points=200, samples=100, steps=50)
    schedule = linear(config.T)

    class Exact(SeedsMLP):
        def forward(self, signal, t, x):
            y_t = (signal + 1) / 2
            p, keep = toy.smooth(x), (1 + schedule.at(t, y_t)) / 2
            ones = p * torch.where(y_t == 1, keep, 1 - keep)
            zeros = (1 - p) * torch.where(y_t == 1, 1 - keep, keep)
            y0_hat = ones / (ones + zeros)
            return torch.logit((y_t - y0_hat).abs(), eps=1e-6)

    net = Exact(2, 8, config.T, torch.Generator())
    found = toy.estimate_probability(config, net, KERNELS["bernoulli"])
    mse = (found - toy.smooth(config.grid)).square().mean()
    assert float(mse) == pytest.approx(noise_floor(config, "smooth"), rel=0.4)


def test_figure_and_table_are_written(tmp_path):
    curves = [
        ToyCurve(f, k, (5, 10), torch.tensor([[0.2, 0.4], [0.1, 0.3]]), torch.rand(2, 20))
        for f in toy.FUNCTIONS
        for k in KERNELS
    ]
    table = write_toy(SMALL, curves, tmp_path)
    assert "| smooth | bernoulli | 0.2000 | 0.1414 |" in table
    assert sorted(p.name for p in tmp_path.iterdir()) == ["toy.json", "toy.md", "toy.png"]
    assert len(json.loads((tmp_path / "toy.json").read_text())) == 4
    assert (tmp_path / "toy.png").read_bytes()[:4] == b"\x89PNG"
