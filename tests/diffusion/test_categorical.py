"""The categorical kernel's equations against CxC matrix chains, brute-force Bayes and the Bernoulli kernel."""

import itertools
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import distributions

from berdiff.diffusion import bernoulli, categorical, losses
from berdiff.diffusion.kernels.bernoulli import Bernoulli
from berdiff.diffusion.kernels.bernoulli import step_prob as bernoulli_step_prob
from berdiff.diffusion.kernels.categorical import Categorical, step_probs
from berdiff.diffusion.sampler import Posterior, Sampler
from berdiff.diffusion.schedule import SCHEDULES, NoiseSchedule, linear
from diffusion.brute_force import (
    LENGTHS,
    Case,
    assert_fits,
    cases,
    early,
    forgotten,
    get_schedule,
    maths,
    probabilities,
)
from refusals import refused

POSTERIORS: tuple[Posterior, ...] = ("soft", "marginal")
sizes = st.sampled_from([2, 3, 4])  # C
seeds = st.integers(0, 1000)


@cache
def chain(schedule: NoiseSchedule, s: int, t: int, C: int) -> np.ndarray:
    """q(y_t | y_s) as the product of the one-step CxC matrices s+1..t, [y_s, y_t]."""
    product = np.eye(C)
    for beta in schedule.beta[s + 1 : t + 1].tolist():
        product = product @ ((1 - beta) * np.eye(C) + beta / C)
    return product


@cache
def bayes(schedule: NoiseSchedule, t: int, s: int, C: int) -> np.ndarray:
    """q(y_s | y_t, y0) by Bayes' rule over the C states of y_s, [y_t, y0, y_s]."""
    joint = chain(schedule, s, t, C).T[:, None] * chain(schedule, 0, s, C)[None]
    return joint / joint.sum(-1, keepdims=True)


def reverse_step(case: Case, p: np.ndarray, posterior: str) -> np.ndarray:
    """Eq. 6 by sums over the states, [y_t, y_s], from the classes' probabilities `(C,)`."""
    C = len(p)
    if posterior == "marginal":
        return np.einsum("k,ikj->ij", p, bayes(case.schedule, case.t, case.s, C))
    joint = chain(case.schedule, case.s, case.t, C).T * (p @ chain(case.schedule, 0, case.s, C))
    return joint / joint.sum(1, keepdims=True)


def classes(case: Case, C: int) -> torch.Tensor:
    """`(1, C, C, 1, 1)`: one pixel of each class."""
    return case.tensor(np.eye(C)).reshape(1, C, C, 1, 1)


def pairs(case: Case, C: int) -> tuple[torch.Tensor, torch.Tensor]:
    """y_t and y0 `(1, C * C, C, 1, 1)`, each with each."""
    one = classes(case, C)
    return one.repeat_interleave(C, 1), one.repeat(1, C, 1, 1, 1)


def some_law(seed: int, C: int) -> np.ndarray:
    """Probabilities `(C,)` from near 0 to near 1, sometimes exactly 0 or 1."""
    rng = np.random.default_rng(seed)
    if seed % 7 == 0:
        return np.eye(C)[seed % C]
    return rng.dirichlet(np.full(C, 10.0 ** rng.uniform(-2, 1)))


def everywhere(case: Case, p: np.ndarray) -> torch.Tensor:
    """The law of one pixel beside each of its C noisy states."""
    return case.tensor(p).reshape(1, 1, -1, 1, 1).expand(1, len(p), -1, 1, 1)


def close(found: torch.Tensor, expected: np.ndarray, case: Case, scale: float = 1) -> None:
    np.testing.assert_allclose(found.double().numpy().reshape(expected.shape), expected, 0, case.tolerance * scale)


# --- the forward process ---------------------------------------------------------------------------------------------


@given(cases(), sizes)
@maths
def test_marginal_is_the_matrix_chain(case: Case, C: int) -> None:
    q = categorical.q_marginal(case.schedule, classes(case, C), case.t)
    assert q.dtype == case.dtype
    close(q, chain(case.schedule, 0, case.t, C), case)


