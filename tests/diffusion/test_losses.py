"""The losses against sums over states and torch.distributions, and the ELBO exactly."""

import itertools
import math
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats
from torch.distributions import Bernoulli

from berdiff.diffusion import bernoulli, losses
from berdiff.diffusion.sampler import Posterior, Sampler
from berdiff.diffusion.schedule import SCHEDULES, NoiseSchedule
from diffusion.brute_force import (
    TEST_FAILURE_RATE,
    Case,
    bayes,
    bits,
    cases,
    chain,
    early,
    forgotten,
    get_schedule,
    kl,
    maths,
    reverse_step,
)
from refusals import refused
from reproduce import exact

POSTERIORS: tuple[Posterior, ...] = ("soft", "marginal")
logits_of_reason = st.floats(-12, 12)


# --- eq. 8 -----------------------------------------------------------------------------------------------------------


@given(cases(), bits, logits_of_reason, st.sampled_from(POSTERIORS))
@example(early(8, 7), 1.0, 12.0, "marginal")
@example(early(3, 2), 0.0, 10.0, "soft")
@example(forgotten(999), 1.0, 2.0, "soft")
@example(forgotten(999), 1.0, 2.0, "marginal")
@maths
def test_log_reverse_is_the_log_of_the_reverse_step(case: Case, y_t: float, logit: float, posterior: Posterior) -> None:
    ones, zeros = reverse_step(case, y_t, 1 / (1 + math.exp(-logit)), posterior)
    log_ones, log_zeros = losses.log_reverse(
        case.schedule, case.tensor([y_t]), case.tensor([logit]), case.t, case.s, posterior
    )
    rounding = 1e-9 if case.dtype == torch.float64 else 2e-5
    assert float(log_ones) == pytest.approx(math.log(ones), rel=rounding, abs=rounding)
    assert float(log_zeros) == pytest.approx(math.log(zeros), rel=rounding, abs=rounding)


@given(cases(), bits, bits, logits_of_reason, st.sampled_from(POSTERIORS))
@example(early(8, 7), 1.0, 0.0, 12.0, "marginal")
@example(early(3, 2), 0.0, 1.0, 10.0, "soft")
@example(forgotten(999), 1.0, 0.0, 2.0, "soft")
@example(forgotten(999), 1.0, 0.0, 2.0, "marginal")
@maths
def test_kl_loss_is_the_kl_of_the_two_steps(
    case: Case, y_t: float, y0: float, logit: float, posterior: Posterior
) -> None:
    p = bayes(case.schedule, int(y_t), int(y0), case.t, case.s)
    mean, other = reverse_step(case, y_t, 1 / (1 + math.exp(-logit)), posterior)
    expected = sum(u * math.log(u / v) for u, v in ((p, mean), (1 - p, other)) if u > 0)
    args = case.tensor([y_t]), case.tensor([y0]), case.tensor([logit])
    found = float(losses.kl_loss(case.schedule, *args, case.t, case.s, posterior))
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-9 if case.dtype == torch.float64 else 2e-6)


@given(cases(), bits, bits, logits_of_reason)
@maths
def test_the_first_step_back_is_a_log_likelihood(case: Case, y_t: float, y0: float, logit: float) -> None:
    args = case.tensor([y_t]), case.tensor([y0]), case.tensor([logit])
    found = losses.kl_loss(case.schedule, *args, case.t, 0, "marginal")
    p = 1 / (1 + math.exp(-logit))
    assert float(found) == pytest.approx(-math.log(p if y0 else 1 - p), rel=1e-5)


