"""GECO: lambda follows the constraint, once per step; the pixels that count are drawn in proportion to their loss."""

import math
from itertools import combinations

import pytest
import torch

from berdiff.methods.hprobunet.geco import LARGEST, Geco, stochastic_top_k


def make_geco(**settings) -> Geco:
    return Geco(**{"kappa": 0.05, "nu": 0.01, "decay": 0.9, "top_k": 0.25} | settings)


def follow(geco: Geco, recs: list[float]) -> list[float]:
    """log lambda after each step."""
    found = []
    for rec in recs:
        geco.update({"rec": torch.tensor(rec)})
        found.append(geco.log_lambda.item())
    return found


def test_lambda_rises_while_the_reconstruction_is_too_bad_and_falls_after():
    recs = [0.08] * 10 + [0.01] * 60
    found = follow(make_geco(), recs)
    average, log_lambda, expected, above = 0.0, 0.0, [], []
    for n, rec in enumerate(recs, 1):
        average += (rec - average) * max(1 / n, 0.1)
        log_lambda += 0.01 * min((average - 0.05) / 0.05, 1.0)
        expected.append(log_lambda)
        above.append(average > 0.05)
    assert found == pytest.approx(expected, abs=1e-5)
    rises = [after > before for before, after in zip([0.0, *found], found, strict=False)]
    assert rises == above
    assert 10 < sum(above) < 30, "the average lags behind"


def test_lambda_moves_by_at_most_nu_and_within_its_bounds():
    found = follow(make_geco(nu=0.5, decay=0.0), [1e6] * 20 + [0.0] * 30)
    assert found[:3] == pytest.approx([0.5, 1.0, 1.5])
    assert (max(found), min(found)) == pytest.approx((LARGEST, -LARGEST))
    assert follow(make_geco(nu=0.0), [1e6] * 3) == [0, 0, 0], "the ELBO"


def test_the_loss_weighs_the_chosen_pixels_and_moves_no_state():
    geco = make_geco(top_k=1.0)
    geco.log_lambda.fill_(math.log(3))
    bce, kl = torch.rand(2, 3, 1, 4, 4, requires_grad=True), torch.rand(2, 3, requires_grad=True)
    before = {name: value.clone() for name, value in geco.state_dict().items()}
    terms = geco(bce, kl, torch.Generator())
    whole = 3 * (bce.sum((2, 3, 4)) - 0.05 * 16) + kl  # lambda (R - kappa k) + KL of each mask
    torch.testing.assert_close(terms["loss"], whole.mean() / 16)
    assert terms["lambda"].item() == pytest.approx(3)
    terms["loss"].backward()
    torch.testing.assert_close(bce.grad, torch.full_like(bce, 3 / (6 * 16)))
    torch.testing.assert_close(kl.grad, torch.full_like(kl, 1 / (6 * 16)))
    assert all(torch.equal(value, before[name]) for name, value in geco.state_dict().items())

    few = make_geco(top_k=0.25)
    bce.grad = None
    few(bce, kl, [torch.Generator().manual_seed(i) for i in range(2)])["rec"].backward()
    assert ((bce.grad > 0).sum((2, 3, 4)) == 4).all(), "a quarter of the pixels of each mask"
    torch.testing.assert_close(bce.grad.sum(), torch.tensor(1.0))


def test_every_set_of_pixels_is_drawn_as_often_as_drawing_one_by_one_would():
    """Pairs of four pixels; false alarm below 1e-5: six two-sided bounds of five standard deviations."""
    weights, draws = torch.tensor([1.0, 2.0, 3.0, 4.0]), 20_000
    generator = torch.Generator().manual_seed(0)
    chosen = stochastic_top_k(weights.expand(1, draws, 4), 2, generator)[0]
    assert (chosen.sum(1) == 2).all()
    assert set(chosen.unique().tolist()) == {0.0, 1.0}
    p = (weights / weights.sum()).tolist()
    for a, b in combinations(range(4), 2):
        exact = p[a] * p[b] / (1 - p[a]) + p[b] * p[a] / (1 - p[b])
        found = (chosen[:, a] * chosen[:, b]).mean().item()
        assert abs(found - exact) < 5 * math.sqrt(exact * (1 - exact) / draws)


def test_pixels_without_loss_are_chosen_last_and_each_image_has_its_own_draws():
    weights = torch.zeros(2, 1, 8)
    weights[:, :, 3], weights[:, :, 5] = 1e-30, 1e30
    chosen = stochastic_top_k(weights, 2, torch.Generator())
    assert (chosen[:, :, [3, 5]] == 1).all()
    assert (chosen.sum(2) == 2).all()
    weights = torch.rand(2, 3, 64)

    def of(rows: list[int]) -> torch.Tensor:
        return stochastic_top_k(weights[rows], 5, [torch.Generator().manual_seed(row) for row in rows])

    assert torch.equal(of([0, 1])[1], of([1])[0])
