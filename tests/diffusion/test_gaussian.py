"""The Gaussian kernel against linear-Gaussian algebra over the one-step chain, and against numerical integration."""

import itertools
import math
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from berdiff.diffusion import gaussian
from berdiff.diffusion.gaussian import Gaussian
from berdiff.diffusion.sampler import Sampler
from berdiff.diffusion.sampling import sample
from berdiff.diffusion.schedule import SCHEDULES, NoiseSchedule, linear
from diffusion.brute_force import (
    TEST_FAILURE_RATE,
    Case,
    cases,
    early,
    forgotten,
    get_schedule,
    maths,
    probabilities,
)

values = st.floats(-3, 3)


def forward(schedule: NoiseSchedule, mean: float, variance: float, s: int, t: int) -> tuple[float, float, float]:
    """(mean, variance, gain) of y_t from those of y_s, one step at a time: y <- sqrt(1 - beta) y + sqrt(beta) noise."""
    gain = 1.0
    for beta in schedule.beta[s + 1 : t + 1].tolist():
        mean, variance, gain = math.sqrt(1 - beta) * mean, (1 - beta) * variance + beta, math.sqrt(1 - beta) * gain
    return mean, variance, gain


def conditioned(case: Case, y_t: float, y0: float) -> tuple[float, float]:
    """Mean and variance of y_s given y_t, by conditioning the joint Gaussian of (y_s, y_t)."""
    mean_s, variance_s, _ = forward(case.schedule, y0, 0.0, 0, case.s)
    mean_t, variance_t, gain = forward(case.schedule, mean_s, variance_s, case.s, case.t)
    covariance = gain * variance_s
    return mean_s + covariance / variance_t * (y_t - mean_t), variance_s - covariance**2 / variance_t


def rounding(case: Case) -> float:
    return 1e-9 if case.dtype == torch.float64 else 2e-6


@given(cases(), values, values)
@example(early(2, 1), 1.3, -1.0)
@example(forgotten(999), 1.3, -1.0)
@maths
def test_posterior_is_gaussian_conditioning(case: Case, y_t: float, y0: float) -> None:
    mean, variance = gaussian.posterior(case.schedule, case.tensor([y_t]), case.tensor([y0]), case.t, case.s)
    expected_mean, expected_variance = conditioned(case, y_t, y0)
    assert float(mean) == pytest.approx(expected_mean, abs=5 * rounding(case))
    assert float(variance) == pytest.approx(expected_variance, abs=rounding(case))


def test_posterior_by_numerical_integration() -> None:
    schedule, y_t, y0 = linear(1000), 0.4, -1.0
    grid = np.linspace(-8, 8, 400_001)
    for t, s in ((900, 300), (300, 299), (500, 50)):
        mean_s, variance_s, _ = forward(schedule, y0, 0.0, 0, s)
        _, variance, gain = forward(schedule, 0.0, 0.0, s, t)
        density = stats.norm.pdf(grid, mean_s, variance_s**0.5) * stats.norm.pdf(y_t, gain * grid, variance**0.5)
        density /= density.sum()
        mean = float((density * grid).sum())
        found = gaussian.posterior(schedule, *(torch.tensor([y], dtype=torch.float64) for y in (y_t, y0)), t, s)
        assert float(found[0]) == pytest.approx(mean, abs=1e-6)
        assert float(found[1]) == pytest.approx(float((density * (grid - mean) ** 2).sum()), abs=1e-6)


@given(cases(), values, values)
@maths
def test_ddim_at_eta_one_is_the_posterior(case: Case, y_t: float, y0: float) -> None:
    mean, variance = gaussian.ddim_moments(
        case.schedule, case.tensor([y_t]), case.tensor([y0]), case.t, case.s, eta=1.0
    )
    expected_mean, expected_variance = conditioned(case, y_t, y0)
    # y_t is far out in the noise of an early step, whose root is taken: rounding counts for more than in the posterior
    scale = 1 / math.sqrt(1 - float(case.schedule.alpha_bar[case.t]))
    assert float(mean) == pytest.approx(expected_mean, abs=5 * rounding(case) * scale)
    assert float(variance) == pytest.approx(expected_variance, abs=rounding(case))


@given(cases(), probabilities)
@maths
def test_eta_is_a_share_of_the_posteriors_standard_deviation(case: Case, eta: float) -> None:
    y = torch.zeros(1, dtype=torch.float64)
    _, variance = gaussian.ddim_moments(case.schedule, y, y, case.t, case.s, eta)
    assert float(variance) == pytest.approx((eta * math.sqrt(max(conditioned(case, 0, 0)[1], 0))) ** 2, abs=1e-12)


@given(cases(), values, probabilities)
@maths
def test_ddim_keeps_the_marginal_for_every_eta(case: Case, y0: float, eta: float) -> None:
    """The mean is linear in y_t ~ N(mean_t, variance_t): push that law through the step."""
    mean_t, variance_t, _ = forward(case.schedule, y0, 0.0, 0, case.t)
    mean_s, variance_s, _ = forward(case.schedule, y0, 0.0, 0, case.s)
    y_t = torch.tensor([mean_t, mean_t + 1], dtype=torch.float64)
    mean, variance = gaussian.ddim_moments(case.schedule, y_t, torch.full_like(y_t, y0), case.t, case.s, eta)
    slope = float(mean[1] - mean[0])
    assert float(mean[0]) == pytest.approx(mean_s, abs=1e-9)
    assert slope**2 * variance_t + float(variance) == pytest.approx(variance_s, abs=1e-9)


