"""The recipes of the other diffusions: what they state, and that CCDM's is categorical diffusion with two classes."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from berdiff.diffusion.kernels.bernoulli import step_prob
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.segdiff import SegDiff
from berdiff.networks.build import NETWORKS
from berdiff.recipes import RECIPES
from berdiff.training.config import check

METHODS = ("gaussian-small", "segdiff", "medsegdiff", "flow", "ccdm")
CONFIGS = {name: recipe.config for name, recipe in RECIPES.items() if name.rpartition("-")[0] in METHODS}


def test_two_core_recipes_differ_by_the_method_only():
    """All have 60 minutes of CPU time, over which the learning rate falls."""
    cpu = [config for name, config in CONFIGS.items() if name.endswith("-cpu")]
    assert len(cpu) == 5
    for config in cpu:
        check(config)
        assert (config.data.crop, config.data.augment, config.data.shift) == (64, True, 0)
        optim, loop = config.optim, config.loop
        assert (optim.lr, optim.warmup_steps, optim.decay, optim.decay_steps) == (1e-3, 100, "cosine", None)
        assert (optim.clip_norm, optim.ema_decay) == (None if config.recipe == "ccdm-cpu" else 1.0, 0.998)
        assert (loop.batch_size, loop.max_cpu_minutes, config.engine.devices) == (16, 60, "2")


def test_paper_recipes_are_the_papers_statement():
    for name in ("segdiff-paper", "medsegdiff-paper", "flow-paper"):
        config = CONFIGS[name]
        assert (config.model.preset, config.model.T, config.optim.lr) == ("paper-128", 1000, 5e-5)
        assert (config.optim.kind, config.loop.batch_size, config.optim.decay) == ("adamw", 32, "constant")
        assert config.model == type(config.model)("paper-128"), "the defaults are the paper's"


def test_ccdm_paper_is_the_papers_training_of_ccdms_diffusion():
    ccdm, flow = CONFIGS["ccdm-paper"], CONFIGS["flow-paper"]
    assert replace(ccdm, recipe="", model=flow.model) == replace(flow, recipe="")
    assert replace(ccdm.model, preset="ccdm") == CONFIGS["ccdm-own"].model


def test_segdiff_brats_paper_differs_from_brats_paper_by_the_method_only():
    segdiff, berdiff = RECIPES["segdiff-brats-paper"].config, RECIPES["brats-paper"].config
    assert segdiff.model == SegDiff("paper-224")
    assert replace(segdiff, recipe="", model=berdiff.model) == replace(berdiff, recipe="")
    assert (segdiff.optim.lr, segdiff.loop.batch_size) == (1e-4, 32)


def test_every_recipe_names_a_network_there_is():
    for config in CONFIGS.values():
        prefix = f"{config.model.method}-" if config.model.method in ("segdiff", "medsegdiff") else ""
        assert prefix + config.model.preset in NETWORKS.names()


# --- CCDM ------------------------------------------------------------------------------------------------------------


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
    model = CONFIGS[name].model
    assert isinstance(model, BerDiff)
    kernel, sampler = model.kernel(), model.sampler
    assert (kernel.schedule.T, kernel.schedule.name, sampler.count, sampler.rule) == (250, "cosine", 250, "ddpm")
    beta = kernel.schedule.beta.numpy()
    pixels = (CONFIGS[name].data.crop or 128) ** 2
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