def test_gradient_of_the_kl_loss() -> None:
    y_t, y0 = torch.tensor([0.0, 0, 1, 1], dtype=torch.float64), torch.tensor([0.0, 1, 0, 1], dtype=torch.float64)
    logits = torch.tensor([-2.0, 0.5, 3.0, 0.0], dtype=torch.float64, requires_grad=True)
    steps = ((1, 0), (2, 1), (500, 400), (1000, 999))
    for name, (t, s), posterior in itertools.product(("linear", "power2.5"), steps, POSTERIORS):
        args = get_schedule(name, 1000), y_t, y0
        assert torch.autograd.gradcheck(lambda z: losses.kl_loss(*args, z, t, s, posterior), logits)  # noqa: B023


def test_loss_and_gradient_are_finite_everywhere() -> None:
    """All-zero and all-one masks, every y_t, logits from -1e4 to 1e4, at the first steps and the last."""
    corners = torch.tensor(list(itertools.product((0.0, 1.0), (0.0, 1.0), (1, 2, 3, 500, 999, 1000)))).T
    values = torch.tensor([-1e4, -100.0, -17.0, -1.0, 0.0, 1.0, 17.0, 100.0, 1e4])
    t = corners[2].long()
    for name, dtype in itertools.product(SCHEDULES, (torch.float32, torch.float64)):
        y0, y_t = (corner.to(dtype)[:, None].expand(-1, len(values)) for corner in corners[:2])
        for prediction, posterior in itertools.product(losses.PREDICTIONS, POSTERIORS):
            logits = values.to(dtype).expand(y0.shape).clone().requires_grad_()
            args = logits, y0, y_t, bernoulli.xor(y0, y_t), t, prediction
            terms = losses.total_loss(get_schedule(name, 1000), *args, posterior=posterior)
            assert all(bool(torch.isfinite(term)) for term in terms.values()), (name, dtype, prediction, posterior)
            terms["loss"].backward()
            assert logits.grad is not None
            assert bool(torch.isfinite(logits.grad).all()), (name, dtype, prediction, posterior)


# --- eqs. 9, 10 ------------------------------------------------------------------------------------------------------


@given(bits, bits, st.floats(-30, 30))
@maths
def test_bce_of_the_flips_is_bce_of_the_mask(y0: float, y_t: float, logit: float) -> None:
    y0_, y_t_, z = (torch.tensor([v], dtype=torch.float64) for v in (y0, y_t, logit))
    noise = float(losses.bce_loss(bernoulli.xor(y0_, y_t_), z))
    mask = float(losses.bce_loss(y0_, bernoulli.predict_y0_logits(y_t_, z)))
    # -log of the probability given to what is true; 1 - sigmoid(z) = sigmoid(-z) keeps its digits
    true_logit = logit if y0 != y_t else -logit
    by_hand = math.log1p(math.exp(-abs(true_logit))) + max(-true_logit, 0)
    assert noise == pytest.approx(mask, abs=1e-12)
    assert noise == pytest.approx(by_hand, abs=1e-12)


def test_total_loss_is_the_weighted_sum_of_both_means() -> None:
    schedule, generator = get_schedule("linear", 100), torch.Generator().manual_seed(5)
    y0 = bernoulli.draw(torch.full((3, 1, 4, 4), 0.3, dtype=torch.float64), generator)
    t = torch.tensor([1, 40, 100])
    y_t, eps = bernoulli.q_sample(schedule, y0, t, generator)
    logits = torch.randn(y0.shape, generator=generator, dtype=torch.float64)
    for posterior in POSTERIORS:
        found = losses.total_loss(schedule, logits, y0, y_t, eps, t, "noise", 0.5, 2.0, posterior)
        divergence = cross_entropy = 0.0
        for i, time in enumerate(t.tolist()):
            eps_hat, case = torch.sigmoid(logits[i]), Case(schedule, time, time - 1, torch.float64)
            for u, v, e in zip(y_t[i].flatten().tolist(), y0[i].flatten().tolist(), eps_hat.flatten(), strict=True):
                p = bayes(schedule, int(u), int(v), time, time - 1)
                mean, _ = reverse_step(case, u, abs(u - float(e)), posterior)
                divergence += float(kl(torch.tensor(p), torch.tensor(mean))) / y0.numel()
            cross_entropy += float(-Bernoulli(probs=eps_hat).log_prob(eps[i]).mean()) / 3
        assert float(found["kl"]) == pytest.approx(divergence, rel=1e-5)
        assert float(found["bce"]) == pytest.approx(cross_entropy, rel=1e-6)
        assert float(found["loss"]) == pytest.approx(0.5 * divergence + 2 * cross_entropy, rel=1e-5)
        # the other prediction: the same estimate given as a mask has the same losses
        y0_logits = bernoulli.predict_y0_logits(y_t, logits)
        other = losses.total_loss(schedule, y0_logits, y0, y_t, eps, t, "mask", 0.5, 2.0, posterior)
        assert float(other["loss"]) == pytest.approx(float(found["loss"]), rel=1e-12)
    for term, weights in (("kl", (1.0, 0.0)), ("bce", (0.0, 1.0))):  # a term of weight 0 is left out
        one = losses.total_loss(schedule, logits, y0, y_t, eps, t, "noise", *weights)
        assert one.keys() == {"loss", term}
        assert float(one["loss"]) == float(one[term])


