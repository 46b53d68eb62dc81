"""Couplings against the linear programme, costs against loops, the gate's divergence against torch.distributions."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import linprog
from torch.distributions import Categorical, kl_divergence

from berdiff.methods.mose.transport import gate_kl, greedy_coupling, soft_iou_cost
from fakes import generator
from refusals import refused


def cheapest(cost: np.ndarray, cap: float) -> float:
    """The linear programme: min sum P C with column sums 1 / R, row sums <= cap, P >= 0."""
    N, R = cost.shape
    columns = np.kron(np.ones((1, N)), np.eye(R))
    rows = np.kron(np.eye(N), np.ones((1, R)))
    return linprog(cost.ravel(), rows, np.full(N, cap + 1e-9), columns, np.full(R, 1 / R)).fun


@pytest.mark.parametrize("cap", [1.0, 0.5, 0.3, 1 / 6])
def test_a_coupling_keeps_its_sums_and_is_never_cheaper_than_the_linear_programme(cap: float):
    cost = torch.rand(12, 6, 4, generator=generator(), dtype=torch.float64)
    P = greedy_coupling(cost, cap)
    assert bool((P >= 0).all())
    torch.testing.assert_close(P.sum(1), torch.full((12, 4), 0.25, dtype=torch.float64))
    assert float(P.sum(2).max()) <= cap + 1e-12
    ours = (P * cost).sum((1, 2)).tolist()
    best = [cheapest(each.numpy(), cap) for each in cost]
    assert all(a >= b - 1e-7 for a, b in zip(ours, best, strict=True))
    if cap == 1:
        assert ours == pytest.approx(best, abs=1e-7)  # nothing holds a rater back from the nearest mask
    if cap == 1 / 6:
        assert sum(ours) > sum(best) + 0.01, "greedy, so not always the cheapest"
        assert sum(ours) < 1.3 * sum(best)


def test_on_easy_cases_the_greedy_coupling_is_the_cheapest():
    """Masks in groups, each near to one rater and with room for it."""
    cost = 1 - 0.9 * torch.kron(torch.eye(4), torch.ones(4, 1)) + 0.01 * torch.rand(16, 4, generator=generator())
    for cap in (1 / 16, 1 / 8, 0.25, 0.5):
        P = greedy_coupling(cost[None], cap)[0]
        assert float((P * cost).sum()) == pytest.approx(cheapest(cost.numpy(), cap), abs=1e-6)
        torch.testing.assert_close(P.unflatten(0, (4, 4)).sum(1), torch.eye(4) / 4)


def test_an_image_is_coupled_by_itself_and_without_gradients():
    cost = torch.rand(3, 5, 4, generator=generator(), requires_grad=True)
    P = greedy_coupling(cost, 0.5)
    assert not P.requires_grad
    for i in range(3):
        assert torch.equal(P[i], greedy_coupling(cost[i : i + 1], 0.5)[0])
    with refused("cap:", error=ValueError):
        greedy_coupling(cost, 0.1)


def test_the_cost_of_hard_masks_counts_pixels():
    y = (torch.rand(2, 3, 2, 5, 5, generator=generator()) > 0.5).float()
    y[0, 0] = 0
    cost = soft_iou_cost(y, y)
    for b in range(2):
        for i in range(3):
            for j in range(3):
                expected = 0.0
                for k in range(2):
                    both = int(((y[b, i, k] == 1) & (y[b, j, k] == 1)).sum())
                    either = int(((y[b, i, k] == 1) | (y[b, j, k] == 1)).sum())
                    expected += (1 - (both + 1) / (either + 1)) / 2
                assert float(cost[b, i, j]) == pytest.approx(expected, abs=1e-6)
    assert float(cost[0, 0, 0]) == 0, "two empty masks agree"


def test_the_cost_has_gradients_and_survives_bfloat16():
    p = torch.rand(1, 2, 1, 64, 64, generator=generator(), requires_grad=True)
    y = (torch.rand(1, 3, 1, 64, 64, generator=generator(1)) > 0.5).to(torch.uint8)
    exact = soft_iou_cost(p, y)
    exact.sum().backward()
    assert p.grad is not None
    assert bool((p.grad != 0).all())
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(soft_iou_cost(p, y), exact, rtol=0, atol=0)


def test_the_gates_divergence():
    mass = torch.rand(5, 4, generator=generator()).softmax(1)
    logits = torch.randn(5, 4, generator=generator(1))
    expected = kl_divergence(Categorical(mass), Categorical(logits=logits))
    torch.testing.assert_close(gate_kl(mass, logits.log_softmax(1)), expected)
    torch.testing.assert_close(gate_kl(mass, mass.log()), torch.zeros(5), atol=1e-6, rtol=0)
    bare = torch.tensor([[1.0, 0, 0, 0]])  # experts whom nobody chose
    torch.testing.assert_close(gate_kl(bare, logits[:1].log_softmax(1)), -logits[0].log_softmax(0)[:1])


def test_the_divergence_over_samples_teaches_the_gate_the_same():
    """The authors' KL is over all samples, each with its expert's probability / S: the gradient is ours."""
    S, samples = 3, torch.rand(2, 12, generator=generator()).softmax(1)
    gradients = []
    for form in ("experts", "samples"):
        logits = torch.randn(2, 4, generator=generator(1), requires_grad=True)
        log_gate = logits.log_softmax(1)
        if form == "experts":
            gate_kl(samples.unflatten(1, (4, S)).sum(2), log_gate).sum().backward()
        else:
            each = log_gate.repeat_interleave(S, 1) - torch.tensor(float(S)).log()
            F.kl_div(each, samples, reduction="sum").backward()
        gradients.append(logits.grad)
    torch.testing.assert_close(*gradients)
