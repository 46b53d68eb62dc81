"""Points 6 and 7: divergences against torch.distributions, losses against sums over states, the ELBO exactly."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats
from torch.distributions import Bernoulli, kl_divergence

from berdiff.diffusion import bernoulli, losses
from berdiff.diffusion.sampling import Sampler
from berdiff.diffusion.schedule import SCHEDULES, NoiseSchedule
from berdiff.experiments import exact
from properties.brute_force import (
    TEST_FAILURE_RATE,
    Case,
    bayes,
    bits,
    cases,
    chain,
    early,
    forgotten,
    get_schedule,
    maths,
    probabilities,
)

logits_of_reason = st.floats(-12, 12)


def reverse_mean(case: Case, y_t: float, p: float, posterior: str) -> tuple[float, float]:
    """(mu_hat, 1 - mu_hat) by sums over the states, in Python's floats; no subtraction, so small values keep digits."""
    if posterior == "marginal":
        ones = [bayes(case.schedule, int(y_t), y0, case.t, case.s) for y0 in (0, 1)]
        zeros = [bayes(case.schedule, 1 - int(y_t), 1 - y0, case.t, case.s) for y0 in (0, 1)]  # both states renamed
        return (1 - p) * ones[0] + p * ones[1], (1 - p) * zeros[0] + p * zeros[1]
    from_t, from_0 = chain(case.schedule, case.s, case.t)[:, int(y_t)], chain(case.schedule, 0, case.s)
    joint = from_t * ((1 - p) * from_0[0] + p * from_0[1])
    return joint[1] / joint.sum(), joint[0] / joint.sum()


# --- 6: the divergence of two Bernoullis -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(p=st.floats(0, 1, width=32), q=st.floats(2**-20, 1 - 2**-20, width=32))
@maths
def test_kl_is_torch_distributions(dtype: torch.dtype, p: float, q: float) -> None:
    p_, q_ = torch.tensor(p, dtype=dtype), torch.tensor(q, dtype=dtype)
    found = float(losses.kl_bernoulli(p_, q_))
    if 0 < p < 1:
        # by its logits torch keeps its digits; in float64, as the reference
        expected = kl_divergence(Bernoulli(probs=p_.double()), Bernoulli(probs=q_.double()))
        assert found == pytest.approx(float(expected), abs=1e-6 if dtype == torch.float64 else 5e-6)
    else:
        assert found == pytest.approx(-math.log(q if p == 1 else 1 - q), rel=1e-6)
    assert found >= -1e-6


@pytest.mark.parametrize(("p", "q"), list(itertools.product([0.0, 0.25, 1.0], [0.0, 1.0])))
def test_kl_at_the_corners(p: float, q: float) -> None:
    found = float(losses.kl_bernoulli(torch.tensor(p), torch.tensor(q)))
    assert found == (0 if p == q else math.inf)


# --- eq. 8 -----------------------------------------------------------------------------------------------------------


@given(cases(), bits, logits_of_reason, st.sampled_from(["soft", "marginal"]))
@example(early(8, 7), 1.0, 12.0, "marginal")
@example(early(3, 2), 0.0, 10.0, "soft")
@example(forgotten(999), 1.0, 2.0, "soft")
@example(forgotten(999), 1.0, 2.0, "marginal")
@maths
def test_log_reverse_is_the_log_of_the_reverse_step(
    case: Case, y_t: float, logit: float, posterior: bernoulli.Posterior
) -> None:
    ones, zeros = reverse_mean(case, y_t, 1 / (1 + math.exp(-logit)), posterior)
    log_ones, log_zeros = losses.log_reverse(
        case.schedule, case.tensor([y_t]), case.tensor([logit]), case.t, case.s, posterior
    )
    rounding = 1e-9 if case.dtype == torch.float64 else 2e-5
    assert float(log_ones) == pytest.approx(math.log(ones), rel=rounding, abs=rounding)
    assert float(log_zeros) == pytest.approx(math.log(zeros), rel=rounding, abs=rounding)