def test_an_unknown_prediction_is_refused() -> None:
    y = torch.zeros(2, 3)
    with refused("prediction:", error=ValueError):
        losses.total_loss(get_schedule("linear", 10), y, y, y, y, torch.tensor([4, 5]), "flips")  # type: ignore[arg-type]


# --- the prior term and the bound ------------------------------------------------------------------------------------


def test_prior_term() -> None:
    for name, T, dtype in itertools.product(SCHEDULES, (10, 100, 1000), (torch.float32, torch.float64)):
        schedule = get_schedule(name, T)
        c = float(schedule.alpha_bar[-1])
        found = losses.prior_kl(schedule, torch.tensor([0.0, 1.0], dtype=dtype)).tolist()
        # 8e-10 nats at T = 1000: float32 cannot find it by subtracting logarithms of 1/2
        assert found == ([pytest.approx(c**2 / 2, rel=1e-4, abs=1e-15)] * 2 if c else [0, 0])


@cache
def expected_mask(name: str, T: int, t: int) -> torch.Tensor:
    """`(512, 9)` for x = 0."""
    return exact.expected_mask(get_schedule(name, T), exact.truth()[:1], t)[0]


@cache
def elbo_by_enumeration(name: str, T: int, y0: int, posterior: Posterior) -> float:
    """The bound in bits per pixel for one 3x3 mask (by its number) of x = 0: every y_t weighed by its probability."""
    schedule, states = get_schedule(name, T), exact.STATES.numpy()
    mask = states[y0].astype(int)
    nats = 0.0
    for t in range(1, T + 1):
        flips = chain(schedule, 0, t)
        weight = np.prod([flips[mask[i], states[:, i].astype(int)] for i in range(9)], axis=0)
        mean = bernoulli.reverse_mean(schedule, exact.STATES, expected_mask(name, T, t), t, t - 1, posterior)
        p = np.array([[bayes(schedule, y_t, y, t, t - 1) for y in (0, 1)] for y_t in (0, 1)])
        p = torch.as_tensor(p[states.astype(int), mask])
        nats += float(weight @ kl(p, mean).sum(1).numpy())
    last = chain(schedule, 0, T)[0]
    nats += 9 * sum(u * math.log(2 * u) for u in last)
    return nats / 9 / math.log(2)


