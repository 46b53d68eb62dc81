"""CCDM's recipes are categorical diffusion with two classes; the settings of all recipes are in tests/golden."""

from itertools import product

import numpy as np
import pytest
import torch

from berdiff.diffusion.kernels.bernoulli import step_prob
from berdiff.methods.berdiff import BerDiff
from berdiff.recipes import RECIPES


def categorical_posterior(beta: np.ndarray, x_t: int, x_0: int, t: int) -> np.ndarray:
    """q(x_{t-1} | x_t, x_0) over two classes, from the one-step matrices of the categorical chain."""

    def matrix(b: float) -> np.ndarray:
        return (1 - b) * np.eye(2) + b * np.full((2, 2), 1 / 2)

    to_s = np.eye(2)
    for b in beta[1:t]:
        to_s = to_s @ matrix(b)
    joint = to_s[x_0] * matrix(beta[t])[:, x_t]
    return joint / joint.sum()


@pytest.mark.parametrize("name", ["ccdm-cpu", "ccdm-paper", "ccdm-own"])
def test_ccdm_is_categorical_diffusion_with_two_classes(name: str):
    """Its loss is the KL divergence of sum_c p(c) q(x_{t-1} | x_t, c) from q(x_{t-1} | x_t, x_0), summed over the
    pixels of an image, and its step draws from the same; the last takes the likelier class."""
    model = RECIPES[name].config.model
    assert isinstance(model, BerDiff)
    kernel, sampler = model.kernel(), model.sampler
    assert (kernel.schedule.T, kernel.schedule.name, sampler.count, sampler.rule) == (250, "cosine", 250, "ddpm")
    beta = kernel.schedule.beta.numpy()
    pixels = (RECIPES[name].config.data.crop or 128) ** 2
    for t, y_t, y0, p in product((1, 2, 100, 250), (0, 1), (0, 1), (0.03, 0.6)):
        mixed = (1 - p) * categorical_posterior(beta, y_t, 0, t) + p * categorical_posterior(beta, y_t, 1, t)
        true = categorical_posterior(beta, y_t, y0, t)
        expected = sum(q * np.log(q / mixed[c]) for c, q in enumerate(true) if q > 1e-15)
        at = {"dtype": torch.float64}
        one = torch.full((1, 1, 1, 1, 1), y_t, **at)
        output, mask = torch.full_like(one, p).logit(), torch.full_like(one, y0)
        terms = kernel.loss(output, mask, one, (one - mask).abs(), torch.full((1, 1), t))
        assert set(terms) == {"loss", "kl"}
        assert float(terms["kl"]) == pytest.approx(expected, rel=1e-6, abs=1e-12)
        assert float(terms["loss"]) == pytest.approx(pixels * float(terms["kl"]))
        drawn = float(step_prob(kernel.schedule, sampler, one, torch.full_like(one, p), t, t - 1))
        assert drawn == pytest.approx(mixed[1] if t > 1 else float(p > 0.5), abs=1e-9)