def test_all_classes_tend_to_the_same_noise() -> None:
    for name, T, C in itertools.product(SCHEDULES, LENGTHS, (2, 3, 4)):
        y0 = torch.eye(C, dtype=torch.float64)[None, ..., None, None]
        q = categorical.q_marginal(get_schedule(name, T), y0, T)
        torch.testing.assert_close(q, torch.full_like(q, 1 / C), rtol=0, atol=1e-4)


def numbers(y: torch.Tensor) -> torch.Tensor:
    """The class of each pixel of masks `(..., K, H, W)`, the background 0."""
    return torch.einsum("...khw,k->...hw", y.double(), torch.arange(1.0, y.shape[-3] + 1).double()).long()


def in_order(p: np.ndarray) -> np.ndarray:
    """Probabilities of the kernel's classes in the order of `numbers`."""
    return np.roll(p, 1, -1)


def test_q_sample_draws_the_marginal_with_a_time_for_each_mask() -> None:
    n = 20_000
    for name, C in (("linear", 2), ("cosine", 3), ("power2.5", 4)):
        kernel, t = Categorical(get_schedule(name, 1000)), torch.tensor([[37, 400, 1000]])
        for c, y in enumerate(torch.eye(C)):
            y0 = y[:-1].reshape(1, 1, -1, 1, 1).expand(1, 3, -1, 1, n)
            y_t, eps = kernel.q_sample(y0, t, torch.Generator().manual_seed(c))
            assert y_t.shape == y0.shape
            assert torch.equal(eps, (y_t != y0).float())
            for drawn, time in zip(numbers(y_t)[0], t[0].tolist(), strict=True):
                counts = np.bincount(drawn.flatten().numpy(), minlength=C)
                assert_fits(counts, in_order(chain(kernel.schedule, 0, time, C)[c]))


def test_q_sample_changes_pixels_independently() -> None:
    """One pair of neighbours, many masks: all nine outcomes have the product of the marginals."""
    kernel, n = Categorical(get_schedule("linear", 1000)), 100_000
    y0 = torch.zeros(1, n, 2, 1, 2)
    y0[:, :, 1, :, 1] = 1  # background beside the second target
    left, right = numbers(kernel.q_sample(y0, 300, torch.Generator().manual_seed(2))[0])[0, :, 0].unbind(-1)
    q = in_order(chain(kernel.schedule, 0, 300, 3))
    assert_fits(np.bincount((3 * left + right).numpy(), minlength=9), np.outer(q[2], q[1]).flatten())


# --- the posterior ---------------------------------------------------------------------------------------------------


@given(cases(), sizes)
@example(early(5, 4), 3)
@example(forgotten(0), 4)
@example(forgotten(999, "power4"), 3)
@maths
def test_posterior_is_bayes(case: Case, C: int) -> None:
    y_t, y0 = pairs(case, C)
    for posterior in (categorical.theta_post, categorical.marginal_post):
        found = posterior(case.schedule, y_t, y0, case.t, case.s)
        assert found.dtype == case.dtype
        close(found, bayes(case.schedule, case.t, case.s, C), case, 2)


@given(cases(), sizes, seeds, st.sampled_from(POSTERIORS))
@example(early(5, 4), 3, 1, "marginal")
@example(forgotten(999), 3, 1, "marginal")
@example(forgotten(999), 4, 1, "soft")
@maths
def test_reverse_mean_is_the_sum_over_all_states(case: Case, C: int, seed: int, posterior: Posterior) -> None:
    """ "marginal": the sum over y0 of Bayes' posterior; "soft": eq. 4 with a soft y0, as the paper prints it."""
    p = some_law(seed, C)
    found = categorical.reverse_mean(case.schedule, classes(case, C), everywhere(case, p), case.t, case.s, posterior)
    close(found, reverse_step(case, p, posterior), case, 2)


