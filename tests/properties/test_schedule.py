"""The schedules themselves, and what they refuse."""

import itertools
import math

import pytest
import torch
from hypothesis import example, given

from berdiff.diffusion import schedule as schedules
from berdiff.diffusion.schedule import SCHEDULES, NoiseSchedule
from properties.brute_force import LENGTHS, Case, cases, early, forgotten, get_schedule, maths


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("T", [1, 2, *LENGTHS])
def test_alpha_bar_is_the_product_of_the_alphas_and_starts_at_one(name: str, T: int) -> None:
    schedule = get_schedule(name, T)
    assert schedule.T == T
    assert schedule.alpha_bar[0] == 1
    assert schedule.alpha_bar.dtype == torch.float64
    product = 1.0
    for t in range(1, T + 1):
        product *= 1 - float(schedule.beta[t])
        assert math.isclose(float(schedule.alpha_bar[t]), product, rel_tol=1e-9)
        assert 0 < schedule.beta[t] < 1 or (t == T and name.startswith("power") and schedule.beta[t] == 1)


def test_linear_is_the_papers_and_scales() -> None:
    beta = schedules.linear(1000).beta[1:]
    torch.testing.assert_close(beta, torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64), rtol=0, atol=1e-15)
    beta = schedules.linear(100).beta[1:]
    torch.testing.assert_close(beta, torch.linspace(1e-3, 0.2, 100, dtype=torch.float64), rtol=0, atol=1e-15)


def test_cosine_follows_its_formula_until_the_clip() -> None:
    alpha_bar = schedules.cosine(1000).alpha_bar

    def f(t: int) -> float:
        return math.cos((t / 1000 + 0.008) / 1.008 * math.pi / 2) ** 2

    for t in range(0, 999, 37):
        assert math.isclose(float(alpha_bar[t]), f(t) / f(0), rel_tol=1e-9)


@pytest.mark.parametrize(("name", "exponent"), [("power1.5", 1.5), ("power2.5", 2.5), ("power4", 4.0)])
@pytest.mark.parametrize("T", [1, 7, *LENGTHS])
def test_power_follows_its_formula_and_ends_in_pure_noise(name: str, exponent: float, T: int) -> None:
    schedule = get_schedule(name, T)
    assert schedule.name == name
    assert schedule.alpha_bar[-1] == 0
    for t in range(T):
        assert math.isclose(float(schedule.alpha_bar[t]), ((T - t) / T) ** exponent, rel_tol=1e-9)


def test_power_is_noisy_soon_and_more_so_with_its_exponent() -> None:
    linear, *power = (get_schedule(name, 1000).alpha_bar[1:-1] for name in ("linear", "power1.5", "power2.5", "power4"))
    assert all(bool((more < less).all()) for less, more in itertools.pairwise(power))
    assert all(bool((alpha_bar < linear)[:150].all()) for alpha_bar in power)


@pytest.mark.parametrize(("name", "share"), [("linear", 0.41), ("cosine", 0.44), ("power2.5", 0.60)])
def test_the_share_of_steps_between_mask_and_noise_is_as_said(name: str, share: float) -> None:
    alpha_bar = get_schedule(name, 1000).alpha_bar[1:]
    assert float(((alpha_bar > 0.01) & (alpha_bar < 0.5)).double().mean()) == pytest.approx(share, abs=0.005)


@pytest.mark.parametrize("exponent", [0.0, -1.0, float("nan"), float("inf"), 400.0])
def test_an_exponent_that_makes_no_schedule_is_refused(exponent: float) -> None:
    with pytest.raises(ValueError, match=r"alpha_bar: expected .*strictly decrease"):
        schedules.power(1000, exponent)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_is_made_again_from_its_name(name: str) -> None:
    """What a model folder keeps of it is the name and T."""
    made = schedules.make_schedule(name, 50)
    assert made.name == name
    assert torch.equal(schedules.make_schedule(made.name, made.T).alpha_bar, made.alpha_bar)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("T", LENGTHS)
def test_nothing_of_the_mask_is_left_at_T(name: str, T: int) -> None:
    assert get_schedule(name, T).alpha_bar[-1] < 1e-4


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
    assert a.ndim == b.ndim == alpha_bar_t.ndim == like.ndim


def test_a_time_for_each_mask_broadcasts_from_the_left() -> None:
    schedule = schedules.linear(100)
    like = torch.zeros(2, 3, 4, 5)
    t = torch.tensor([[1, 50, 100], [7, 8, 9]])
    at = schedule.at(t, like)
    assert at.shape == (2, 3, 1, 1)
    assert float(at[1, 2]) == pytest.approx(float(schedule.alpha_bar[9]))


@pytest.mark.parametrize("T", [0, -3, 2.5, True, "10"])
@pytest.mark.parametrize("make", SCHEDULES.values(), ids=SCHEDULES)
def test_a_length_that_is_no_length_is_refused(make: object, T: object) -> None:
    with pytest.raises(ValueError, match=r"^T: expected .* found "):
        make(T)  # type: ignore[operator]


def test_an_unknown_schedule_is_refused() -> None:
    with pytest.raises(ValueError, match=r"schedule: expected one of linear, cosine, power1\.5, .*, found 'sigmoid'"):
        schedules.make_schedule("sigmoid", 10)


@pytest.mark.parametrize(
    "alpha_bar",
    [[1.0], [0.9, 0.5], [1.0, 1.0, 0.5], [1.0, 0.5, 0.6], [1.0, 0.5, -0.1], [[1.0, 0.5]], [1.0, float("nan")]],
)
def test_a_sequence_that_is_no_schedule_is_refused(alpha_bar: list) -> None:
    with pytest.raises(ValueError, match="alpha_bar: expected"):
        NoiseSchedule(torch.tensor(alpha_bar, dtype=torch.float64))


@pytest.mark.parametrize(("t", "s"), [(5, 5), (5, 6), (0, 0), (11, 3), (5, -1), (-1, -2)])
def test_a_pair_that_is_no_step_is_refused(t: int, s: int) -> None:
    schedule = schedules.linear(10)
    with pytest.raises(ValueError, match=f"expected 0 <= s < t <= T = 10, found t = {t}, s = {s}"):
        schedule.pair(t, s, torch.zeros(1))
    with pytest.raises(ValueError, match="expected 0 <= s < t <= T = 10"):
        schedule.pair(torch.tensor([3, t]), torch.tensor([1, s]), torch.zeros(2))


def test_a_schedule_without_its_digits_is_refused() -> None:
    with pytest.raises(ValueError, match=r"alpha_bar: expected float64, found torch\.float32"):
        NoiseSchedule(torch.tensor([1.0, 0.5]))


def test_a_time_that_is_no_integer_is_refused() -> None:
    with pytest.raises(ValueError, match="t, s: expected integers"):
        schedules.linear(10).pair(torch.tensor([3.0]), 1, torch.zeros(1))
