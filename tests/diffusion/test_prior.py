"""The network's output as the prior of each pixel: Bayes' rule by hand, by enumeration; what each loss is least at."""

import itertools
import math
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch.distributions import Bernoulli

from berdiff.diffusion import bernoulli, losses
from berdiff.diffusion.sampler import Posterior
from berdiff.diffusion.schedule import SCHEDULES
from diffusion.brute_force import Case, bits, cases, chain, early, forgotten, get_schedule, maths
from refusals import refused
from reproduce import exact

POSTERIORS: tuple[Posterior, ...] = ("soft", "marginal")
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


def test_evidence_is_that_of_torch_distributions_for_one_time_per_mask() -> None:
    for name in SCHEDULES:
        case, _, y_t, t = mixed_batch(torch.float64, name)
        laws = [Bernoulli(bernoulli.q_marginal(case.schedule, torch.full_like(y_t, y0), t)) for y0 in (0.0, 1.0)]
        expected = laws[1].log_prob(y_t) - laws[0].log_prob(y_t)
        torch.testing.assert_close(bernoulli.evidence(case.schedule, y_t, t), expected, rtol=1e-9, atol=1e-9)


def test_evidence_is_strong_at_first_and_none_in_pure_noise() -> None:
    """1 - alpha_bar_1 is 4e-5 for the cosine: a coefficient rounded before it is subtracted gives infinity in half."""
    for name, dtype in itertools.product(SCHEDULES, (torch.float32, torch.float64, torch.bfloat16, torch.float16)):
        schedule, y = get_schedule(name, 1000), torch.tensor([0.0, 1.0], dtype=dtype)
        steps = [bernoulli.evidence(schedule, y, t) for t in (1, 2, 500, 999, 1000)]
        expected = math.log((2 - float(schedule.beta[1])) / float(schedule.beta[1]))
        assert steps[0].tolist() == pytest.approx([-expected, expected], rel=1e-6)
        for step in steps:
            assert bool(torch.isfinite(step).all())
            assert float(step[0]) == -float(step[1]) <= 0  # the two states are alike
        strength = [float(step[1]) for step in steps]
        assert strength == sorted(strength, reverse=True)
        left = 2 * float(schedule.alpha_bar[-1])
        assert strength[-1] == (0 if name.startswith("power") else pytest.approx(left, rel=1e-3))
    for t in (0, 11, -1):
        with refused("t, s:", error=ValueError):
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


def test_independent_pixels_have_their_exact_posterior() -> None:
    """All 8 masks of three pixels by Bayes' rule over the joint: what the network need not learn."""
    p, masks = np.array([0.01, 0.4, 0.9]), np.array(list(itertools.product((0, 1), repeat=3)))
    law = np.where(masks, p, 1 - p).prod(1)
    for name, t in itertools.product(SCHEDULES, (1, 60, 300, 1000)):
        schedule = get_schedule(name, 1000)
        flips = chain(schedule, 0, t)
        joint = law[:, None] * flips[masks[:, None], masks[None]].prod(-1)  # [y0, y_t]
        expected = joint.T @ masks / joint.sum(0)[:, None]
        prior = torch.logit(torch.as_tensor(p)).expand(8, 3)
        logits = losses.estimate_logits(schedule, "prior", prior, torch.as_tensor(masks, dtype=torch.float64), t)
        np.testing.assert_allclose(torch.sigmoid(logits).numpy(), expected, rtol=1e-9)


# --- the predictions -------------------------------------------------------------------------------------------------


