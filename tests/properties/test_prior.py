"""The network's output as the prior of each pixel: Bayes' rule by hand, by enumeration and by torch.distributions."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch.distributions import Bernoulli

from berdiff.diffusion import bernoulli, losses
from berdiff.diffusion.schedule import SCHEDULES
from properties.brute_force import Case, bits, cases, chain, early, forgotten, get_schedule, maths

priors = st.floats(1e-6, 1 - 1e-6)


def ratio(case: Case, y_t: float) -> float:
    """log q(y_t | 1) - log q(y_t | 0) from the matrix chain."""
    zero, one = chain(case.schedule, 0, case.t)[:, int(y_t)]
    return math.log(one) - math.log(zero)


def mixed_batch(dtype: torch.dtype, name: str = "power2.5") -> tuple[Case, torch.Tensor, torch.Tensor, torch.Tensor]:
    """A schedule, y0 and y_t `(2, 3, 1, 4, 4)` at six different steps, the first and the last among them."""
    case, generator = forgotten(0, name, dtype), torch.Generator().manual_seed(3)
    t = torch.tensor([[1, 2, 400], [700, 999, 1000]])
    y0 = bernoulli.draw(torch.full((2, 3, 1, 4, 4), 0.4, dtype=dtype), generator)
    y_t, _ = bernoulli.q_sample(case.schedule, y0, t, generator)
    return case, y0, y_t, t


# --- the evidence of a pixel -----------------------------------------------------------------------------------------


@given(cases(), bits)
@example(early(1, 0), 1.0)
@example(early(1, 0, torch.float64), 0.0)
@example(forgotten(0), 1.0)
@maths
def test_evidence_is_the_log_likelihood_ratio_of_the_chain(case: Case, y_t: float) -> None:
    found = bernoulli.evidence(case.schedule, case.tensor([y_t]), case.t)
    assert found.dtype == case.dtype
    assert float(found) == pytest.approx(ratio(case, y_t), rel=1e-6, abs=1e-6 if case.dtype == torch.float32 else 1e-9)


@pytest.mark.parametrize("name", SCHEDULES)
def test_evidence_is_that_of_torch_distributions_for_a_time_a_mask(name: str) -> None:
    case, _, y_t, t = mixed_batch(torch.float64, name)
    of = [Bernoulli(bernoulli.q_marginal(case.schedule, torch.full_like(y_t, y0), t)) for y0 in (0.0, 1.0)]
    expected = of[1].log_prob(y_t) - of[0].log_prob(y_t)
    torch.testing.assert_close(bernoulli.evidence(case.schedule, y_t, t), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", SCHEDULES)
def test_evidence_is_strong_at_first_and_none_in_pure_noise(name: str, dtype: torch.dtype) -> None:
    """1 - alpha_bar_1 is 4e-5 for the cosine: a coefficient rounded before it is subtracted gives infinity in half."""
    schedule, y = get_schedule(name, 1000), torch.tensor([0.0, 1.0], dtype=dtype)
    steps = [bernoulli.evidence(schedule, y, t) for t in (1, 2, 500, 999, 1000)]
    expected = math.log((2 - float(schedule.beta[1])) / float(schedule.beta[1]))
    assert steps[0].tolist() == pytest.approx([-expected, expected], rel=1e-6)
    for step in steps:
        assert bool(torch.isfinite(step).all())
        assert float(step[0]) == -float(step[1]) <= 0  # the two states are alike
    strength = [float(step[1]) for step in steps]
    assert strength == sorted(strength, reverse=True)
    assert strength[-1] == (
        0 if name.startswith("power") else pytest.approx(2 * float(schedule.alpha_bar[-1]), rel=1e-3)
    )


@pytest.mark.parametrize("t", [0, 11, -1])
def test_evidence_of_a_step_that_is_none_is_refused(t: int) -> None:
    with pytest.raises(ValueError, match="t, s: expected 0 <= s < t <= T = 10"):
        bernoulli.evidence(get_schedule("linear", 10), torch.zeros(2), t)


# --- Bayes' rule -----------------------------------------------------------------------------------------------------


@given(cases(), bits, priors)
@example(early(1, 0), 1.0, 1e-6)
@example(forgotten(0), 1.0, 0.3)
@maths
def test_the_estimate_is_bayes_rule_for_a_pixel(case: Case, y_t: float, p: float) -> None:
    zero, one = chain(case.schedule, 0, case.t)[:, int(y_t)]
    prior = case.tensor([math.log(p) - math.log1p(-p)])
    logits = bernoulli.predict_y0_prior_logits(case.schedule, case.tensor([y_t]), prior, case.t)
    rounding = 1e-9 if case.dtype == torch.float64 else 2e-6
    assert float(torch.sigmoid(logits)) == pytest.approx(p * one / (p * one + (1 - p) * zero), abs=rounding)
    # and on the scale where a probability near 0 or 1 keeps its digits
    assert float(logits) == pytest.approx(math.log(p * one) - math.log((1 - p) * zero), rel=1e-5, abs=10 * rounding)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("t", [1, 60, 300, 1000])
def test_independent_pixels_have_their_exact_posterior(name: str, t: int) -> None:
    """All 8 masks of three pixels by Bayes' rule over the joint: what the network need not learn."""
    schedule, p = get_schedule(name, 1000), np.array([0.01, 0.4, 0.9])
    flips = chain(schedule, 0, t)
    masks = list(itertools.product((0, 1), repeat=3))
    for y_t in masks:
        joint = np.array(
            [
                np.prod([(p[i] if y0[i] else 1 - p[i]) * flips[y0[i], y_t[i]] for i in range(3)])  # prior x likelihood
                for y0 in masks
            ]
        )
        expected = joint @ np.array(masks) / joint.sum()
        logits = losses.estimate_logits(
            schedule, "prior", torch.logit(torch.as_tensor(p)), torch.tensor(y_t, dtype=torch.float64), t
        )
        np.testing.assert_allclose(torch.sigmoid(logits).numpy(), expected, rtol=1e-9)


