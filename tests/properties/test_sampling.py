"""The samplers with an oracle that knows the mask, and each step against the law it should keep."""

import itertools

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from berdiff.diffusion import bernoulli, gaussian, sampling
from berdiff.diffusion.sampling import Sampler, Step, time_grid
from berdiff.diffusion.schedule import SCHEDULES
from properties.brute_force import (
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

RULES = {
    "ddpm-soft": {"rule": "ddpm", "posterior": "soft"},
    "ddpm-marginal": {"rule": "ddpm", "posterior": "marginal"},
    "ddim-max": {"rule": "ddim", "sigma": 1.0},
    "ddim-half": {"rule": "ddim", "sigma": 0.5},
    "ddim-zero": {"rule": "ddim", "sigma": 0.0},
    "ddim-shared": {"rule": "ddim", "latent": "shared"},
}


def random_mask(*shape: int) -> torch.Tensor:
    return bernoulli.draw(torch.full(shape, 0.4), torch.Generator().manual_seed(9))


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


@pytest.mark.parametrize("steps", [0, -1, 11, (), (3, 3), (3, 5), (11, 2), (5, 0)])
def test_steps_that_are_no_grid_are_refused(steps: int | tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"^steps: expected .*T = 10, found "):
        time_grid(10, steps)


@pytest.mark.parametrize(
    "bad",
    [
        {"rule": "euler"},
        {"posterior": "hard"},
        {"spacing": "log"},
        {"last_step": "mean"},
        {"latent": "image"},
        {"sigma": 1.01},
        {"sigma": -0.1},
        {"sigma": float("nan")},
    ],
)
def test_a_sampler_that_is_none_is_refused(bad: dict) -> None:
    (name,) = bad
    with pytest.raises(ValueError, match=rf"^{name}: expected .* found "):
        Sampler(**bad)


# --- with an oracle --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [2, 10, 100, 1000])
@pytest.mark.parametrize("last_step", ["threshold", "sample"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", ["linear", "cosine", "power4"])
def test_an_oracle_is_recovered_and_the_way_there_is_right(name: str, rule: str, last_step: str, steps: int) -> None:
    """The end alone proves little, as the last step copies the oracle: each y_s on the way keeps q(y_s | y0) too.

    A sampler that skips steps without respacing alpha fails on the way.
    """
    schedule = get_schedule(name, 1000)
    y0 = random_mask(1, 1, 1, 64, 64)
    wrong: list[tuple[int, int]] = []

    def note(step: Step) -> None:
        wrong.append((step.s, int((step.y_s != y0).sum())))

    sampler = Sampler(steps=steps, last_step=last_step, **RULES[rule])  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(steps)
    y_T = sampling.initial_noise(y0.shape, generator, y0)
    found = sampling.sample(schedule, sampler, lambda y_t, t: y0, y_T, generator, note)
    assert torch.equal(found, y0)
    assert [s for s, _ in wrong] == list(time_grid(1000, steps))[1:]
    for s, count in wrong[:: max(1, steps // 50)]:
        assert_proportion(count, y0.numel(), chain(schedule, 0, s)[0, 1])


@pytest.mark.parametrize("steps", [2, 10, 100, 1000])
@pytest.mark.parametrize("sampler", [Sampler(rule="ddpm"), Sampler(sigma=0.0), Sampler(sigma=1.0)], ids=str)
@pytest.mark.parametrize("name", SCHEDULES)
def test_an_oracle_is_recovered_from_gaussian_noise(name: str, sampler: Sampler, steps: int) -> None:
    schedule, generator = get_schedule(name, 1000), torch.Generator().manual_seed(steps)
    mask = random_mask(1, 1, 1, 16, 16)
    y0 = 2 * mask - 1

    def predict_eps(y_t: torch.Tensor, t: int) -> torch.Tensor:
        alpha_bar_t = float(schedule.alpha_bar[t])
        return (y_t - alpha_bar_t**0.5 * y0) / (1 - alpha_bar_t) ** 0.5

    y_T = torch.randn(mask.shape, generator=generator)
    chosen = Sampler(steps=steps, rule=sampler.rule, sigma=sampler.sigma)
    assert torch.equal(gaussian.sample(schedule, chosen, predict_eps, y_T, generator), mask)


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
        return float(sampling.step_prob(case.schedule, sampler, y, y0_hat, case.t, case.s))

    marginal = (1 - p) * hard[0] + p * hard[1]
    assert prob(rule="ddpm", posterior="marginal") == pytest.approx(marginal, abs=case.tolerance)
    joint = chain(case.schedule, case.s, case.t)[:, int(y_t)] * ([1 - p, p] @ chain(case.schedule, 0, case.s))
    assert prob(rule="ddpm", posterior="soft") == pytest.approx(joint[1] / joint.sum(), abs=case.tolerance)
    b, alpha_bar_t = float(case.schedule.alpha_bar[case.s]), float(case.schedule.alpha_bar[case.t])
    top = sigma * (1 - b) / (1 - alpha_bar_t)
    ddim = top * y_t + (b - top * alpha_bar_t) * p + ((1 - b) - (1 - alpha_bar_t) * top) / 2
    assert prob(rule="ddim", sigma=sigma) == pytest.approx(ddim, abs=case.tolerance)


@pytest.mark.parametrize("rule", RULES)
@given(y0_hat=probabilities, y_t=bits)
@maths
def test_the_last_step_thresholds_the_estimate(rule: str, y0_hat: float, y_t: float) -> None:
    sampler = Sampler(last_step="threshold", **RULES[rule])  # type: ignore[arg-type]
    args = torch.tensor([y_t], dtype=torch.float64), torch.tensor([y0_hat], dtype=torch.float64)
    assert float(sampling.step_prob(get_schedule("linear", 100), sampler, *args, 10, 0)) == (y0_hat >= 0.5)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("s", [1, 2, 50])
def test_only_the_last_step_thresholds(rule: str, s: int) -> None:
    y_t, y0_hat = torch.tensor([0.0, 1.0, 0.0, 1.0]), torch.tensor([0.3, 0.3, 0.7, 0.7])
    found = [
        sampling.step_prob(get_schedule("linear", 100), Sampler(last_step=last, **RULES[rule]), y_t, y0_hat, 60, s)  # type: ignore[arg-type]
        for last in ("threshold", "sample")
    ]
    assert torch.equal(*found)
    assert bool(((found[0] > 0) & (found[0] < 1)).all())


def test_a_level_gives_each_pixel_its_probability_and_nested_masks() -> None:
    n = 40_000
    p = torch.tensor([0.0, 0.03, 0.5, 0.8, 1.0]).expand(1, n, 5)
    masks = bernoulli.draw_level(p, torch.Generator().manual_seed(3))
    for pixel, expected in enumerate(p[0, 0].tolist()):
        assert_proportion(int(masks[..., pixel].sum()), n, expected)
    assert bool((masks.diff(dim=-1) >= 0).all()), "what is set at a lower probability is set at every higher one"
    assert len(masks.flatten(0, 1).unique(dim=0)) == 4


def test_a_shared_latent_keeps_the_law_of_each_pixel_of_a_step() -> None:
    """The joint law differs, which `test_exact` holds to the matrices; each pixel's own must not."""
    schedule, n = get_schedule("linear", 1000), 40_000
    y_t = torch.tensor([0.0, 1.0, 0.0, 1.0]).expand(1, n, 4)
    y0_hat = torch.tensor([0.2, 0.2, 0.7, 0.7]).expand(1, n, 4)
    sampler = Sampler(steps=(600, 300), last_step="sample", latent="shared")
    first: list[torch.Tensor] = []
    sampling.sample(
        schedule,
        sampler,
        lambda y, t: y0_hat,
        y_t,
        torch.Generator().manual_seed(4),
        lambda step: first.append(step.y_s),
    )
    expected = sampling.ddim_step(schedule, y_t[0, 0], y0_hat[0, 0], 600, 300)
    for pixel in range(4):
        assert_proportion(int(first[0][..., pixel].sum()), n, float(expected[pixel]))
    together = torch.corrcoef(first[0][0].T)
    assert float(together[0, 1]) > 0.02, "pixels in doubt agree"


@pytest.mark.parametrize(("t", "s"), [(1000, 900), (500, 499), (100, 1), (2, 1), (100, 0)])
@pytest.mark.parametrize("rule", RULES)
def test_a_drawn_step_has_its_probability(rule: str, t: int, s: int) -> None:
    schedule, n = get_schedule("linear", 1000), 100_000
    sampler = Sampler(steps=(t, s) if s else (t,), last_step="sample", **RULES[rule])  # type: ignore[arg-type]
    for y_t in (0, 1):
        drawn: list[torch.Tensor] = []
        sampling.sample(
            schedule,
            sampler,
            lambda y, t: torch.full_like(y, 0.3),
            torch.full((n,), float(y_t)),
            torch.Generator().manual_seed(t + y_t),
            lambda step, into=drawn: into.append(step.y_s),
        )
        one = torch.tensor([float(y_t)], dtype=torch.float64)
        p = float(sampling.step_prob(schedule, sampler, one, torch.full_like(one, 0.3), t, s))
        assert_proportion(int(drawn[0].sum()), n, p)


# --- reproducibility -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
def test_a_sample_is_the_same_in_any_batch_and_again(rule: str) -> None:
    schedule = get_schedule("cosine", 100)
    sampler = Sampler(steps=5, last_step="sample", **RULES[rule])  # type: ignore[arg-type]

    def predict(y_t: torch.Tensor, t: int) -> torch.Tensor:
        return 0.2 + 0.5 * y_t

    def masks(keys: list[str], n: int) -> torch.Tensor:
        generators = sampling.sample_generators(3, keys, n)
        like = torch.zeros(len(keys), n, 1, 6, 6)
        return sampling.sample(
            schedule, sampler, predict, sampling.initial_noise(like.shape, generators, like), generators
        )

    together = masks(["a", "b", "c"], 4)
    assert torch.equal(together, masks(["a", "b", "c"], 4))
    assert torch.equal(together[1:2], masks(["b"], 4))
    assert torch.equal(together[[2, 0]], masks(["c", "a"], 4))
    assert torch.equal(together[:, :2], masks(["a", "b", "c"], 2))
    distinct = len(together.flatten(0, 1).flatten(1).unique(dim=0))
    assert distinct == 12 or ("shared" in rule and distinct > 1)  # a level may set or clear a whole mask


def test_spawned_generators_differ_and_repeat() -> None:
    def spawn() -> list[int]:
        return [g.initial_seed() for g in sampling.spawn_generators(torch.Generator().manual_seed(4), 20)]

    assert spawn() == spawn()
    assert len(set(spawn())) == 20
