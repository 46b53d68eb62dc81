"""The schedules themselves, and what they refuse."""

import itertools
import math

import pytest
import torch
from hypothesis import example, given

from berdiff.diffusion import schedule as schedules
from berdiff.diffusion.schedule import SCHEDULES, NoiseSchedule
from diffusion.brute_force import LENGTHS, Case, cases, early, forgotten, get_schedule, maths
from refusals import refused


def test_alpha_bar_is_the_product_of_the_alphas_and_starts_at_one() -> None:
    for name, T in itertools.product(SCHEDULES, (1, 2, *LENGTHS)):
        schedule = schedules.make_schedule(name, T)
        assert (schedule.name, schedule.T) == (name, T)  # what a model folder keeps of it
        assert schedule.alpha_bar.dtype == torch.float64
        assert schedule.alpha_bar[0] == schedule.alpha[0] == 1
        torch.testing.assert_close(torch.cumprod(schedule.alpha, 0), schedule.alpha_bar, rtol=1e-9, atol=0)
        torch.testing.assert_close(1 - schedule.beta, schedule.alpha, rtol=1e-12, atol=1e-15)
        inner = schedule.beta[1:-1] if name.startswith("power") else schedule.beta[1:]
        assert bool(((inner > 0) & (inner < 1)).all())
        assert schedule.alpha_bar[-1] < 1e-4 or T < 10, "nothing of the mask is left at T"


def test_linear_is_the_papers_and_scales() -> None:
    for T, low, high in ((1000, 1e-4, 0.02), (100, 1e-3, 0.2)):
        expected = torch.linspace(low, high, T, dtype=torch.float64)
        torch.testing.assert_close(schedules.linear(T).beta[1:], expected, rtol=0, atol=1e-15)


def test_cosine_follows_its_formula_until_the_clip() -> None:
    alpha_bar = schedules.cosine(1000).alpha_bar

    def f(t: int) -> float:
        return math.cos((t / 1000 + 0.008) / 1.008 * math.pi / 2) ** 2

    for t in range(0, 999, 37):
        assert math.isclose(float(alpha_bar[t]), f(t) / f(0), rel_tol=1e-9)


def test_power_follows_its_formula_and_ends_in_pure_noise() -> None:
    for exponent, T in itertools.product((1.5, 2.5, 4.0), (1, 7, *LENGTHS)):
        schedule = get_schedule(f"power{exponent:g}", T)
        assert schedule.alpha_bar[-1] == 0
        expected = torch.tensor([((T - t) / T) ** exponent for t in range(T)], dtype=torch.float64)
        torch.testing.assert_close(schedule.alpha_bar[:-1], expected, rtol=1e-9, atol=0)


def test_power_is_noisy_soon_and_most_of_its_steps_are_between_mask_and_noise() -> None:
    linear, *power = (get_schedule(name, 1000).alpha_bar[1:-1] for name in ("linear", "power1.5", "power2.5", "power4"))
    assert all(bool((more < less).all()) for less, more in itertools.pairwise(power))
    assert all(bool((alpha_bar < linear)[:150].all()) for alpha_bar in power)
    for name, share in (("linear", 0.41), ("cosine", 0.44), ("power2.5", 0.60)):
        alpha_bar = get_schedule(name, 1000).alpha_bar[1:]
        assert float(((alpha_bar > 0.01) & (alpha_bar < 0.5)).double().mean()) == pytest.approx(share, abs=0.005)


@given(cases())
@example(early(2, 1))
@example(forgotten(999))
@maths
def test_pair_is_the_respaced_step(case: Case) -> None:
    like = torch.zeros(3, 4, 5, dtype=case.dtype)
    a, b, alpha_bar_t = case.schedule.pair(case.t, case.s, like)
    direct = float(torch.prod(1 - case.schedule.beta[case.s + 1 : case.t + 1]))
    assert math.isclose(1 - float(a), 1 - direct, rel_tol=1e-9)
    assert math.isclose(float(a * b), float(alpha_bar_t), rel_tol=1e-9)
    by_ints = isinstance(case.t, int) and isinstance(case.s, int)
    assert all(type(value) is float if by_ints else value.ndim == like.ndim for value in (a, b, alpha_bar_t))


def test_a_time_for_each_mask_broadcasts_from_the_left() -> None:
    schedule = schedules.linear(100)
    like = torch.zeros(2, 3, 4, 5)
    t = torch.tensor([[1, 50, 100], [7, 8, 9]])
    at = schedule.at(t, like)
    assert at.shape == (2, 3, 1, 1)
    assert float(at[1, 2]) == pytest.approx(float(schedule.alpha_bar[9]))


def test_what_makes_no_schedule_is_refused() -> None:
    for make, T in itertools.product(SCHEDULES.values(), (0, -3, 2.5, True, "10")):
        with refused("T:", error=ValueError):
            make(T)  # type: ignore[arg-type]
    for exponent in (0.0, -1.0, float("nan"), float("inf"), 400.0):
        with refused("alpha_bar:", error=ValueError):
            schedules.power(1000, exponent)
    with refused("schedule:", error=ValueError):
        schedules.make_schedule("sigmoid", 10)
    bad = [[1.0], [0.9, 0.5], [1.0, 1.0, 0.5], [1.0, 0.5, 0.6], [1.0, 0.5, -0.1], [[1.0, 0.5]], [1.0, float("nan")]]
    for alpha_bar in bad:
        with refused("alpha_bar:", error=ValueError):
            NoiseSchedule(torch.tensor(alpha_bar, dtype=torch.float64))
    with refused("alpha_bar:", error=ValueError):
        NoiseSchedule(torch.tensor([1.0, 0.5]))


def test_a_pair_that_is_no_step_is_refused() -> None:
    schedule = schedules.linear(10)
    for t, s in ((5, 5), (5, 6), (0, 0), (11, 3), (5, -1), (-1, -2)):
        with pytest.raises(ValueError, match=f"expected 0 <= s < t <= T = 10, found t = {t}, s = {s}"):
            schedule.pair(t, s, torch.zeros(1))
        with pytest.raises(ValueError, match="expected 0 <= s < t <= T = 10"):
            schedule.pair(torch.tensor([3, t]), torch.tensor([1, s]), torch.zeros(2))
    with refused("t, s:", error=ValueError):
        schedule.pair(torch.tensor([3.0]), 1, torch.zeros(1))