# --- the targets -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("posterior", ["soft", "marginal"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_losses_are_those_of_the_mask_with_the_evidence_added(name: str, posterior: bernoulli.Posterior) -> None:
    case, y0, y_t, t = mixed_batch(torch.float64, name)
    prior = torch.randn(y0.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    pairs = zip(y_t.flatten(0, 1), t.flatten().tolist(), strict=True)
    added = torch.stack([_ratios(case, y, step) for y, step in pairs]).reshape(y_t.shape)
    eps = bernoulli.xor(y0, y_t)
    ours = losses.total_loss(case.schedule, prior, y0, y_t, eps, t, "prior", 0.7, 1.3, posterior)
    mask = losses.total_loss(case.schedule, prior + added, y0, y_t, eps, t, "mask", 0.7, 1.3, posterior)
    assert ours.keys() == mask.keys() == {"loss", "kl", "bce"}
    for term, value in mask.items():
        torch.testing.assert_close(ours[term], value, rtol=1e-9, atol=1e-12)
    by_hand = -Bernoulli(logits=prior + added).log_prob(y0).mean()
    assert float(ours["bce"]) == pytest.approx(float(by_hand), rel=1e-9)


def _ratios(case: Case, y_t: torch.Tensor, t: int) -> torch.Tensor:
    zero, one = (ratio(case._replace(t=t), y) for y in (0.0, 1.0))
    return y_t * one + (1 - y_t) * zero


def test_every_target_says_the_same_estimate_in_its_own_words() -> None:
    case, _, y_t, t = mixed_batch(torch.float64)
    estimate = torch.randn(y_t.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    words: dict[losses.Target, torch.Tensor] = {
        "mask": estimate,
        "noise": torch.where(y_t > 0, -estimate, estimate),
        "prior": estimate - bernoulli.evidence(case.schedule, y_t, t),
    }
    assert set(words) == set(losses.TARGETS)
    for target, logits in words.items():
        found = losses.estimate_logits(case.schedule, target, logits, y_t, t)
        torch.testing.assert_close(found, estimate, rtol=0, atol=1e-12)


@pytest.mark.parametrize("posterior", ["soft", "marginal"])
@pytest.mark.parametrize("target", losses.TARGETS)
def test_gradient_of_the_total_loss(target: losses.Target, posterior: bernoulli.Posterior) -> None:
    case, y0, y_t, t = mixed_batch(torch.float64)
    y0, y_t = y0[..., :1, :2], y_t[..., :1, :2]
    logits = torch.linspace(-3, 3, y0.numel(), dtype=torch.float64).reshape(y0.shape).requires_grad_()

    def loss(z: torch.Tensor) -> torch.Tensor:
        eps = bernoulli.xor(y0, y_t)
        return losses.total_loss(case.schedule, z, y0, y_t, eps, t, target, posterior=posterior)["loss"]

    assert torch.autograd.gradcheck(loss, logits)


def test_bce_of_the_prior_is_least_at_the_prior() -> None:
    """A fair test of what is learnt: many masks of one prior, all steps; the gradient vanishes at its logit alone."""
    schedule, n, p = get_schedule("power2.5", 1000), 400_000, 0.2
    generator = torch.Generator().manual_seed(5)
    y0 = bernoulli.draw(torch.full((n, 1), p, dtype=torch.float64), generator)
    t = torch.randint(1, 1001, (n,), generator=generator)
    y_t, eps = bernoulli.q_sample(schedule, y0, t, generator)

    def slope(prior: float) -> float:
        logit = torch.tensor(prior, dtype=torch.float64).logit().requires_grad_()
        terms = losses.total_loss(schedule, logit.expand(n, 1), y0, y_t, eps, t, "prior", lambda_kl=0.0)
        return float(torch.autograd.grad(terms["loss"], logit)[0])

    assert abs(slope(p)) < 5 * (p * (1 - p) / n) ** 0.5  # each mask's slope has at most the variance of y0
    assert slope(p - 0.02) < -0.003
    assert slope(p + 0.02) > 0.003


def test_an_unknown_target_is_refused() -> None:
    y = torch.zeros(2, 3)
    with pytest.raises(ValueError, match=r"^target: expected one of noise, mask, prior, found 'edges'$"):
        losses.estimate_logits(get_schedule("linear", 10), "edges", y, y, 4)  # type: ignore[arg-type]
