"""The Bernoulli kernel's closed forms against the 2x2 matrix chain and brute-force Bayes."""

import itertools

import pytest
import torch
from hypothesis import example, given

from berdiff.diffusion import bernoulli
from berdiff.diffusion.random import normal, sample_generators, spawn_generators
from berdiff.diffusion.schedule import SCHEDULES, linear
from diffusion.brute_force import (
    LENGTHS,
    Case,
    assert_proportion,
    bayes,
    bits,
    cases,
    chain,
    early,
    forgotten,
    get_schedule,
    maths,
    probabilities,
    reverse_step,
)
from refusals import refused

PAIRS = list(itertools.product((0, 1), (0, 1)))


# --- the forward process ---------------------------------------------------------------------------------------------


@given(cases())
@maths
def test_marginal_is_the_matrix_chain(case: Case) -> None:
    product = chain(case.schedule, 0, case.t)
    for y0 in (0, 1):
        q = bernoulli.q_marginal(case.schedule, case.tensor([y0]), case.t)
        assert q.dtype == case.dtype
        assert float(q) == pytest.approx(product[y0, 1], abs=case.tolerance)


def test_both_states_tend_to_a_fair_coin() -> None:
    """The released kernel fails here: its background never flips."""
    for name, T in itertools.product(SCHEDULES, LENGTHS):
        q = bernoulli.q_marginal(get_schedule(name, T), torch.tensor([0.0, 1.0], dtype=torch.float64), T)
        torch.testing.assert_close(q, torch.full_like(q, 0.5), rtol=0, atol=5e-5)


@given(cases(), bits)
@maths
def test_flipping_with_eps_is_the_marginal(case: Case, y0: float) -> None:
    flip = bernoulli.q_marginal(case.schedule, case.tensor([0.0]), case.t)
    by_flips = (1 - flip) * y0 + flip * (1 - y0)
    expected = bernoulli.q_marginal(case.schedule, case.tensor([y0]), case.t)
    assert float(by_flips) == pytest.approx(float(expected), abs=case.tolerance)


def test_q_sample_draws_the_marginal() -> None:
    n = 100_000
    y0 = torch.cat([torch.zeros(n), torch.ones(n)])
    for name, t in itertools.product(SCHEDULES, (1, 37, 500, 1000)):
        schedule = get_schedule(name, 1000)
        y_t, eps = bernoulli.q_sample(schedule, y0, t, torch.Generator().manual_seed(t))
        assert set(y_t.unique().tolist()) <= {0.0, 1.0}
        assert torch.equal(y_t.bool(), y0.bool() ^ eps.bool())
        product = chain(schedule, 0, t)
        assert_proportion(int(y_t[:n].sum()), n, product[0, 1])
        assert_proportion(int(y_t[n:].sum()), n, product[1, 1])


def test_q_sample_takes_a_time_for_each_mask() -> None:
    schedule, n = get_schedule("linear", 1000), 100_000
    t = torch.tensor([10, 300, 900])
    y_t, _ = bernoulli.q_sample(schedule, torch.zeros(3, n), t, torch.Generator().manual_seed(1))
    for row, time in zip(y_t, t.tolist(), strict=True):
        assert_proportion(int(row.sum()), n, chain(schedule, 0, time)[0, 1])


def test_q_sample_flips_pixels_independently() -> None:
    # one pair of neighbours, many masks: all four outcomes have the product of the marginals
    schedule, n = get_schedule("linear", 1000), 200_000
    y_t, _ = bernoulli.q_sample(schedule, torch.zeros(n, 2), 400, torch.Generator().manual_seed(2))
    p = chain(schedule, 0, 400)[0, 1]
    assert_proportion(int((y_t[:, 0] * y_t[:, 1]).sum()), n, p * p)


# --- the posterior ---------------------------------------------------------------------------------------------------


@given(cases())
@example(early(5, 4))
@example(forgotten(0))
@example(forgotten(999, "power4"))
@maths
def test_posterior_is_bayes(case: Case) -> None:
    for y_t, y0 in PAIRS:
        args = case.schedule, case.tensor([y_t]), case.tensor([y0]), case.t, case.s
        expected = bayes(case.schedule, y_t, y0, case.t, case.s)
        for posterior in (bernoulli.theta_post, bernoulli.marginal_post):
            assert float(posterior(*args)) == pytest.approx(expected, abs=case.tolerance), posterior.__name__