def test_no_sigma_gives_the_exact_marginal_from_three_classes_on() -> None:
    """With two states Bayes' posterior lies in the family, at `sigma_ddpm`. With more, a class that is neither y_t nor
    y0 gets Q_a Q_b / Q_ab, which knows whether y_t is y0; but every member of the family gives it the same."""
    case = Case(get_schedule("cosine", 1000), 500, 400, torch.float64)
    top = bernoulli.sigma_max(case.schedule, case.t, case.s, torch.zeros(()))
    two_states = bernoulli.sigma_ddpm(case.schedule, case.t, case.s, torch.zeros(()))
    errors = {}
    for C in (2, 3, 4):
        of_bayes = torch.as_tensor(bayes(case.schedule, case.t, case.s, C)).reshape(1, C * C, C, 1, 1)
        for sigma in [two_states, *(top * torch.linspace(0, 1, 101))]:
            found = categorical.sigma_post(case.schedule, *pairs(case, C), case.t, case.s, sigma)
            errors.setdefault(C, []).append(float((found - of_bayes).abs().max()))
        exact = categorical.marginal_post(case.schedule, *pairs(case, C), case.t, case.s)
        torch.testing.assert_close(exact, of_bayes, rtol=0, atol=1e-12)
    assert errors[2][0] < 1e-12
    assert errors[3][0] > 0.03
    assert min(errors[3]) > 0.015
    assert min(errors[4]) > 0.015


# --- the family of the same marginals --------------------------------------------------------------------------------


def family(case: Case, C: int, sigma: float) -> np.ndarray:
    """Algorithm 2's DDIM line with / C, without any guard, [y_t, y0, y_s]."""
    b, alpha_bar_t = float(case.schedule.alpha_bar[case.s]), float(case.schedule.alpha_bar[case.t])
    one = np.eye(C)
    rest = ((1 - b) - (1 - alpha_bar_t) * sigma) / C
    return sigma * one[:, None] + (b - sigma * alpha_bar_t) * one[None] + rest


@given(cases(), sizes, probabilities)
@example(forgotten(500), 3, 0.5)
@maths
def test_family_is_algorithm_2_and_keeps_the_marginal_for_every_sigma(case: Case, C: int, share: float) -> None:
    y_t, y0 = pairs(case, C)
    sigma = share * bernoulli.sigma_max(case.schedule, case.t, case.s, y_t)
    found = categorical.sigma_post(case.schedule, y_t, y0, case.t, case.s, sigma)
    close(found, family(case, C, float(sigma)), case)
    law = found.double().numpy().reshape(C, C, C)
    kept = np.einsum("kt,tkj->kj", chain(case.schedule, 0, case.t, C), law)
    np.testing.assert_allclose(kept, chain(case.schedule, 0, case.s, C), 0, 2 * case.tolerance)


@given(cases(), sizes)
@maths
def test_sigma_max_is_where_validity_ends_whatever_the_classes(case: Case, C: int) -> None:
    top = float(bernoulli.sigma_max(case.schedule, case.t, case.s, torch.zeros(1, dtype=torch.float64)))
    assert -1e-12 <= family(case, C, top).min() <= family(case, C, top).max() <= 1 + 1e-12
    beyond = family(case, C, top * 1.01 + 1e-3)  # relative and absolute, as the top is 0 at s = 0
    assert beyond.min() < 0 or beyond.max() > 1


@given(cases(), sizes)
@maths
def test_the_last_step_with_a_known_mask_is_that_mask(case: Case, C: int) -> None:
    y_t, y0 = pairs(case, C)
    ddpm = Sampler(rule="ddpm", last_step="sample")
    for sampler in (ddpm, replace(ddpm, posterior="marginal"), Sampler(last_step="sample"), Sampler()):
        p = step_probs(case.schedule, sampler, y_t, y0, case.t, 0)
        torch.testing.assert_close(p, y0, rtol=0, atol=case.tolerance)
        assert torch.equal(categorical.draw(p, torch.Generator().manual_seed(0)), categorical.targets(y0))


def test_half_precision_stays_finite() -> None:
    steps, halves = ((1, 0), (5, 0), (5, 4), (900, 1), (1000, 999)), (torch.bfloat16, torch.float16)
    for name, dtype, (t, s), C in itertools.product(("linear", "power2.5"), halves, steps, (3, 4)):
        case = Case(get_schedule(name, 1000), t, s, dtype)
        for posterior in POSTERIORS:
            found = categorical.reverse_mean(case.schedule, *pairs(case, C), t, s, posterior)
            expected = bayes(case.schedule, t, s, C)
            np.testing.assert_allclose(found.double().numpy().reshape(expected.shape), expected, 0, 0.02)


