"""Figure 1: the forward chain follows eq. 1, the reverse chains are the model's samples, step by step."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from berdiff.data.subset import choose_cases
from berdiff.diffusion.bernoulli import q_marginal
from berdiff.diffusion.random import sample_generators
from berdiff.diffusion.schedule import make_schedule
from berdiff.errors import InputError
from berdiff.inference.model import Model
from berdiff.methods.gaussian import GaussianDiffusion
from fakes import Bright, MemoryStore, bright_model, diffusion, make_spec
from reproduce.process import forward_chain, run_process

SPEC = make_spec(size=(8, 8), targets=("disc",))


def test_the_forward_chain_has_the_marginals_of_eq_3_and_no_memory():
    """Shares of 40,000 pixels, each within 5 standard errors: a false alarm in a hundred thousand runs."""
    schedule, times = make_schedule("power2.5", 100), (0, 10, 35, 60, 100)
    y0 = torch.zeros(2, 200, 200)
    y0[1] = 1
    chain = forward_chain(schedule, y0, times, torch.Generator().manual_seed(0))
    assert list(chain) == [0, 10, 35, 60, 100]
    assert chain[0] is y0

    def near(share: torch.Tensor, p: torch.Tensor) -> bool:
        return bool(((share - p).abs() <= 5 * (p * (1 - p) / 40_000).sqrt()).all())

    for t in times[1:]:
        assert near(chain[t].mean((1, 2)), q_marginal(schedule, y0, t)[:, 0, 0])
    for s, t in pairwise(times):
        alpha = float(schedule.alpha_bar[t] / schedule.alpha_bar[s])
        flipped = (chain[s] != chain[t]).float()
        assert near(flipped.mean((1, 2)), torch.full((2,), (1 - alpha) / 2))
        before = (chain[0] != chain[s]).float()  # whether it flips now does not depend on whether it did before
        if s > 0:
            covariance = float((before * flipped).mean() - before.mean() * flipped.mean())
            assert abs(covariance) < 5 * math.sqrt(1 / 16 / 80_000)


def test_reverse_chains_are_the_samples_of_the_case():
    model, store = bright_model(SPEC), MemoryStore()
    shares = []
    process = run_process(model, store, 3, None, 2, progress=lambda *share: shares.append(share))  # type: ignore[arg-type]
    assert shares == [(step, process.sampler.steps) for step in range(1, process.sampler.steps + 1)]
    (index,) = choose_cases(store, "all", 1, 2)  # type: ignore[arg-type]
    assert process.case == store.cases.case[index]
    image, masks = store.read([index])
    np.testing.assert_array_equal(process.image, image[0, 0, 4:12, 4:12])
    np.testing.assert_array_equal(process.forward[0], masks[0, process.rater - 1, 0, 4:12, 4:12])
    seen = []
    model.segmenter.network.denoise = lambda y_t, t, features, true=model.segmenter.network.denoise: (
        seen.append(y_t) or true(y_t, t, features)
    )
    generators = sample_generators(2, [process.case], 3)
    samples = model.segmenter.sample(torch.from_numpy(image[..., 4:12, 4:12].copy()), 3, generators)
    for i, chain in enumerate(process.reverse):
        assert list(chain) == [50, 33, 17, 0] == list(process.forward)[::-1]
        np.testing.assert_array_equal(chain[50], seen[0][0, i, 0])  # what the network saw first
        np.testing.assert_array_equal(chain[17], seen[2][0, i, 0])
        np.testing.assert_array_equal(chain[0], samples[0, i, 0])
    assert any((process.reverse[0][t] != process.reverse[1][t]).any() for t in (50, 33, 17))


def test_what_cannot_be_shown_is_one_sentence():
    store, model = MemoryStore(), bright_model(SPEC)
    gaussian = diffusion(Bright(), GaussianDiffusion(T=50), SPEC)
    for bad, options, message in (
        (Model(gaussian, "g", SPEC, (8, 8)), {}, "--model: expected a Bernoulli diffusion, found g, a gaussian"),
        (model, {"chains": 0}, "--chains: expected 1 to 16, found 0"),
        (model, {"chains": 17}, "--chains: expected 1 to 16, found 17"),
        (model, {"case": "case 99"}, "--case: expected the name of a case in memory, such as case 0, found case 99"),
        (model, {"options": {"steps": 99}}, "--steps: expected 1 <= steps <= T = 50, found 99"),
        (bright_model(make_spec((32, 32))), {}, "--data: expected images of at least 32x32, .* found 16x16"),
        (bright_model(make_spec((8, 8), ("t1", "t2"))), {}, "the model cannot sample these images: image: expected 2"),
    ):
        with pytest.raises(InputError, match=f"^{message}"):
            run_process(bad, store, **options)  # type: ignore[arg-type]