@given(cases(), bits, probabilities)
@example(forgotten(999), 1.0, 0.3)
@maths
def test_marginal_posterior_is_the_sum_over_both_masks(case: Case, y_t: float, p: float) -> None:
    expected = p * bayes(case.schedule, int(y_t), 1, case.t, case.s)
    expected += (1 - p) * bayes(case.schedule, int(y_t), 0, case.t, case.s)
    found = bernoulli.marginal_post(case.schedule, case.tensor([y_t]), case.tensor([p]), case.t, case.s)
    assert float(found) == pytest.approx(expected, abs=case.tolerance)


@given(cases(), bits, probabilities)
@example(forgotten(999), 1.0, 0.3)
@maths
def test_soft_posterior_is_the_papers_norm(case: Case, y_t: float, p: float) -> None:
    """Eq. 4 with two explicit channels and a soft y0, from the product of the alphas."""
    a = float(torch.prod(case.schedule.alpha[case.s + 1 : case.t + 1]))
    b = float(torch.prod(case.schedule.alpha[1 : case.s + 1]))
    channels = [(a * u + (1 - a) / 2) * (b * v + (1 - b) / 2) for u, v in ((1 - y_t, 1 - p), (y_t, p))]
    found = bernoulli.theta_post(case.schedule, case.tensor([y_t]), case.tensor([p]), case.t, case.s)
    assert float(found) == pytest.approx(channels[1] / sum(channels), abs=case.tolerance)


def test_soft_and_marginal_differ_as_known() -> None:
    """Figures of an earlier, separate calculation: cosine schedule, p = 0.5, y_t = 1 (its time was 0-based)."""
    y_t, p, schedule = torch.ones(1), torch.full((1,), 0.5), get_schedule("cosine", 1000)
    for t, s, soft, marginal in ((801, 701, 0.731, 0.723), (401, 301, 0.911, 0.770), (101, 1, 0.986, 0.501)):
        assert float(bernoulli.reverse_mean(schedule, y_t, p, t, s, "soft")) == pytest.approx(soft, abs=5.1e-4)
        assert float(bernoulli.reverse_mean(schedule, y_t, p, t, s, "marginal")) == pytest.approx(marginal, abs=5.1e-4)


@given(cases())
@maths
def test_sigma_of_the_markov_chain(case: Case) -> None:
    """The slope of Bayes' posterior in y_t is sigma, its slope in y0 is b(1 - a^2) / (1 - a^2 b^2)."""
    p = {(y_t, y0): bayes(case.schedule, y_t, y0, case.t, case.s) for y_t, y0 in PAIRS}
    like = case.tensor([0.0])
    sigma = float(bernoulli.sigma_ddpm(case.schedule, case.t, case.s, like))
    assert sigma == pytest.approx(p[1, 0] - p[0, 0], abs=case.tolerance)
    assert sigma == pytest.approx(p[1, 1] - p[0, 1], abs=case.tolerance)
    assert 0 <= sigma <= float(bernoulli.sigma_max(case.schedule, case.t, case.s, like)) + case.tolerance
    a, b = (
        float(case.schedule.alpha_bar[case.t] / case.schedule.alpha_bar[case.s]),
        float(case.schedule.alpha_bar[case.s]),
    )
    assert b * (1 - a**2) / (1 - a**2 * b**2) == pytest.approx(p[0, 1] - p[0, 0], abs=1e-9)


# --- the family of the same marginals --------------------------------------------------------------------------------


def family(y_t: float, y0: float, b: float, alpha_bar_t: float, sigma: float) -> float:
    """Algorithm 2's DDIM line as printed, without any guard."""
    return sigma * y_t + (b - sigma * alpha_bar_t) * y0 + ((1 - b) - (1 - alpha_bar_t) * sigma) / 2