def test_q_sample_draws_the_chain() -> None:
    n = 100_000
    for name, t in itertools.product(SCHEDULES, (1, 200, 1000)):
        schedule = get_schedule(name, 1000)
        mean, variance, _ = forward(schedule, 1.0, 0.0, 0, t)
        y_t, eps = gaussian.q_sample(schedule, torch.ones(n, dtype=torch.float64), t, torch.Generator().manual_seed(t))
        torch.testing.assert_close(y_t, mean + variance**0.5 * eps)
        far = stats.norm.isf(TEST_FAILURE_RATE / 2) * (variance / n) ** 0.5
        assert float(y_t.mean()) == pytest.approx(mean, abs=far)
        low, high = stats.chi2.ppf([TEST_FAILURE_RATE / 2, 1 - TEST_FAILURE_RATE / 2], n) * variance
        assert low <= float(((y_t - mean) ** 2).sum()) <= high


@given(cases(), st.floats(-1, 1), values)
@example(forgotten(0), 1.0, 0.4)
@maths
def test_predict_y0_undoes_the_noise(case: Case, y0: float, eps: float) -> None:
    mean, variance, gain = forward(case.schedule, y0, 0.0, 0, case.t)
    y_t = torch.tensor([mean + variance**0.5 * eps], dtype=torch.float64)
    found = gaussian.predict_y0(case.schedule, y_t, torch.tensor([eps], dtype=torch.float64), case.t)
    # what is left of the mask is `gain`; at T = 10 that is 1e-8, so the digits of y0 are gone, and at 0 all of it is
    assert float(found) == (pytest.approx(y0, abs=1e-12 + 1e-14 / gain) if gain else 0)


def test_the_estimate_is_clipped_to_where_masks_live_and_pure_noise_says_nothing() -> None:
    found = gaussian.predict_y0(linear(1000), torch.tensor([30.0, -30.0]), torch.zeros(2), 900)
    assert found.tolist() == [1.0, -1.0]
    # whatever the network takes for the noise, and in a batch whose other masks are still there
    y_t, eps_hat = torch.tensor([[0.7, -2.0, 0.0]] * 2), torch.tensor([[0.7, 1.0, -1.0]] * 2)
    found = gaussian.predict_y0(get_schedule("power2.5", 1000), y_t, eps_hat, torch.tensor([1000, 1]))
    assert found[0].tolist() == [0, 0, 0]
    assert bool((found[1] != 0).all())


def test_masks_and_signals() -> None:
    mask = torch.tensor([0.0, 1.0])
    assert gaussian.to_signal(mask).tolist() == [-1, 1]
    assert torch.equal(gaussian.to_mask(gaussian.to_signal(mask)), mask)
    assert gaussian.to_mask(torch.tensor([-0.1, 0.1])).tolist() == [0, 1]


# --- a network that predicts the mask --------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["ddim", "ddpm"])
def test_a_predicted_mask_counts_at_the_first_step_too(rule: Literal["ddim", "ddpm"]) -> None:
    """At alpha_bar_T = 0 the best estimate is the mean of all masks: of two, one step gives the likelier one.

    A second step, from s, starts at y_s ~ N(sqrt(b) mean, 1 - b). The log odds of the likelier mask given it,
    log(.8 / .2) + sqrt(b) y_s . difference / (1 - b), are Gaussian too: how often they are positive is known.
    """
    n, s, p = 20_000, 700, 0.8
    kernel = Gaussian(get_schedule("power2.5", 1000), "mask")
    likelier = torch.tensor([1.0, 1, 1, 1, -1, -1, -1, -1], dtype=torch.float64)  # the other one is its negative

    def estimate(y_t: torch.Tensor, t: int) -> torch.Tensor:
        alpha_bar = kernel.schedule.alpha_bar[t]
        log_odds = math.log(p / (1 - p)) + alpha_bar.sqrt() / (1 - alpha_bar) * (y_t @ (2 * likelier))
        return torch.tanh(log_odds / 2).unsqueeze(-1) * likelier  # E[y0 | y_t], by Bayes

    def drawn(steps: tuple[int, ...]) -> float:
        generator, sampler = torch.Generator().manual_seed(0), Sampler(steps, rule=rule, sigma=0.0)
        masks = sample(kernel, sampler, estimate, kernel.prior((n, 8), generator, likelier), generator)
        right = (masks == gaussian.to_mask(likelier)).all(1)
        assert bool((right | (masks == gaussian.to_mask(-likelier)).all(1)).all()), "whole masks"
        return float(right.double().mean())

    assert drawn((1000,)) == 1
    b, squared = float(kernel.schedule.alpha_bar[s]), 32.0  # of the difference of both masks
    mean = math.log(p / (1 - p)) + b / (1 - b) * (2 * p - 1) * squared / 2
    expected = stats.norm.cdf(mean / math.sqrt(b / (1 - b) * squared))
    far = stats.norm.isf(TEST_FAILURE_RATE / 2) * math.sqrt(expected * (1 - expected) / n)
    assert drawn((1000, s)) == pytest.approx(expected, abs=far)


def test_a_predicted_mask_is_clipped_to_where_masks_live() -> None:
    kernel, output = Gaussian(get_schedule("linear", 1000), "mask"), torch.tensor([[3.0, -0.4, -1.5]])
    for t in (1, 1000):
        _, y0_hat = kernel.step(Sampler(), output, torch.zeros(1, 3), t, 0, torch.Generator())
        assert torch.equal(y0_hat, output.clamp(-1, 1))
