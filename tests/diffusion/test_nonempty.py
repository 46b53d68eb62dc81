"""The last step of a hurdle: masks that mark something, against enumeration and sweeps over all levels."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from berdiff.diffusion import bernoulli
from berdiff.diffusion.bernoulli import draw_level
from berdiff.diffusion.kernels.bernoulli import Bernoulli, draw_nonempty
from berdiff.diffusion.losses import PREDICTIONS, Prediction, estimate_logits
from berdiff.diffusion.random import sample_generators
from berdiff.diffusion.sampler import Sampler
from berdiff.diffusion.sampling import Step, sample
from diffusion.brute_force import assert_fits, assert_proportion, get_schedule, maths

THRESHOLD, LEVELS = Sampler(), Sampler(noise="shared", last_step="sample")
LAST = {"threshold": THRESHOLD, "levels": LEVELS}
ESTIMATES = (
    (0.5, 0.5, 0.5, 0.5),
    (0.0, 0.3, 0.0, 0.9),
    (0.2, 0.0, 0.05, 0.01),
    (0.4, 1.0, 0.7, 0.1),
    (1.0, 0.0, 0.5, 0.0),
    (1e-9, 4e-9, 0.0, 2e-9),  # 1 - p is 1 in float32
    (1e-3, 0.2, 0.03),
)
smallest = float(torch.finfo(torch.float32).smallest_normal) / 2**20


def of_pixels(p: tuple[float, ...], n: int) -> torch.Tensor:
    """(1, n, 1, 1, pixels): n masks of one estimate."""
    return torch.tensor(p).expand(1, n, 1, 1, -1)


# --- one level per mask ----------------------------------------------------------------------------------------------


def test_each_mask_has_its_own_estimate_and_its_own_noise() -> None:
    p = torch.rand(3, 4, 1, 5, 5, generator=torch.Generator().manual_seed(0)) / 20

    def drawn(images: list[int]) -> torch.Tensor:
        keys = [f"image {i}" for i in images]
        return draw_nonempty(p[images], LEVELS, sample_generators(0, keys, 4))

    together = drawn([0, 1, 2])
    assert torch.equal(drawn([2, 0]), together[[2, 0]])


@pytest.mark.parametrize("p", ESTIMATES)
def test_levels_are_those_of_the_usual_draw_that_mark_something(p: tuple[float, ...], monkeypatch) -> None:
    """Every level of an even grid once: frequencies are lengths of intervals, to one level at each of their ends."""
    n = 10_000
    monkeypatch.setattr(bernoulli, "uniform", lambda shape, generators, like: torch.linspace(0, 1, n + 1)[None, :n])

    def count(masks: torch.Tensor) -> dict[tuple[float, ...], int]:
        states, counts = masks.flatten(0, 1).flatten(1).unique(dim=0, return_counts=True)
        return {tuple(state): int(c) for state, c in zip(states.tolist(), counts, strict=True)}

    masks = count(draw_nonempty(of_pixels(p, n), LEVELS, torch.Generator()))
    edges = [*sorted({v for v in p if v}, reverse=True), 0]
    assert len(masks) == len(edges) - 1
    for above, below in itertools.pairwise(edges):
        state = tuple(float(v >= above) for v in p)
        assert masks[state] == pytest.approx(n * (above - below) / edges[0], abs=2)
    if edges[0] < 0.01:
        return  # the usual draw is empty at nearly every level
    usual = {state: c for state, c in count(draw_level(of_pixels(p, n), torch.Generator())).items() if any(state)}
    assert masks.keys() == usual.keys()
    for state, c in usual.items():
        assert masks[state] / n == pytest.approx(c / sum(usual.values()), abs=4 / sum(usual.values()))


# --- the threshold ---------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1, width=32, allow_subnormal=False), min_size=1, max_size=6))
@maths
def test_the_cut_is_one_half_unless_nothing_reaches_it(p: list[float]) -> None:
    (mask,) = draw_nonempty(of_pixels(tuple(p), 1), THRESHOLD, torch.Generator()).reshape(1, -1).tolist()
    usual = [float(v >= 0.5) for v in p]
    if any(usual):
        assert mask == usual
    else:
        assert mask == [float(v >= max(p) / 2 and v > 0) for v in p]


def test_a_likely_pixel_does_not_lower_the_cut_for_others() -> None:
    p = (0.9, 0.46, 0.5, 0.44, 0.0)
    assert draw_nonempty(of_pixels(p, 1), THRESHOLD, torch.Generator()).flatten().tolist() == [1, 0, 1, 0, 0]


# --- never empty -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LAST)
def test_a_mask_is_empty_only_where_nothing_can_be_marked(name: str) -> None:
    generator = torch.Generator().manual_seed(2)
    for p in ((smallest, 0.0, 0.0), (0.0, 1e-7, 1e-7), (0.4, 0.3, 0.2), (1.0, 1.0, 1.0), (1e-30, 1e-38, 1e-20)):
        masks = draw_nonempty(of_pixels(p, 2000), LAST[name], generator)
        assert set(masks.unique().tolist()) <= {0, 1}
        assert bool(masks.flatten(2).any(2).all())
        assert not bool(masks[..., torch.tensor(p) == 0].any())
    assert not bool(draw_nonempty(torch.zeros(2, 9, 2, 4, 4), LAST[name], generator).any())


# --- the kernel ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prediction", PREDICTIONS)
def test_only_the_last_step_knows_that_something_is_marked(prediction: Prediction) -> None:
    """Before it, the steps are those of any Bernoulli kernel; in it, what the kernel's estimate says is drawn."""
    schedule = get_schedule("cosine", 100)
    usual, some = Bernoulli(schedule, prediction), Bernoulli(schedule, prediction, nonempty=True)
    y_t = bernoulli.draw(torch.full((2, 500, 1, 2, 2), 0.5), torch.Generator().manual_seed(0))
    output = torch.full_like(y_t, -2.0)
    for sampler in (*LAST.values(), Sampler(rule="ddpm", noise="shared", last_step="sample")):
        for t, s in ((60, 30), (60, 0)):
            (one, y0_hat), (two, same) = (
                kernel.step(sampler, output, y_t, t, s, torch.Generator().manual_seed(1)) for kernel in (usual, some)
            )
            assert torch.equal(y0_hat, same)
            assert torch.equal(one, two) == (s > 0)
            assert bool(two.flatten(2).any(2).all()) == (s == 0)
        assert torch.equal(two, draw_nonempty(y0_hat, sampler, torch.Generator().manual_seed(1)))