# --- eqs. 8-10 -------------------------------------------------------------------------------------------------------


def logits_of(seed: int, C: int) -> np.ndarray:
    """`(K,)`, up to 12 in size."""
    return np.random.default_rng(seed).uniform(-12, 12, C - 1)


def softmax(logits: np.ndarray) -> np.ndarray:
    """All classes from K logits, that of the background being 0."""
    weights = np.exp(np.append(logits, 0.0))
    return weights / weights.sum()


@given(cases(), sizes, seeds, st.sampled_from(POSTERIORS))
@example(early(8, 7), 3, 1, "marginal")
@example(early(3, 2), 3, 2, "soft")
@example(forgotten(999), 4, 3, "soft")
@example(forgotten(999), 4, 3, "marginal")
@maths
def test_kl_loss_is_that_of_torch_distributions(case: Case, C: int, seed: int, posterior: Posterior) -> None:
    logits = logits_of(seed, C)
    p = softmax(logits)
    y_t, y0 = pairs(case, C)
    log_p = categorical.log_probs(case.tensor(logits).reshape(1, 1, -1, 1, 1)).expand(1, C * C, -1, 1, 1)
    log_mean = categorical.log_reverse(case.schedule, y_t, log_p, case.t, case.s, posterior)
    mean = reverse_step(case, p, posterior).repeat(C, 0)
    rounding = 1e-9 if case.dtype == torch.float64 else 2e-5
    np.testing.assert_allclose(log_mean.double().numpy().reshape(mean.shape), np.log(mean), rounding, rounding)

    found = categorical.kl_loss(case.schedule, y_t, y0, log_p, case.t, case.s, posterior)
    assert found.shape == (1, C * C, 1, 1, 1)
    q = torch.as_tensor(bayes(case.schedule, case.t, case.s, C)).flatten(0, 1)
    expected = distributions.kl_divergence(
        distributions.Categorical(probs=q, validate_args=False), distributions.Categorical(torch.as_tensor(mean))
    )
    rounding = 1e-8 if case.dtype == torch.float64 else 4e-6
    np.testing.assert_allclose(found.double().flatten().numpy(), expected.numpy(), 1e-4, rounding)


@given(sizes, seeds)
@maths
def test_cross_entropy_is_that_of_torch_distributions(C: int, seed: int) -> None:
    logits = torch.as_tensor(logits_of(seed, C)).reshape(1, 1, -1, 1, 1)
    log_p = categorical.log_probs(logits)
    law = distributions.Categorical(torch.as_tensor(softmax(logits.flatten().numpy())))
    states = torch.eye(C, dtype=torch.float64).reshape(C, 1, 1, C, 1, 1)
    for c, y0 in enumerate(states):
        found = categorical.ce_loss(y0, log_p)
        assert float(found) == pytest.approx(-float(law.log_prob(torch.tensor(c))), rel=1e-9)
        # at s = 0 the KL divergence is the same
        args = (states[0], y0, log_p, 700, 0, "marginal")
        divergence = categorical.kl_loss(get_schedule("linear", 1000), *args)
        assert float(divergence) == pytest.approx(float(found), rel=1e-9)
    torch.testing.assert_close(categorical.probs(logits), log_p.exp())