@given(cases(), bits, bits, probabilities)
@maths
def test_family_is_algorithm_2(case: Case, y_t: float, y0: float, fraction: float) -> None:
    b, alpha_bar_t = float(case.schedule.alpha_bar[case.s]), float(case.schedule.alpha_bar[case.t])
    sigma = fraction * (1 - b) / (1 - alpha_bar_t)
    found = bernoulli.sigma_post(case.schedule, case.tensor([y_t]), case.tensor([y0]), case.t, case.s, sigma)
    assert float(found) == pytest.approx(family(y_t, y0, b, alpha_bar_t, sigma), abs=case.tolerance)


@given(cases(), bits, probabilities)
@example(forgotten(500), 1.0, 0.5)
@maths
def test_family_keeps_the_marginal_for_every_sigma(case: Case, y0: float, fraction: float) -> None:
    sigma = fraction * bernoulli.sigma_max(case.schedule, case.t, case.s, case.tensor([0.0]))
    y_t = case.tensor([0.0, 1.0])
    p = bernoulli.sigma_post(case.schedule, y_t, torch.full_like(y_t, y0), case.t, case.s, sigma).double()
    weights = torch.as_tensor(chain(case.schedule, 0, case.t)[int(y0)])
    kept = float((weights * p).sum())
    assert kept == pytest.approx(chain(case.schedule, 0, case.s)[int(y0), 1], abs=2 * case.tolerance)


@given(cases())
@maths
def test_sigma_max_is_exactly_where_validity_ends(case: Case) -> None:
    b, alpha_bar_t = float(case.schedule.alpha_bar[case.s]), float(case.schedule.alpha_bar[case.t])
    top = float(bernoulli.sigma_max(case.schedule, case.t, case.s, case.tensor([0.0]).double()))
    at_top = [family(y_t, y0, b, alpha_bar_t, top) for y_t, y0 in PAIRS]
    assert all(-1e-12 <= p <= 1 + 1e-12 for p in at_top)
    # relative and absolute, as the top is 0 at s = 0
    beyond = [family(y_t, y0, b, alpha_bar_t, top * 1.01 + 1e-3) for y_t, y0 in PAIRS]
    assert min(beyond) < 0 or max(beyond) > 1


# --- the reverse process ---------------------------------------------------------------------------------------------


@given(cases(), bits, probabilities)
@maths
def test_calibration_is_the_posterior_of_the_unflipped_mask(case: Case, y_t: float, eps_hat: float) -> None:
    """F_C of eq. 7, whole: from the estimated flips to mu_hat, by sums over the states."""
    y0_hat = bernoulli.xor(case.tensor([y_t]), case.tensor([eps_hat]))
    unflipped = eps_hat if y_t == 0 else 1 - eps_hat  # flipped with probability eps_hat
    for posterior in ("soft", "marginal"):
        found = bernoulli.reverse_mean(case.schedule, case.tensor([y_t]), y0_hat, case.t, case.s, posterior)
        expected, _ = reverse_step(case, y_t, unflipped, posterior)
        assert float(found) == pytest.approx(expected, abs=case.tolerance * 10)


def test_predicting_y0_on_logits_is_predicting_it_on_probabilities() -> None:
    z = torch.tensor([-1e4, -80.0, -3.0, 0.0, 0.7, 80.0, 1e4], dtype=torch.float64)
    for y_t in (0.0, 1.0):
        found = torch.sigmoid(bernoulli.predict_y0_logits(torch.full_like(z, y_t), z))
        torch.testing.assert_close(found, (y_t - torch.sigmoid(z)).abs(), rtol=0, atol=1e-15)


@given(cases(), bits, bits)
@maths
def test_the_last_step_with_a_known_mask_is_that_mask(case: Case, y_t: float, y0: float) -> None:
    y, mask = case.tensor([y_t]), case.tensor([y0])
    assert float(bernoulli.theta_post(case.schedule, y, mask, case.t, 0)) == y0
    assert float(bernoulli.marginal_post(case.schedule, y, mask, case.t, 0)) == y0
    assert float(bernoulli.sigma_max(case.schedule, case.t, 0, y)) == 0


