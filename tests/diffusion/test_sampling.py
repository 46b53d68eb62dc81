"""The samplers with an oracle that knows the mask, and each step against the law it should keep."""

import itertools
from dataclasses import replace

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from berdiff.diffusion import bernoulli
from berdiff.diffusion.gaussian import Gaussian
from berdiff.diffusion.kernels.bernoulli import Bernoulli, step_prob
from berdiff.diffusion.sampler import Sampler, time_grid
from berdiff.diffusion.sampling import Step, sample
from berdiff.diffusion.schedule import SCHEDULES
from diffusion.brute_force import (
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
from refusals import refused

RULES = {
    "ddpm-soft": Sampler(rule="ddpm", posterior="soft"),
    "ddpm-marginal": Sampler(rule="ddpm", posterior="marginal"),
    "ddim-max": Sampler(sigma=1.0),
    "ddim-half": Sampler(sigma=0.5),
    "ddim-zero": Sampler(sigma=0.0),
    "ddim-shared": Sampler(noise="shared"),
}


def random_mask(*shape: int) -> torch.Tensor:
    return bernoulli.draw(torch.full(shape, 0.4), torch.Generator().manual_seed(9))


def sure(y0: torch.Tensor) -> torch.Tensor:
    """Logits whose sigmoid is y0 to the last digit."""
    return (y0 - 0.5) * 400


# --- the grid of steps -----------------------------------------------------------------------------------------------


@given(st.integers(1, 1200), st.data(), st.sampled_from(["uniform", "quadratic"]))
@maths
def test_a_grid_falls_from_T_to_0_in_so_many_steps(T: int, data: st.DataObject, spacing: str) -> None:
    steps = data.draw(st.integers(1, T))
    grid = time_grid(T, steps, spacing)
    assert grid[0] == T
    assert grid[-1] == 0
    assert len(grid) == steps + 1
    assert all(t > s for t, s in itertools.pairwise(grid))


def test_grids_of_the_paper() -> None:
    assert time_grid(1000, 10) == tuple(range(1000, -1, -100))
    assert time_grid(1000, 1000) == tuple(range(1000, -1, -1))
    assert time_grid(1000, 2) == (1000, 500, 0)
    assert time_grid(1000, (900, 40, 1)) == (900, 40, 1, 0)
    assert time_grid(1000, 10, "quadratic") == (1000, 810, 640, 490, 360, 250, 160, 90, 40, 10, 0)


def test_steps_and_samplers_that_are_none_are_refused() -> None:
    for steps in (0, -1, 11, (), (3, 3), (3, 5), (11, 2), (5, 0)):
        with refused("steps:", error=ValueError):
            time_grid(10, steps)
    bad: list[dict] = [{"rule": "euler"}, {"posterior": "hard"}, {"spacing": "log"}, {"last_step": "mean"}]
    bad += [{"noise": "image"}, {"sigma": 1.01}, {"sigma": -0.1}, {"sigma": float("nan")}]
    for options in bad:
        with refused(f"{next(iter(options))}:", error=ValueError):
            Sampler(**options)


# --- with an oracle --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
def test_an_oracle_is_recovered_and_the_way_there_is_right(rule: str) -> None:
    """The end alone proves little, as the last step copies the oracle: each y_s on the way keeps q(y_s | y0) too.

    A sampler that skips steps without respacing alpha fails on the way.
    """
    y0 = random_mask(1, 1, 1, 64, 64)
    lengths = [*itertools.product(("linear", "cosine", "power4"), (2, 10, 100)), ("linear", 1000)]
    for (name, steps), last_step in zip(lengths, itertools.cycle(("threshold", "sample")), strict=False):
        kernel, generator = Bernoulli(get_schedule(name, 1000), "mask"), torch.Generator().manual_seed(steps)
        wrong: list[tuple[int, int]] = []

        def note(step: Step, wrong: list[tuple[int, int]] = wrong) -> None:
            wrong.append((step.s, int((step.y_s != y0).sum())))

        sampler = replace(RULES[rule], steps=steps, last_step=last_step)
        y_T = kernel.prior(y0.shape, generator, y0)
        assert torch.equal(sample(kernel, sampler, lambda y_t, t: sure(y0), y_T, generator, note), y0)
        assert [s for s, _ in wrong] == list(time_grid(1000, steps))[1:]
        for s, count in wrong[:: max(1, steps // 50)]:
            assert_proportion(count, y0.numel(), chain(kernel.schedule, 0, s)[0, 1])


def test_an_oracle_is_recovered_from_gaussian_noise() -> None:
    mask = random_mask(1, 1, 1, 16, 16)
    y0 = 2 * mask - 1
    rules = (Sampler(rule="ddpm"), Sampler(sigma=0.0), Sampler(sigma=1.0))
    for name, sampler, steps in [*itertools.product(SCHEDULES, rules, (2, 10, 100)), ("linear", rules[0], 1000)]:
        schedule, generator = get_schedule(name, 1000), torch.Generator().manual_seed(steps)

        def eps(y_t: torch.Tensor, t: int, alpha_bar: torch.Tensor = schedule.alpha_bar) -> torch.Tensor:
            return (y_t - float(alpha_bar[t]) ** 0.5 * y0) / (1 - float(alpha_bar[t])) ** 0.5

        kernel, chosen = Gaussian(schedule), replace(sampler, steps=steps)
        y_T = kernel.prior(mask.shape, generator, mask)
        assert torch.equal(sample(kernel, chosen, eps, y_T, generator), mask)
        signal = sample(Gaussian(schedule, "mask"), chosen, lambda y_t, t: y0, y_T, generator)
        assert torch.equal(signal, mask), "the other prediction"


# --- one step --------------------------------------------------------------------------------------------------------


@given(cases(), bits, probabilities, probabilities)
@example(early(5, 4), 1.0, 0.0, 1.0)
@example(forgotten(999, "power4"), 1.0, 0.3, 0.5)
@maths
def test_step_prob_is_the_rule_it_names(case: Case, y_t: float, p: float, sigma: float) -> None:
    y, y0_hat = case.tensor([y_t]), case.tensor([p])
    hard = [bayes(case.schedule, int(y_t), y0, case.t, case.s) for y0 in (0, 1)]

    def prob(**options: object) -> float:
        sampler = Sampler(last_step="sample", **options)  # type: ignore[arg-type]
        return float(step_prob(case.schedule, sampler, y, y0_hat, case.t, case.s))

    marginal = (1 - p) * hard[0] + p * hard[1]
    assert prob(rule="ddpm", posterior="marginal") == pytest.approx(marginal, abs=case.tolerance)
    joint = chain(case.schedule, case.s, case.t)[:, int(y_t)] * ([1 - p, p] @ chain(case.schedule, 0, case.s))
    assert prob(rule="ddpm", posterior="soft") == pytest.approx(joint[1] / joint.sum(), abs=case.tolerance)
    b, alpha_bar_t = float(case.schedule.alpha_bar[case.s]), float(case.schedule.alpha_bar[case.t])
    top = sigma * (1 - b) / (1 - alpha_bar_t)
    ddim = top * y_t + (b - top * alpha_bar_t) * p + ((1 - b) - (1 - alpha_bar_t) * top) / 2
    assert prob(rule="ddim", sigma=sigma) == pytest.approx(ddim, abs=case.tolerance)


def test_the_last_step_and_only_it_thresholds_the_estimate() -> None:
    schedule, y0_hat = get_schedule("linear", 100), torch.tensor([0.0, 0.3, 0.4999, 0.5, 0.7, 1.0])
    for rule, y_t in itertools.product(RULES.values(), (torch.zeros(6), torch.ones(6))):
        threshold, drawn = replace(rule, last_step="threshold"), replace(rule, last_step="sample")
        assert torch.equal(step_prob(schedule, threshold, y_t, y0_hat, 10, 0), (y0_hat >= 0.5).float())
        for s in (1, 2, 50):
            p, other = (step_prob(schedule, sampler, y_t, y0_hat, 60, s) for sampler in (threshold, drawn))
            assert torch.equal(p, other)
            assert bool(((p[1:-1] > 0) & (p[1:-1] < 1)).all())


def test_a_level_gives_each_pixel_its_probability_and_nested_masks() -> None:
    n = 40_000
    p = torch.tensor([0.0, 0.03, 0.5, 0.8, 1.0]).expand(1, n, 5)
    masks = bernoulli.draw_level(p, torch.Generator().manual_seed(3))
    for pixel, expected in enumerate(p[0, 0].tolist()):
        assert_proportion(int(masks[..., pixel].sum()), n, expected)
    assert bool((masks.diff(dim=-1) >= 0).all()), "what is set at a lower probability is set at every higher one"
    assert len(masks.flatten(0, 1).unique(dim=0)) == 4


def test_shared_noise_keeps_the_law_of_each_pixel_of_a_step() -> None:
    """The joint law differs, which `test_exact` holds to the matrices; each pixel's own must not."""
    kernel, n = Bernoulli(get_schedule("linear", 1000), "mask"), 40_000
    y_t = torch.tensor([0.0, 1.0, 0.0, 1.0]).expand(1, n, 4)
    y0_hat = torch.tensor([0.2, 0.2, 0.7, 0.7])
    sampler, generator = Sampler(noise="shared"), torch.Generator().manual_seed(4)
    y_s, estimate = kernel.step(sampler, y0_hat.logit().expand(1, n, 4), y_t, 600, 300, generator)
    torch.testing.assert_close(estimate[0, 0], y0_hat)
    expected = step_prob(kernel.schedule, Sampler(), y_t[0, 0], y0_hat, 600, 300)
    for pixel in range(4):
        assert_proportion(int(y_s[..., pixel].sum()), n, float(expected[pixel]))
    assert float(torch.corrcoef(y_s[0].T)[0, 1]) > 0.02, "pixels in doubt agree"


def test_a_drawn_step_has_its_probability() -> None:
    kernel, n = Bernoulli(get_schedule("linear", 1000), "mask"), 100_000
    steps = ((1000, 900), (500, 499), (100, 1), (2, 1), (100, 0))
    for rule, (t, s), y_t in itertools.product(RULES.values(), steps, (0.0, 1.0)):
        sampler, generator = replace(rule, last_step="sample"), torch.Generator().manual_seed(t)
        args = torch.full((1, n), 0.3).logit(), torch.full((1, n), y_t), t, s, generator
        y_s, _ = kernel.step(sampler, *args)
        one = torch.tensor([y_t], dtype=torch.float64)
        p = float(step_prob(kernel.schedule, sampler, one, torch.full_like(one, 0.3), t, s))
        assert_proportion(int(y_s.sum()), n, p)