@pytest.mark.parametrize("prediction", PREDICTIONS)
@pytest.mark.parametrize("name", LAST)
def test_an_output_that_says_empty_stays_empty_to_the_end(name: str, prediction: Prediction) -> None:
    """Infinite logits go through every rule, and each y_s on the way is one of an empty mask."""
    kernel, generator = Bernoulli(get_schedule("power2.5", 1000), prediction, nonempty=True), torch.Generator()
    y_T = kernel.prior((2, 3, 1, 40, 40), generator.manual_seed(3), torch.zeros(()))
    assert bool((estimate_logits(kernel.schedule, prediction, kernel.empty_output(y_T), y_T, 1000) == -torch.inf).all())

    def check(step: Step) -> None:
        assert not bool(step.y0_hat.any())
        flip = (1 - float(kernel.schedule.alpha_bar[step.s])) / 2
        assert_proportion(int(step.y_s.sum()), step.y_s.numel(), flip)

    for rule in ("ddim", "ddpm"):
        sampler = Sampler(4, rule, noise=LAST[name].noise, last_step=LAST[name].last_step)
        masks = sample(kernel, sampler, lambda y_t, t: kernel.empty_output(y_t), y_T, generator, check)
        assert not bool(masks.any())


# --- no specks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [(0.9, 0.7, 0.6, 0.3, 0.1, 0.0), (0.2, 0.2, 0.2, 0.1), (0.5, 0.4)])
def test_levels_that_would_leave_a_speck_are_spread_over_those_below(p: tuple[float, ...]) -> None:
    """Sizes by enumeration: of the levels in [0, 1), those between the largest and the third largest probability, or
    the last of fewer, give way to uniform ones below that."""
    n, fewest = 20_000, min(3, len(p))
    drawn = draw_level(of_pixels(p, n), sample_generators(3, ["a"], n), smallest=3).flatten(2).sum(2).long().flatten()
    falling = np.array([1.0, *sorted(p, reverse=True), 0.0])
    law = -np.diff(
        falling
    )  # of each size: as many pixels are above a level between falling[size + 1] and falling[size]
    law[fewest:] *= 1 + law[1:fewest].sum() / falling[fewest]
    law[1:fewest] = 0
    assert_fits(np.bincount(drawn.numpy(), minlength=len(p) + 1), law)


def test_a_thresholded_mask_of_too_few_pixels_is_cut_at_half_its_largest_probability() -> None:
    p = of_pixels((0.8, 0.45, 0.41, 0.3), 1)
    assert draw_nonempty(p, Sampler(smallest=1), sample_generators(0, ["a"], 1)).flatten().tolist() == [1, 0, 0, 0]
    assert draw_nonempty(p, Sampler(smallest=2), sample_generators(0, ["a"], 1)).flatten().tolist() == [1, 1, 1, 0]


def test_a_pixel_in_several_targets_counts_once() -> None:
    """Two pixels in three nested targets are two pixels, not six: with four asked for, such masks are not drawn."""
    outer = torch.tensor([0.9, 0.8, 0.3, 0.2, 0.1, 0.0])
    p = torch.stack([outer, outer * 0.95, outer * 0.9])[:, None].expand(1, 500, 3, 1, 6)
    drawn = draw_level(p, sample_generators(0, ["a"], 500), smallest=4)
    sizes = drawn.any(2).flatten(2).sum(2).unique().tolist()
    assert set(sizes) <= {0, 4, 5}
    few = draw_nonempty(p, Sampler(smallest=4), sample_generators(0, ["a"], 500))
    assert few[0, 0, 0].flatten().tolist() == [1, 1, 0, 0, 0, 0]  # cut at .45, half of the largest
    assert (
        draw_nonempty(p * 0.6, Sampler(smallest=2), sample_generators(0, ["a"], 500))[0, 0].any(0).sum() == 2
    )  # .54 and .48, cut at .27