def test_half_precision_stays_finite() -> None:
    """a and b round to 1 there, and a formula that then subtracts is 0 / 0."""
    steps, halves = ((1, 0), (5, 0), (5, 4), (900, 1), (1000, 999)), (torch.bfloat16, torch.float16)
    for name, dtype, (t, s), (y_t, y0) in itertools.product(("linear", "power2.5"), halves, steps, PAIRS):
        schedule, y, mask = get_schedule(name, 1000), torch.tensor([y_t], dtype=dtype), torch.tensor([y0], dtype=dtype)
        for posterior in ("soft", "marginal"):
            found = bernoulli.reverse_mean(schedule, y, mask, t, s, posterior)
            assert float(found) == pytest.approx(bayes(schedule, y_t, y0, t, s), abs=0.02)


# --- drawing and refusing --------------------------------------------------------------------------------------------


def test_draw_is_exact_at_zero_and_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for dtype in (torch.float32, torch.float64):
        p = torch.tensor([0.0, 1.0], dtype=dtype).repeat(100_000)
        assert torch.equal(bernoulli.draw(p, torch.Generator().manual_seed(0)), p)
    monkeypatch.setattr(bernoulli, "uniform", lambda shape, generators, like: torch.zeros(shape))  # the dice show 0
    assert bernoulli.draw(torch.tensor([0.0, 1e-30, 1.0]), torch.Generator()).tolist() == [0, 1, 1]


def test_draw_has_its_probability() -> None:
    # 2**-12 is exact in bfloat16, but a bfloat16 uniform number is below it once in 256 draws
    for p, dtype in [(p, torch.float32) for p in (1e-4, 0.3, 0.5, 0.999)] + [(2.0**-12, torch.bfloat16)]:
        drawn = bernoulli.draw(torch.full((400_000,), p, dtype=dtype), torch.Generator().manual_seed(3))
        assert_proportion(int(drawn.float().sum()), drawn.numel(), p)


def test_a_mask_has_its_own_noise_in_any_batch() -> None:
    def masks(of, seeds, *leading: int) -> torch.Tensor:
        return of((*leading, 1, 5, 5), [torch.Generator().manual_seed(i) for i in seeds])

    def bits_of(shape, generators) -> torch.Tensor:
        return bernoulli.draw(torch.full(shape, 0.4), generators)

    def normals_of(shape, generators) -> torch.Tensor:
        return normal(shape, generators, torch.zeros(()))

    for of in (bits_of, normals_of):
        together = masks(of, range(6), 2, 3)
        for i in range(6):
            assert torch.equal(masks(of, [i], 1, 1)[0, 0], together.flatten(0, 1)[i])
        assert len(together.flatten(0, 1).flatten(1).unique(dim=0)) == 6
        for count in (1, 2, 5, 7):
            with refused("generators:", error=ValueError):
                of((3, 2, 4, 4), [torch.Generator().manual_seed(i) for i in range(count)])


def test_generators_follow_from_their_seed_key_and_number_alone() -> None:
    def seeds(generators: list[torch.Generator]) -> list[int]:
        return [g.initial_seed() for g in generators]

    many = seeds(sample_generators(3, ["a", "b"], 4))
    assert len(set(many)) == 8
    assert seeds(sample_generators(3, ["b"], 2)) == many[4:6]
    assert not set(seeds(sample_generators(4, ["a", "b"], 4))) & set(many)
    spawned = [seeds(spawn_generators(torch.Generator().manual_seed(4), 20)) for _ in range(2)]
    assert spawned[0] == spawned[1]
    assert len(set(spawned[0])) == 20


def test_what_is_no_mask_no_posterior_and_no_time_is_refused() -> None:
    bernoulli.check_mask(torch.tensor([0.0, 1.0]), "masks")
    for bad in (0.5, 2.0, -1.0, float("nan"), 255.0):
        with refused("masks:", error=ValueError):
            bernoulli.check_mask(torch.tensor([0.0, 1.0, bad]), "masks")
    with refused("posterior:", error=ValueError):
        bernoulli.reverse_mean(linear(10), torch.zeros(1), torch.zeros(1), 5, 4, "hard")  # type: ignore[arg-type]
    y = torch.zeros(2, 4, 4)
    for t in (torch.tensor([3, 4, 5]), torch.tensor([[3, 4]])):
        with pytest.raises(ValueError, match=r"t.*expected .* found "):
            bernoulli.q_sample(linear(10), y, t, torch.Generator())
        with pytest.raises(ValueError, match=r"t.*expected .* found "):
            bernoulli.theta_post(linear(10), y, y, t, t - 1)