def test_elbo_is_the_enumerated_bound() -> None:
    T, n = 10, 2000
    digits = 2 ** torch.arange(8, -1, -1)
    for name, y0, posterior in itertools.product(("cosine", "power2.5"), (0, 0b000010011, 511), POSTERIORS):
        schedule = get_schedule(name, T)

        def predict_logits(y_t: torch.Tensor, t: int, name: str = name) -> torch.Tensor:
            states = (y_t.flatten(1).long() * digits).sum(1)
            return torch.logit(expected_mask(name, T, t))[states].reshape(y_t.shape)

        masks = exact.STATES[y0].reshape(1, 1, 3, 3).expand(n, 1, 3, 3)
        found = losses.elbo_bits(schedule, predict_logits, masks, torch.Generator().manual_seed(y0), posterior)
        assert found.shape == (n,)
        margin = stats.norm.isf(TEST_FAILURE_RATE / 2) * float(found.std()) / math.sqrt(n)
        assert float(found.mean()) == pytest.approx(elbo_by_enumeration(name, T, y0, posterior), abs=margin)


def test_elbo_bounds_the_likelihood_of_the_sampler() -> None:
    """-log2 p(y0) of the very chain that DDPM samples, from its exact law, is below the bound for every mask."""
    for posterior in POSTERIORS:
        sampler = Sampler(steps=10, rule="ddpm", posterior=posterior)
        (laws,) = exact.sampler_laws(get_schedule("cosine", 10), [("posterior", sampler)], exact.truth()[:1])
        for y0 in (0, 16, 0b000010011, 0b110110000, 511):
            bits_per_pixel = -math.log2(float(laws["sample"][0, y0])) / 9
            bound = elbo_by_enumeration("cosine", 10, y0, posterior)
            assert bits_per_pixel < bound < bits_per_pixel + 2


def test_elbo_is_the_prior_and_the_scaled_mean_of_the_steps() -> None:
    """Replayed with the same seed, so exact: T times the mean over the chosen steps; all of them by default."""
    schedule, y0 = get_schedule("linear", 10), torch.zeros(3, 1, 8, 8, dtype=torch.float64)
    y0[1] = 1
    for steps in ([4], [2, 9, 9], None):
        found = losses.elbo_bits(schedule, lambda y, t: y - 0.5, y0, torch.Generator().manual_seed(1), timesteps=steps)
        chosen = steps or list(range(1, 11))
        generator = torch.Generator().manual_seed(1)
        nats = torch.full((3,), float(schedule.alpha_bar[-1]) ** 2 / 2, dtype=torch.float64)
        for t in chosen:
            y_t, _ = bernoulli.q_sample(schedule, y0, t, generator)
            nats += losses.kl_loss(schedule, y_t, y0, y_t - 0.5, t, t - 1).mean((1, 2, 3)) * 10 / len(chosen)
        torch.testing.assert_close(found, nats / math.log(2))
    with refused("timesteps:", error=ValueError):
        losses.elbo_bits(schedule, lambda y, t: y, y0, torch.Generator(), timesteps=[])


def test_elbo_counts_what_is_still_known_at_T() -> None:
    schedule = NoiseSchedule(torch.tensor([1.0, 0.9, 0.6], dtype=torch.float64))
    y0 = torch.zeros(1, 1, 2, 2, dtype=torch.float64)

    def oracle(y_t: torch.Tensor, t: int) -> torch.Tensor:
        return torch.full_like(y_t, -1e4)  # sure that the mask is empty, and right: only the prior costs

    found = losses.elbo_bits(schedule, oracle, y0, torch.Generator().manual_seed(0))
    assert float(found) == pytest.approx(0.8 * math.log2(0.8) + 0.2 * math.log2(0.2) + 1, abs=1e-12)


def test_elbo_of_a_right_oracle_costs_nothing_where_T_is_pure_noise() -> None:
    y0 = bernoulli.draw(torch.full((2, 1, 4, 4), 0.5, dtype=torch.float64), torch.Generator().manual_seed(0))
    for posterior in POSTERIORS:
        args = (lambda y, t: (y0 - 0.5) * 1e4), y0, torch.Generator().manual_seed(0), posterior
        found = losses.elbo_bits(get_schedule("power4", 100), *args)
        torch.testing.assert_close(found, torch.zeros_like(found), rtol=0, atol=1e-12)
