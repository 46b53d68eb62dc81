"""The energy score against loops, against hard sets, and as a proper score."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from berdiff.diffusion.energy import energy_score, jaccard_distance, soft_level_sets, stratified_levels
from berdiff.diffusion.random import spawn_generators
from berdiff.diffusion.sampler import Sampler
from berdiff.methods.berdiff import BerDiff
from fakes import make_spec
from refusals import refused

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
    c = masks(3, 2, K)
    both, between = jaccard_distance(torch.cat([a, c], 1), b), jaccard_distance(a, c)
    score = energy_score(a, c, b, torch.ones(2, 4))
    assert score == pytest.approx(2 * both.mean((1, 2)) - between.mean((1, 2)), abs=1e-5)


def test_raters_without_weight_do_not_count():
    a, c, b, weight = masks(3, 0), masks(3, 2), masks(4, 1), torch.tensor([[1.0, 0, 1, 0]] * 2)
    assert energy_score(a, c, b, weight) == pytest.approx(energy_score(a, c, b[:, ::2], torch.ones(2, 2)))


def test_an_image_that_nobody_marked_teaches_nothing():
    p = torch.rand(2, 1, 4, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    S, S2 = soft_level_sets(p, torch.tensor([[0.1, 0.5, 0.8, 0.2]] * 2)).chunk(2, 1)
    raters = torch.zeros(2, 3, 1, 16)
    raters[1, :, :, :5] = 1
    score = energy_score(S, S2, raters, raters.any(-1)[..., 0].float())
    score.sum().backward()
    assert score[0] == 0
    assert (p.grad[0] == 0).all()
    assert (p.grad[1] != 0).any()


def test_levels_have_one_in_each_part_and_are_uniform():
    u = torch.rand(4000, 3, generator=torch.Generator().manual_seed(0))
    levels = stratified_levels(u)
    assert ((levels * 3).floor() == torch.arange(3)).all()
    assert levels.flatten().sort().values == pytest.approx((torch.arange(12_000) + 0.5) / 12_000, abs=0.01)


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


@pytest.mark.parametrize("share", [0.125, 0.25, 0.5])
def test_stratified_levels_leave_the_least_where_it_is(share):
    """Level sets of an estimate p: half of the pixels certain, half of probability p. Against raters of whom `share`
    mark all, the score of many draws is the closed form 2 d (p (1 - share) + share (1 - p)) - 2 d p (1 - p), least at
    p = share. Distances of masks of one stratified set, as they were taken before, have it at more than that."""
    small, large = torch.zeros(8), torch.ones(8)
    small[:4] = 1
    raters, weight = torch.stack([small, large])[None, :, None], torch.tensor([[1 - share, share]])
    levels = stratified_levels(torch.rand(4000, 2, 3, generator=torch.Generator().manual_seed(1)))
    grid = torch.arange(1, 20) / 20
    found = []
    for p in grid.tolist():
        sets = torch.where(levels[..., None] < p, large, small)[:, :, :, None]  # (draws, 2, J, 1, 8)
        score = energy_score(sets[:, 0], sets[:, 1], raters, weight).mean().item()
        assert score == pytest.approx(p * (1 - share) + share * (1 - p) - p * (1 - p), abs=0.01)
        found.append(score)
    assert grid[torch.tensor(found).argmin()] == pytest.approx(share, abs=0.051)


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
    with refused("energy:"):
        replace(CONFIG, **wrong).check()