def ratios(case: Case, y_t: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """The evidence of every pixel from the matrix chain."""
    table = torch.tensor([[ratio(case._replace(t=step), y) for y in (0.0, 1.0)] for step in t.flatten().tolist()])
    zero, one = table.to(y_t).reshape(*t.shape, 2, 1, 1, 1).unbind(2)
    return y_t * one + (1 - y_t) * zero


def test_losses_of_the_prior() -> None:
    """BCE and the marginal KL see the evidence added; the soft KL sees the prior itself, since it adds it."""
    for name, posterior in itertools.product(SCHEDULES, POSTERIORS):
        case, y0, y_t, t = mixed_batch(torch.float64, name)
        prior = torch.randn(y0.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        posterior_logits = prior + ratios(case, y_t, t).double()
        args = y0, y_t, bernoulli.xor(y0, y_t), t
        ours = losses.total_loss(case.schedule, prior, *args, "prior", 0.7, 1.3, posterior)
        seen = prior if posterior == "soft" else posterior_logits
        kl = losses.total_loss(case.schedule, seen, *args, "mask", 1.0, 0.0, posterior)["kl"]
        assert ours.keys() == {"loss", "kl", "bce"}
        torch.testing.assert_close(ours["kl"], kl, rtol=1e-5, atol=1e-9)
        by_hand = -Bernoulli(logits=posterior_logits).log_prob(y0).mean()
        assert float(ours["bce"]) == pytest.approx(float(by_hand), rel=1e-6)
        assert float(ours["loss"]) == pytest.approx(0.7 * float(kl) + 1.3 * float(by_hand), rel=1e-5)


def test_every_prediction_gives_the_same_estimate() -> None:
    case, _, y_t, t = mixed_batch(torch.float64)
    estimate = torch.randn(y_t.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    outputs: dict[losses.Prediction, torch.Tensor] = {
        "mask": estimate,
        "noise": torch.where(y_t > 0, -estimate, estimate),
        "prior": estimate - bernoulli.evidence(case.schedule, y_t, t),
    }
    assert set(outputs) == set(losses.PREDICTIONS)
    for prediction, logits in outputs.items():
        found = losses.estimate_logits(case.schedule, prediction, logits, y_t, t)
        torch.testing.assert_close(found, estimate, rtol=0, atol=1e-12)


def test_gradient_of_the_total_loss() -> None:
    case, y0, y_t, t = mixed_batch(torch.float64)
    y0, y_t = y0[..., :1, :2], y_t[..., :1, :2]
    logits = torch.linspace(-3, 3, y0.numel(), dtype=torch.float64).reshape(y0.shape).requires_grad_()
    for prediction, posterior in itertools.product(losses.PREDICTIONS, POSTERIORS):

        def loss(z: torch.Tensor, options=(prediction, 1.0, 1.0, posterior)) -> torch.Tensor:
            return losses.total_loss(case.schedule, z, y0, y_t, bernoulli.xor(y0, y_t), t, *options)["loss"]

        assert torch.autograd.gradcheck(loss, logits)


# --- what each loss is least at, exactly: on the 512 states of the enumerated distribution ---------------------------
# The losses are elementwise, so the expected loss over y0 ~ p(y0 | x), y_t ~ q(y_t | y0) as a function of the output at
# one state and pixel has the slope P(y0_i = 1 | y_t, x) slope(y0 = 1) + P(y0_i = 0 | y_t, x) slope(y0 = 0).

STEPS = [("linear", 2), ("linear", 400), ("cosine", 100)]


def slopes(name: str, t: int, logits: torch.Tensor, loss) -> torch.Tensor:
    """The slope of the expected loss `(X, 512, 9)` at these logits; loss(schedule, logits, y0, y_t, t) sums pixels."""
    schedule, y_t = get_schedule(name, 1000), exact.STATES.expand(2, -1, -1)
    p = estimates(name, t)[1].sigmoid()
    total = torch.zeros_like(logits)
    for y0, weight in ((torch.zeros_like(y_t), 1 - p), (torch.ones_like(y_t), p)):
        z = logits.clone().requires_grad_()
        total += weight * torch.autograd.grad(loss(schedule, z, y0, y_t, t), z)[0]
    return total


@cache
def estimates(name: str, t: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The logits `(X, 512, 9)` of the prior and of the posterior."""
    schedule, law = get_schedule(name, 1000), exact.truth()
    return exact.expected_mask(schedule, law, t, "prior").logit(), exact.expected_mask(schedule, law, t).logit()


def test_the_enumerated_prior_and_posterior_differ_by_the_pixels_own_evidence() -> None:
    for name, t in STEPS:
        prior, posterior = estimates(name, t)
        evidence = bernoulli.evidence(get_schedule(name, 1000), exact.STATES, t)
        torch.testing.assert_close(posterior - prior, evidence.expand(2, -1, -1), rtol=1e-6, atol=1e-6)


def test_soft_rule_fed_the_prior_is_the_exact_marginal_fed_the_posterior() -> None:
    """And fed the posterior it is not: by more than 0.05 somewhere, once y_t has something to say."""
    steps = ((1000, 900), (700, 699), (400, 100), (100, 0), (2, 1))
    for name, (t, s) in itertools.product(("linear", "cosine"), steps):
        schedule, law, y_t = get_schedule(name, 1000), exact.truth(), exact.STATES.expand(2, -1, -1)
        prior, posterior = (exact.expected_mask(schedule, law, t, kind) for kind in ("prior", "posterior"))
        soft = bernoulli.reverse_mean(schedule, y_t, prior, t, s, "soft")
        marginal = bernoulli.reverse_mean(schedule, y_t, posterior, t, s, "marginal")
        torch.testing.assert_close(soft, marginal, rtol=0, atol=1e-9)
        twice = bernoulli.reverse_mean(schedule, y_t, posterior, t, s, "soft")
        assert t > 400 or t - s == 1 or float((twice - marginal).abs().max()) > 0.05


def test_expected_kl_is_least_at_the_prior_and_expected_bce_at_the_posterior() -> None:
    def kl(schedule, z, y0, y_t, t):
        return losses.kl_loss(schedule, y_t, y0, z, t, t - 1, "soft").sum()

    def bce(schedule, z, y0, y_t, t):
        return losses.bce_loss(y0, z).sum()

    for name, t in STEPS:
        prior, posterior = estimates(name, t)
        at_prior, at_posterior = (slopes(name, t, z, kl).abs() for z in (prior, posterior))
        assert float(at_prior.max()) < 1e-9 < 1e-6 < float(at_posterior.max())
        assert float((at_posterior / at_prior.clamp(min=1e-15)).median()) > 1e3
        assert bool((slopes(name, t, prior - 0.5, kl) < 0).all()), "it rises on both sides"
        assert bool((slopes(name, t, prior + 0.5, kl) > 0).all())
        assert float(slopes(name, t, posterior, bce).abs().max()) < 1e-9
        assert float(slopes(name, t, prior, bce).abs().max()) > 0.05


def test_the_sum_of_both_losses_is_least_near_the_posterior() -> None:
    """What the paper's L_KL + L_BCE learns, by bisection: the posterior but for a small share of the evidence."""

    def both(schedule, z, y0, y_t, t):
        return (losses.kl_loss(schedule, y_t, y0, z, t, t - 1, "soft") + losses.bce_loss(y0, z)).sum()

    for t, left_out in ((1, 0.070), (10, 0.011), (100, 0.004)):
        prior, posterior = estimates("linear", t)
        low, high = torch.minimum(prior, posterior), torch.maximum(prior, posterior)
        for _ in range(14):
            middle = (low + high) / 2
            rises = slopes("linear", t, middle, both) > 0
            low, high = torch.where(rises, low, middle), torch.where(rises, middle, high)
        share = (posterior - low) / (posterior - prior)
        assert float(share.mean()) == pytest.approx(left_out, abs=0.0005)
        assert float(share.max()) < 0.1


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_total_loss_of_the_prior_is_least_at_the_prior(posterior: Posterior) -> None:
    """0.1.0 gave the soft form the prior with the evidence added, and so counted the evidence twice."""

    def term(name: str):
        def loss(schedule, z, y0, y_t, t):
            eps, times = bernoulli.xor(y0, y_t), torch.full((2,), t)
            return losses.total_loss(schedule, z, y0, y_t, eps, times, "prior", posterior=posterior)[name] * z.numel()

        return loss

    for name, t in STEPS:
        prior, _ = estimates(name, t)
        for which in ("kl", "bce", "loss"):
            assert float(slopes(name, t, prior, term(which)).abs().max()) < 1e-9
            assert bool((slopes(name, t, prior - 0.5, term(which)) < 0).all())
            assert bool((slopes(name, t, prior + 0.5, term(which)) > 0).all())
        twice = slopes(name, t, prior + bernoulli.evidence(get_schedule(name, 1000), exact.STATES, t), term("kl"))
        assert float(twice.abs().max()) > 1e-6, "the test would notice"
