"""The energy score against loops, against hard sets, and as a proper score."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from berdiff.diffusion.energy import energy_score, jaccard_distance, soft_level_sets
from berdiff.diffusion.random import spawn_generators
from berdiff.diffusion.sampler import Sampler
from berdiff.errors import InputError
from berdiff.methods.berdiff import BerDiff
from fakes import make_spec

CONFIG = BerDiff("fast-tiny", T=50, prediction="mask", hurdle=0.05, energy=0.1, sampler=Sampler(steps=2))


def masks(count: int, seed: int, K: int = 1) -> Tensor:
    """(2, count, K, 16) of 0 and 1, the first of each empty."""
    made = (torch.rand(2, count, K, 16, generator=torch.Generator().manual_seed(seed)) < 0.4).float()
    made[:, 0] = 0
    return made


@pytest.mark.parametrize("K", [1, 3])
def test_hard_sets_have_the_distance_of_loops_over_masks(K):
    a, b = masks(3, 0, K), masks(4, 1, K)
    by_loops = torch.zeros(2, 3, 4)
    for n, i, j, k in torch.cartesian_prod(*(torch.arange(m) for m in (2, 3, 4, K))).tolist():
        union = (a[n, i, k] + b[n, j, k] > 0).sum()
        same = 1 - (a[n, i, k] * b[n, j, k]).sum() / union if union else torch.zeros(())
        by_loops[n, i, j] += same / K
    assert jaccard_distance(a, b) == pytest.approx(by_loops, abs=1e-3)
    own = jaccard_distance(a, a)
    between = torch.stack([own[:, i, j] for i in range(3) for j in range(3) if i != j]).mean(0)
    score = energy_score(a, b, torch.ones(2, 4))
    assert score == pytest.approx(2 * by_loops.mean((1, 2)) - between, abs=2e-3)


def test_raters_without_weight_do_not_count():
    a, b, weight = masks(3, 0), masks(4, 1), torch.tensor([[1.0, 0, 1, 0]] * 2)
    assert energy_score(a, b, weight) == pytest.approx(energy_score(a, b[:, ::2], torch.ones(2, 2)))


def test_level_sets_are_nested_never_empty_and_sharp_far_from_their_level():
    p = torch.tensor([0.02, 0.1, 0.3, 0.38]).reshape(1, 1, 2, 2)
    sets = soft_level_sets(p, torch.tensor([[0.05, 0.5, 0.99]]))[0, :, 0]
    assert (sets[:-1] >= sets[1:]).all()
    assert (sets.amax(1) >= 0.5).all()
    hard = torch.tensor([1e-6, 1 - 1e-6]).reshape(1, 1, 1, 2)
    assert soft_level_sets(hard, torch.tensor([[0.5]])).flatten().tolist() == pytest.approx([0, 1], abs=1e-4)


def test_the_score_is_least_where_masks_are_distributed_as_the_raters():
    """Two nested sets, the larger one in a share q of the raters: of all shares p of the samples, q scores best."""
    small, large = torch.zeros(16), torch.zeros(16)
    small[:4], large[:8] = 1, 1
    d = 0.5  # of the two

    def expected(p: float, q: float) -> float:  # E[2 d(S, Y) - d(S, S')]
        return 2 * d * (p * (1 - q) + q * (1 - p)) - d * 2 * p * (1 - p)

    grid = [i / 20 for i in range(21)]
    for q in (0.25, 0.5, 0.75):
        assert min(grid, key=lambda p: expected(p, q)) == pytest.approx(q)
        raters = torch.stack([large] * int(4 * q) + [small] * (4 - int(4 * q)))[None, :, None]
        for p in (0.25, 0.5):  # what the function gives is that expectation, but that S and S' are different ones
            samples = torch.stack([large] * int(8 * p) + [small] * (8 - int(8 * p)))[None, :, None]
            different = expected(p, q) + d * 2 * p * (1 - p) * (1 - 8 / 7)
            assert energy_score(samples, raters, torch.ones(1, 4)).item() == pytest.approx(different, abs=1e-3)


def test_training_lowers_it_and_each_image_is_its_own():
    torch.manual_seed(0)
    model = CONFIG.build(make_spec())
    image, y = torch.rand(4, 1, 16, 16), torch.zeros(4, 3, 1, 16, 16, dtype=torch.uint8)
    y[:, :, :, 4:9, 4:9] = 1
    y[0] = 0  # nobody marked anything: no gradient of the score, and no nan

    def terms() -> dict[str, Tensor]:
        return model.loss(image, y, spawn_generators(torch.Generator().manual_seed(1), 4))

    optimiser, first = torch.optim.Adam(model.parameters(), 3e-3), terms()
    for _ in range(30):
        optimiser.zero_grad()
        terms()["loss"].backward()
        optimiser.step()
    assert all(math.isfinite(value.item()) for value in first.values())
    assert terms()["energy"] < first["energy"] - 0.1
    without = replace(CONFIG, energy=0.0).build(make_spec())
    without.load_state_dict(model.state_dict())  # no weights of its own
    assert "energy" not in without.loss(image, y, spawn_generators(torch.Generator(), 4))


@pytest.mark.parametrize("wrong", [{"hurdle": 0.0}, {"prediction": "noise"}])
def test_it_needs_a_hurdle_and_masks(wrong):
    with pytest.raises(InputError, match="energy: expected a hurdle and prediction mask"):
        replace(CONFIG, **wrong).check()
