"""Points 1-5 of the method's closed forms against the 2x2 matrix chain and brute-force Bayes."""

import itertools

import pytest
import torch
from hypothesis import example, given

from berdiff.diffusion import bernoulli
from berdiff.diffusion.schedule import SCHEDULES, linear
from properties.brute_force import (
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
)

PAIRS = list(itertools.product((0, 1), (0, 1)))


# --- 1, 2: the forward process ---------------------------------------------------------------------------------------


@given(cases())
@maths
def test_marginal_is_the_matrix_chain(case: Case) -> None:
    product = chain(case.schedule, 0, case.t)
    for y0 in (0, 1):
        q = bernoulli.q_marginal(case.schedule, case.tensor([y0]), case.t)
        assert q.dtype == case.dtype
        assert float(q) == pytest.approx(product[y0, 1], abs=case.tolerance)
        one = bernoulli.q_step(case.schedule, case.tensor([y0]), case.t)
        assert float(one) == pytest.approx(chain(case.schedule, case.t - 1, case.t)[y0, 1], abs=case.tolerance)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("T", LENGTHS)
def test_both_states_tend_to_a_fair_coin(name: str, T: int) -> None:
    # the released kernel fails here: its background never flips
    q = bernoulli.q_marginal(get_schedule(name, T), torch.tensor([0.0, 1.0], dtype=torch.float64), T)
    torch.testing.assert_close(q, torch.full_like(q, 0.5), rtol=0, atol=5e-5)


@given(cases(), bits)
@maths
def test_flipping_with_eps_is_the_marginal(case: Case, y0: float) -> None:
    flip = bernoulli.q_marginal(case.schedule, case.tensor([0.0]), case.t)
    by_flips = (1 - flip) * y0 + flip * (1 - y0)
    expected = bernoulli.q_marginal(case.schedule, case.tensor([y0]), case.t)
    assert float(by_flips) == pytest.approx(float(expected), abs=case.tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("y", "eps"), PAIRS)
def test_xor_is_xor(y: int, eps: int, dtype: torch.dtype) -> None:
    result = bernoulli.xor(torch.tensor(y, dtype=dtype), torch.tensor(eps, dtype=dtype))
    assert float(result) == y ^ eps


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("t", [1, 37, 500, 1000])
def test_q_sample_draws_the_marginal(name: str, t: int) -> None:
    schedule = get_schedule(name, 1000)
    n = 200_000
    y0 = torch.cat([torch.zeros(n), torch.ones(n)])
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


# --- 3, 5: the posterior ---------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("t", "s", "soft", "marginal"), [(801, 701, 0.731, 0.723), (401, 301, 0.911, 0.770), (101, 1, 0.986, 0.501)]
)
def test_soft_and_marginal_differ_as_known(t: int, s: int, soft: float, marginal: float) -> None:
    # figures of an earlier, separate calculation: cosine schedule, p = 0.5, y_t = 1 (its time was 0-based)
    y_t, p = torch.ones(1), torch.full((1,), 0.5)
    schedule = get_schedule("cosine", 1000)
    assert float(bernoulli.reverse_mean(schedule, y_t, p, t, s, "soft")) == pytest.approx(soft, abs=5.1e-4)
    assert float(bernoulli.reverse_mean(schedule, y_t, p, t, s, "marginal")) == pytest.approx(marginal, abs=5.1e-4)


@given(cases())
@maths
def test_sigma_of_the_markov_chain(case: Case) -> None:
    """Point 5: the slope of Bayes' posterior in y_t is sigma, its slope in y0 is b(1 - a^2) / (1 - a^2 b^2)."""
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


# --- 4: the family of the same marginals -----------------------------------------------------------------------------


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


# --- 6: the reverse process ------------------------------------------------------------------------------------------


@given(cases(), bits, probabilities)
@maths
def test_calibration_is_the_posterior_of_the_unflipped_mask(case: Case, y_t: float, eps_hat: float) -> None:
    y0_hat = eps_hat if y_t == 0 else 1 - eps_hat  # flipped with probability eps_hat
    args = case.tensor([y_t]), case.tensor([eps_hat]), case.t, case.s
    assert float(bernoulli.predict_y0(*args[:2])) == pytest.approx(y0_hat, abs=case.tolerance)
    for posterior in ("soft", "marginal"):
        found = bernoulli.calibrate(case.schedule, *args, posterior)
        expected = bernoulli.reverse_mean(
            case.schedule, case.tensor([y_t]), case.tensor([y0_hat]), case.t, case.s, posterior
        )
        assert float(found) == pytest.approx(float(expected), abs=case.tolerance * 10)


@pytest.mark.parametrize("logit", [-1e4, -80.0, -3.0, 0.0, 0.7, 80.0, 1e4])
@pytest.mark.parametrize("y_t", [0.0, 1.0])
def test_predicting_y0_on_logits_is_predicting_it_on_probabilities(y_t: float, logit: float) -> None:
    y, z = torch.tensor([y_t], dtype=torch.float64), torch.tensor([logit], dtype=torch.float64)
    from_logits = torch.sigmoid(bernoulli.predict_y0_logits(y, z))
    torch.testing.assert_close(from_logits, bernoulli.predict_y0(y, torch.sigmoid(z)), rtol=0, atol=1e-15)