def test_gradient_of_the_kl_loss() -> None:
    case = Case(get_schedule("linear", 1000), 1, 0, torch.float64)
    y_t, y0 = pairs(case, 3)
    logits = torch.randn(1, 9, 2, 1, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    logits.requires_grad_()
    steps = (("linear", 1, 0), ("linear", 500, 400), ("cosine", 2, 1), ("power2.5", 1000, 999))
    for (name, t, s), posterior in itertools.product(steps, POSTERIORS):

        def loss(z: torch.Tensor, name=name, t=t, s=s, posterior=posterior) -> torch.Tensor:
            return categorical.kl_loss(get_schedule(name, 1000), y_t, y0, categorical.log_probs(z), t, s, posterior)

        assert torch.autograd.gradcheck(loss, logits)


def test_loss_and_gradient_are_finite_everywhere() -> None:
    """Every pair of classes, logits from -1e4 to 1e4, at the first steps and the last."""
    values = torch.tensor([-1e4, -100.0, -17.0, 0.0, 17.0, 100.0, 1e4])
    pixels = torch.cartesian_prod(values, values).T  # (K, pixels)
    times = torch.tensor([1, 2, 3, 500, 999, 1000])
    for name, dtype, posterior in itertools.product(SCHEDULES, (torch.float32, torch.float64), POSTERIORS):
        kernel = Categorical(get_schedule(name, 1000), posterior=posterior)
        y_t, y0 = (y[0, :, :-1, :, :, None] for y in pairs(Case(kernel.schedule, 1, 0, dtype), 3))
        shape = (len(times), 9, 2, 1, pixels.shape[1])
        y_t, y0 = (y.squeeze(-1).expand(len(times), -1, -1, -1, -1).expand(shape) for y in (y_t, y0))
        output = pixels.to(dtype)[:, None].expand(shape).clone().requires_grad_()
        terms = kernel.loss(output, y0, y_t, y_t, times[:, None].expand(-1, 9))
        assert all(bool(torch.isfinite(term)) for term in terms.values()), (name, dtype, posterior)
        (grad,) = torch.autograd.grad(terms["loss"], output)
        assert bool(torch.isfinite(grad).all()), (name, dtype, posterior)


def random_batch(K: int, seed: int = 5) -> tuple[torch.Tensor, ...]:
    """y0, y_t, eps, t and an output for masks `(2, 3, K, 4, 4)`, in float64, at six different steps."""
    generator = torch.Generator().manual_seed(seed)
    y0 = categorical.draw(torch.ones(2, 3, K + 1, 4, 4, dtype=torch.float64), generator)
    t = torch.tensor([[1, 40, 100], [7, 60, 2]])
    y_t, eps = Categorical(get_schedule("cosine", 100)).q_sample(y0, t, generator)
    return y0, y_t, eps, t, torch.randn(y0.shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_loss_is_the_weighted_sum_of_both_means_over_pixels(posterior: Posterior) -> None:
    schedule = get_schedule("cosine", 100)
    y0, y_t, eps, t, output = random_batch(2)
    found = Categorical(schedule, 0.5, 2.0, posterior).loss(output, y0, y_t, eps, t)
    divergence = cross_entropy = 0.0
    full = [categorical.with_background(y).argmax(2) for y in (y0, y_t)]
    for b, n, row, column in np.ndindex(2, 3, 4, 4):
        case, p = Case(schedule, int(t[b, n]), int(t[b, n]) - 1, torch.float64), softmax(output[b, n, :, row, column])
        of_y0, of_y_t = (int(y[b, n, row, column]) for y in full)
        q, mean = bayes(schedule, case.t, case.s, 3)[of_y_t, of_y0], reverse_step(case, p, posterior)[of_y_t]
        divergence += sum(u * math.log(u / v) for u, v in zip(q, mean, strict=True) if u > 0) / 96
        cross_entropy -= math.log(p[of_y0]) / 96
    assert float(found["kl"]) == pytest.approx(divergence, rel=1e-9)
    assert float(found["ce"]) == pytest.approx(cross_entropy, rel=1e-9)
    assert float(found["loss"]) == pytest.approx(0.5 * divergence + 2 * cross_entropy, rel=1e-9)
    for term, weights in (("kl", (1.0, 0.0)), ("ce", (0.0, 1.0))):  # a term of weight 0 is left out
        one = Categorical(schedule, *weights, posterior).loss(output, y0, y_t, eps, t)
        assert one.keys() == {"loss", term}
        assert float(one["loss"]) == float(one[term]) == float(found[term])


# --- two classes are the Bernoulli kernel ----------------------------------------------------------------------------

RULES = {
    "ddpm-soft": Sampler(rule="ddpm", posterior="soft"),
    "ddpm-marginal": Sampler(rule="ddpm", posterior="marginal"),
    "ddim-max": Sampler(sigma=1.0),
    "ddim-half": Sampler(sigma=0.5),
    "ddim-zero": Sampler(sigma=0.0),
}


@given(cases(), probabilities, st.floats(-12, 12))
@example(early(5, 4), 0.3, 1.0)
@example(forgotten(999), 0.3, 1.0)
@maths
def test_two_classes_are_the_bernoulli_kernel(case: Case, p: float, logit: float) -> None:
    """Marginal, every step of every rule, and both losses, for both y_t, with a y0 that is sure and one that is not."""
    y_t = case.tensor([0.0, 1, 0, 1, 0, 1]).reshape(1, 6, 1, 1, 1)
    y0 = case.tensor([0.0, 0, 1, 1, p, p]).reshape(1, 6, 1, 1, 1)
    full_t, full_0 = categorical.with_background(y_t), categorical.with_background(y0)

    def same(found: torch.Tensor, expected: torch.Tensor, scale: float = 2) -> None:
        torch.testing.assert_close(categorical.targets(found), expected, rtol=0, atol=scale * case.tolerance)
        close(found.sum(-3), np.ones(6), case, scale)

    same(categorical.q_marginal(case.schedule, full_0, case.t), bernoulli.q_marginal(case.schedule, y0, case.t))
    last = [(0, Sampler()), (0, Sampler(last_step="sample"))]
    for s, rule in [*((case.s, replace(rule, last_step="sample")) for rule in RULES.values()), *last]:
        expected = bernoulli_step_prob(case.schedule, rule, y_t, y0, case.t, s)
        same(step_probs(case.schedule, rule, full_t, full_0, case.t, s), expected)
    z, hard = torch.full_like(y_t, logit)[:, :4], (y_t[:, :4], y0[:, :4])
    log_p, full = categorical.log_probs(z), (full_t[:, :4], full_0[:, :4])
    rounding = {"rtol": 1e-5, "atol": 1e-9 if case.dtype == torch.float64 else 4e-6}
    for posterior in POSTERIORS:
        torch.testing.assert_close(
            categorical.kl_loss(case.schedule, *full, log_p, case.t, case.s, posterior),
            losses.kl_loss(case.schedule, *hard, z, case.t, case.s, posterior),
            **rounding,
        )
    torch.testing.assert_close(categorical.ce_loss(full[1], log_p), losses.bce_loss(hard[1], z), **rounding)


def test_two_classes_have_the_bernoulli_loss_and_gradient() -> None:
    schedule, (y0, y_t, eps, t, output) = get_schedule("cosine", 100), random_batch(1)
    output.requires_grad_()
    weight = torch.tensor([[0.2, 0.0, 1.5], [0.0, 0.1, 0.0]], dtype=torch.float64)
    for posterior, of_masks in itertools.product(POSTERIORS, (None, weight)):
        ours = Categorical(schedule, 0.7, 0.4, posterior).loss(output, y0, y_t, eps, t, of_masks)
        theirs = Bernoulli(schedule, "mask", 0.7, 0.4, posterior).loss(output, y0, y_t, eps, t, of_masks)
        for found, expected in zip(ours.values(), theirs.values(), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
        grads = [torch.autograd.grad(terms["loss"], output)[0] for terms in (ours, theirs)]
        torch.testing.assert_close(*grads, rtol=1e-8, atol=1e-12)


# --- refusing --------------------------------------------------------------------------------------------------------


def test_what_is_no_posterior_and_no_time_is_refused() -> None:
    y = torch.eye(3)[None, ..., None, None]
    for function in (categorical.reverse_mean, categorical.log_reverse):
        with refused("posterior:", error=ValueError):
            function(linear(10), y, y, 5, 4, "hard")
    for t in (torch.tensor([[3, 4]]), torch.tensor([[[3, 4, 5]]]), 0, 11):
        for call in (
            lambda t: categorical.q_marginal(linear(10), y, t),
            lambda t: categorical.theta_post(linear(10), y, y, t, t - 1),
            lambda t: categorical.sigma_post(linear(10), y, y, t, t - 1, 0.0),
        ):
            with pytest.raises(ValueError, match=r"t.*expected .* found "):
                call(t)