@given(cases(), bits, bits, logits_of_reason, st.sampled_from(["soft", "marginal"]))
@example(early(8, 7), 1.0, 0.0, 12.0, "marginal")
@example(early(3, 2), 0.0, 1.0, 10.0, "soft")
@example(forgotten(999), 1.0, 0.0, 2.0, "soft")
@example(forgotten(999), 1.0, 0.0, 2.0, "marginal")
@maths
def test_kl_loss_is_the_kl_of_the_two_steps(
    case: Case, y_t: float, y0: float, logit: float, posterior: bernoulli.Posterior
) -> None:
    p = bayes(case.schedule, int(y_t), int(y0), case.t, case.s)
    mean, other = reverse_mean(case, y_t, 1 / (1 + math.exp(-logit)), posterior)
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


@pytest.mark.parametrize("posterior", ["soft", "marginal"])
@pytest.mark.parametrize(("t", "s"), [(1, 0), (2, 1), (500, 400), (1000, 999)])
@pytest.mark.parametrize("name", ["linear", "power2.5"])
def test_gradient_of_the_kl_loss(name: str, t: int, s: int, posterior: bernoulli.Posterior) -> None:
    y_t, y0 = torch.tensor([0.0, 0, 1, 1], dtype=torch.float64), torch.tensor([0.0, 1, 0, 1], dtype=torch.float64)
    logits = torch.tensor([-2.0, 0.5, 3.0, 0.0], dtype=torch.float64, requires_grad=True)
    schedule = get_schedule(name, 1000)
    assert torch.autograd.gradcheck(lambda z: losses.kl_loss(schedule, y_t, y0, z, t, s, posterior), logits)


@pytest.mark.parametrize("posterior", ["soft", "marginal"])
@pytest.mark.parametrize("target", losses.TARGETS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SCHEDULES)
def test_loss_and_gradient_are_finite_everywhere(
    name: str, dtype: torch.dtype, target: losses.Target, posterior: bernoulli.Posterior
) -> None:
    """All-zero and all-one masks, every y_t, logits from -1e4 to 1e4, at the first steps and the last."""
    schedule = get_schedule(name, 1000)
    values = torch.tensor([-1e4, -100.0, -17.0, -1.0, 0.0, 1.0, 17.0, 100.0, 1e4], dtype=dtype)
    for t, y0_value, y_t_value in itertools.product((1, 2, 3, 500, 999, 1000), (0.0, 1.0), (0.0, 1.0)):
        logits = values.clone().requires_grad_()
        y0, y_t = torch.full_like(values, y0_value), torch.full_like(values, y_t_value)
        eps = bernoulli.xor(y0, y_t)
        times = torch.full((len(values),), t)
        terms = losses.total_loss(schedule, logits, y0, y_t, eps, times, target, posterior=posterior)
        assert all(bool(torch.isfinite(term)) for term in terms.values()), (t, y0_value, y_t_value)
        terms["loss"].backward()
        assert logits.grad is not None
        assert bool(torch.isfinite(logits.grad).all()), (t, y0_value, y_t_value)


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


@pytest.mark.parametrize("posterior", ["soft", "marginal"])
def test_total_loss_is_the_weighted_sum_of_both_means(posterior: bernoulli.Posterior) -> None:
    schedule, generator = get_schedule("linear", 100), torch.Generator().manual_seed(5)
    y0 = bernoulli.draw(torch.full((3, 1, 4, 4), 0.3, dtype=torch.float64), generator)
    t = torch.tensor([1, 40, 100])
    y_t, eps = bernoulli.q_sample(schedule, y0, t, generator)
    logits = torch.randn(y0.shape, generator=generator, dtype=torch.float64)
    found = losses.total_loss(
        schedule, logits, y0, y_t, eps, t, "noise", lambda_kl=0.5, lambda_bce=2.0, posterior=posterior
    )
    kl = bce = 0.0
    for i, time in enumerate(t.tolist()):
        eps_hat = torch.sigmoid(logits[i])
        mean = bernoulli.calibrate(schedule, y_t[i], eps_hat, time, time - 1, posterior)
        p = torch.tensor(
            [
                bayes(schedule, int(u), int(v), time, time - 1)
                for u, v in zip(y_t[i].flatten(), y0[i].flatten(), strict=True)
            ]
        ).reshape(mean.shape)
        ones, zeros = torch.xlogy(p, p / mean), torch.xlogy(1 - p, (1 - p) / (1 - mean))
        kl += float((ones + zeros).mean()) / 3
        bce += float(-Bernoulli(probs=eps_hat).log_prob(eps[i]).mean()) / 3
    assert float(found["kl"]) == pytest.approx(kl, rel=1e-6)
    assert float(found["bce"]) == pytest.approx(bce, rel=1e-6)
    assert float(found["loss"]) == pytest.approx(0.5 * kl + 2 * bce, rel=1e-6)
    # the other target: the same estimate told as a mask gives the same losses
    y0_logits = bernoulli.predict_y0_logits(y_t, logits)
    other = losses.total_loss(schedule, y0_logits, y0, y_t, eps, t, "mask", 0.5, 2.0, posterior)
    assert float(other["loss"]) == pytest.approx(float(found["loss"]), rel=1e-12)