@given(cases(), bits, bits)
@maths
def test_the_last_step_with_a_known_mask_is_that_mask(case: Case, y_t: float, y0: float) -> None:
    y, mask = case.tensor([y_t]), case.tensor([y0])
    assert float(bernoulli.theta_post(case.schedule, y, mask, case.t, 0)) == y0
    assert float(bernoulli.marginal_post(case.schedule, y, mask, case.t, 0)) == y0
    assert float(bernoulli.sigma_max(case.schedule, case.t, 0, y)) == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("posterior", ["soft", "marginal"])
@pytest.mark.parametrize("name", ["linear", "power2.5"])
def test_half_precision_stays_finite(name: str, dtype: torch.dtype, posterior: bernoulli.Posterior) -> None:
    # a and b round to 1 there, and a formula that then subtracts is 0 / 0
    schedule = get_schedule(name, 1000)
    for t, s in ((1, 0), (5, 0), (5, 4), (900, 1), (1000, 999)):
        for y_t, y0 in PAIRS:
            y, mask = torch.tensor([y_t], dtype=dtype), torch.tensor([y0], dtype=dtype)
            found = bernoulli.reverse_mean(schedule, y, mask, t, s, posterior)
            assert float(found) == pytest.approx(bayes(schedule, y_t, y0, t, s), abs=0.02)


# --- drawing and refusing --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draw_is_exact_at_zero_and_one(dtype: torch.dtype) -> None:
    p = torch.tensor([0.0, 1.0], dtype=dtype).repeat(100_000)
    assert torch.equal(bernoulli.draw(p, torch.Generator().manual_seed(0)), p)


def test_draw_is_exact_at_zero_even_when_the_dice_show_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bernoulli, "uniform", lambda shape, generator, like: torch.zeros(shape))
    assert bernoulli.draw(torch.tensor([0.0, 1e-30, 1.0]), torch.Generator()).tolist() == [0, 1, 1]


@pytest.mark.parametrize("p", [1e-4, 0.3, 0.5, 0.999])
def test_draw_has_its_probability(p: float) -> None:
    drawn = bernoulli.draw(torch.full((400_000,), p), torch.Generator().manual_seed(3))
    assert_proportion(int(drawn.sum()), drawn.numel(), p)


def test_draw_has_its_probability_in_half_precision() -> None:
    # 2**-12 is exact in bfloat16, but a bfloat16 uniform number is below it once in 256 draws
    drawn = bernoulli.draw(torch.full((400_000,), 2.0**-12, dtype=torch.bfloat16), torch.Generator().manual_seed(3))
    assert_proportion(int(drawn.float().sum()), drawn.numel(), 2.0**-12)


def test_a_mask_is_drawn_alike_in_any_batch() -> None:
    p = torch.full((2, 3, 1, 5, 5), 0.4)
    together = bernoulli.draw(p, [torch.Generator().manual_seed(i) for i in range(6)])
    for i in range(6):
        alone = bernoulli.draw(p[:1, :1], [torch.Generator().manual_seed(i)])
        assert torch.equal(alone[0, 0], together.flatten(0, 1)[i])
    assert len(together.flatten(0, 1).flatten(1).unique(dim=0)) == 6


@pytest.mark.parametrize("count", [1, 2, 5, 7])
def test_a_wrong_number_of_generators_is_refused(count: int) -> None:
    generators = [torch.Generator().manual_seed(i) for i in range(count)]
    with pytest.raises(ValueError, match=r"^generator: expected .* found "):
        bernoulli.draw(torch.full((3, 2, 4, 4), 0.5), generators)


@pytest.mark.parametrize("bad", [0.5, 2.0, -1.0, float("nan"), 255.0])
def test_a_mask_that_is_no_mask_is_refused(bad: float) -> None:
    bernoulli.check_mask(torch.tensor([0.0, 1.0]), "masks")
    with pytest.raises(ValueError, match=r"^masks: expected only the values 0 and 1, found "):
        bernoulli.check_mask(torch.tensor([0.0, 1.0, bad]), "masks")


def test_an_unknown_posterior_is_refused() -> None:
    with pytest.raises(ValueError, match="posterior: expected 'soft' or 'marginal', found 'hard'"):
        bernoulli.reverse_mean(linear(10), torch.zeros(1), torch.zeros(1), 5, 4, "hard")  # type: ignore[arg-type]


@pytest.mark.parametrize("t", [torch.tensor([3, 4, 5]), torch.tensor([[3, 4]])])
def test_a_time_that_does_not_fit_the_masks_is_refused(t: torch.Tensor) -> None:
    y = torch.zeros(2, 4, 4)
    with pytest.raises(ValueError, match=r"t.*expected .* found "):
        bernoulli.q_sample(linear(10), y, t, torch.Generator())
    with pytest.raises(ValueError, match=r"t.*expected .* found "):
        bernoulli.theta_post(linear(10), y, y, t, t - 1)