@pytest.mark.parametrize(("lambda_kl", "lambda_bce", "left"), [(1.0, 0.0, {"kl"}), (0.0, 1.0, {"bce"})])
def test_a_term_of_weight_zero_is_left_out(lambda_kl: float, lambda_bce: float, left: set[str]) -> None:
    y = torch.zeros(2, 3)
    t = torch.tensor([4, 5])
    terms = losses.total_loss(get_schedule("linear", 10), y, y, y, y, t, "noise", lambda_kl, lambda_bce)
    assert set(terms) == {"loss", *left}
    assert float(terms["loss"]) == float(terms[left.pop()])


def test_an_unknown_target_is_refused() -> None:
    y = torch.zeros(2, 3)
    with pytest.raises(ValueError, match=r"^target: expected .* found 'flips'"):
        losses.total_loss(get_schedule("linear", 10), y, y, y, y, torch.tensor([4, 5]), "flips")  # type: ignore[arg-type]


# --- 7: the prior term and the bound ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("T", [10, 100, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_prior_term(name: str, T: int, dtype: torch.dtype) -> None:
    schedule = get_schedule(name, T)
    c = float(schedule.alpha_bar[-1])
    for y0 in (0.0, 1.0):
        found = float(losses.prior_kl(schedule, torch.tensor([y0], dtype=dtype)))
        # 8e-10 nats at T = 1000: float32 cannot find it by subtracting logarithms of 1/2
        assert found == (pytest.approx(c**2 / 2, rel=1e-4, abs=1e-15) if c else 0)


def elbo_by_enumeration(name: str, T: int, y0: int, posterior: bernoulli.Posterior) -> float:
    """The bound in bits per pixel for one 3x3 mask (by its number) of x = 0: every y_t weighed by its probability."""
    schedule, law, states = get_schedule(name, T), exact.truth()[:1], exact.STATES.numpy()
    mask = states[y0].astype(int)
    nats = 0.0
    for t in range(1, T + 1):
        flips = chain(schedule, 0, t)
        weight = np.prod([flips[mask[i], states[:, i].astype(int)] for i in range(9)], axis=0)
        y0_hat = exact.expected_mask(schedule, law, t)[0]
        mean = bernoulli.reverse_mean(schedule, exact.STATES, y0_hat, t, t - 1, posterior)
        p = np.array([[bayes(schedule, y_t, y, t, t - 1) for y in (0, 1)] for y_t in (0, 1)])
        p = torch.as_tensor(p[states.astype(int), mask])
        kl = torch.xlogy(p, p / mean) + torch.xlogy(1 - p, (1 - p) / (1 - mean))
        nats += float(weight @ kl.sum(1).numpy())
    last = chain(schedule, 0, T)[0]
    nats += 9 * sum(u * math.log(2 * u) for u in last)
    return nats / 9 / math.log(2)


@pytest.mark.parametrize("posterior", ["soft", "marginal"])
@pytest.mark.parametrize("y0", [0, 0b000010011, 511])
@pytest.mark.parametrize("name", ["cosine", "power2.5"])
def test_elbo_is_the_enumerated_bound(name: str, y0: int, posterior: bernoulli.Posterior) -> None:
    T, n = 10, 4000
    schedule, law = get_schedule(name, T), exact.truth()[:1]
    digits = 2 ** torch.arange(8, -1, -1)

    def predict_logits(y_t: torch.Tensor, t: int) -> torch.Tensor:
        states = (y_t.flatten(1).long() * digits).sum(1)
        return torch.logit(exact.expected_mask(schedule, law, t)[0])[states].reshape(y_t.shape)

    masks = exact.STATES[y0].reshape(1, 1, 3, 3).expand(n, 1, 3, 3)
    found = losses.elbo_bits(schedule, predict_logits, masks, torch.Generator().manual_seed(y0), posterior)
    assert found.shape == (n,)
    expected = elbo_by_enumeration(name, T, y0, posterior)
    margin = stats.norm.isf(TEST_FAILURE_RATE / 2) * float(found.std()) / math.sqrt(n)
    assert float(found.mean()) == pytest.approx(expected, abs=margin)


@pytest.mark.parametrize("posterior", ["soft", "marginal"])
def test_elbo_bounds_the_likelihood_of_the_sampler(posterior: bernoulli.Posterior) -> None:
    """-log2 p(y0) of the very chain that DDPM samples, from its exact law, is below the bound for every mask."""
    sampler = Sampler(steps=10, rule="ddpm", posterior=posterior)
    (laws,) = exact.sampler_laws(get_schedule("cosine", 10), [sampler], exact.truth()[:1])
    for y0 in (0, 16, 0b000010011, 0b110110000, 511):
        bits_per_pixel = -math.log2(float(laws["sample"][0, y0])) / 9
        bound = elbo_by_enumeration("cosine", 10, y0, posterior)
        assert bits_per_pixel < bound < bits_per_pixel + 2


@pytest.mark.parametrize("steps", [[4], [2, 9, 9], None])
def test_elbo_is_the_prior_and_the_scaled_mean_of_the_steps(steps: list[int] | None) -> None:
    """Replayed with the same seed, so exact: T times the mean over the chosen steps; all of them by default."""
    schedule, y0 = get_schedule("linear", 10), torch.zeros(3, 1, 8, 8, dtype=torch.float64)
    y0[1] = 1
    found = losses.elbo_bits(schedule, lambda y, t: y - 0.5, y0, torch.Generator().manual_seed(1), timesteps=steps)
    chosen = steps or list(range(1, 11))
    generator = torch.Generator().manual_seed(1)
    nats = torch.full((3,), float(schedule.alpha_bar[-1]) ** 2 / 2, dtype=torch.float64)
    for t in chosen:
        y_t, _ = bernoulli.q_sample(schedule, y0, t, generator)
        kl = losses.kl_loss(schedule, y_t, y0, y_t - 0.5, t, t - 1)
        nats += kl.mean((1, 2, 3)) * 10 / len(chosen)
    torch.testing.assert_close(found, nats / math.log(2))


def test_elbo_counts_what_is_still_known_at_T() -> None:
    schedule = NoiseSchedule(torch.tensor([1.0, 0.9, 0.6], dtype=torch.float64))
    y0 = torch.zeros(1, 1, 2, 2, dtype=torch.float64)

    def oracle(y_t: torch.Tensor, t: int) -> torch.Tensor:
        return torch.full_like(y_t, -1e4)  # sure that the mask is empty, and right: only the prior costs

    found = losses.elbo_bits(schedule, oracle, y0, torch.Generator().manual_seed(0))
    assert float(found) == pytest.approx(0.8 * math.log2(0.8) + 0.2 * math.log2(0.2) + 1, abs=1e-12)


@pytest.mark.parametrize("posterior", ["soft", "marginal"])
def test_elbo_of_a_right_oracle_costs_nothing_where_T_is_pure_noise(posterior: bernoulli.Posterior) -> None:
    y0 = bernoulli.draw(torch.full((2, 1, 4, 4), 0.5, dtype=torch.float64), torch.Generator().manual_seed(0))
    found = losses.elbo_bits(
        get_schedule("power4", 100), lambda y, t: (y0 - 0.5) * 1e4, y0, torch.Generator().manual_seed(0), posterior
    )
    torch.testing.assert_close(found, torch.zeros_like(found), rtol=0, atol=1e-12)


def test_elbo_of_no_steps_is_refused() -> None:
    y0 = torch.zeros(1, 1, 2, 2)
    with pytest.raises(ValueError, match="timesteps: expected at least one step"):
        losses.elbo_bits(get_schedule("linear", 10), lambda y, t: y, y0, torch.Generator(), timesteps=[])


@given(cases(), probabilities)
@maths
def test_the_divergence_of_a_step_from_itself_is_zero(case: Case, p: float) -> None:
    same = case.tensor([p])
    assert float(losses.kl_bernoulli(same, same)) == pytest.approx(0, abs=case.tolerance)
