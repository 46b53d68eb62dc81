"""The end-to-end proof: the samplers' exact laws on the enumerable distribution, and `sample` against them."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from berdiff.diffusion import sampling
from berdiff.diffusion.sampling import Sampler, step_prob
from berdiff.experiments import exact
from properties.brute_force import assert_fits, chain, get_schedule

STEPS = [2, 5, 10, 50]


def test_the_states_are_all_masks_in_order() -> None:
    digits = 2 ** torch.arange(8, -1, -1, dtype=torch.float64)
    assert (exact.STATES @ digits).tolist() == list(range(512))


def test_the_truth_is_hard_enough() -> None:
    """A law that factorises over pixels would be met by any sampler, and prove nothing."""
    law = exact.truth()
    torch.testing.assert_close(law.sum(1), torch.ones(2, dtype=torch.float64))
    assert bool((law > 0).all())
    assert law[0, 0] > 0.5, "an empty mode"
    assert law[1, 511] > 5 * law[0, 511], "the image matters"
    on = law @ exact.STATES
    factorised = torch.stack([exact.transition(p[None])[0] for p in on])
    assert exact.total_variation(factorised, law) > 0.4, "pixels are correlated"


@pytest.mark.parametrize("t", [1, 300, 1000])
@pytest.mark.parametrize("name", ["linear", "power2.5"])
def test_the_estimate_is_bayes_rule_over_all_states(name: str, t: int) -> None:
    schedule, law = get_schedule(name, 1000), exact.truth().numpy()
    found = exact.expected_mask(schedule, exact.truth(), t).numpy()
    flips = chain(schedule, 0, t)
    states = exact.STATES.numpy().astype(int)
    for x, y_t in itertools.product((0, 1), (0, 37, 255, 511)):
        likelihood = np.array([np.prod([flips[y0[i], states[y_t][i]] for i in range(9)]) for y0 in states])
        posterior = law[x] * likelihood / (law[x] * likelihood).sum()
        np.testing.assert_allclose(found[x, y_t], posterior @ states, atol=1e-10)


def test_a_transition_is_the_product_over_pixels() -> None:
    p = torch.rand(512, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    p[5] = torch.tensor([0, 1, 0, 1, 1, 0, 0, 1, 0.25])
    matrix = exact.transition(p).numpy()
    states = exact.STATES.numpy()
    for row, column in ((0, 0), (3, 200), (5, 0b010110010), (5, 0b010110011), (5, 0), (511, 17)):
        expected = np.prod(np.where(states[column] == 1, p[row].numpy(), 1 - p[row].numpy()))
        assert matrix[row, column] == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("label", exact.SAMPLERS)
@pytest.mark.parametrize(("t", "s"), [(1000, 900), (500, 499), (1, 0)])
def test_rows_of_a_step_sum_to_one(label: str, t: int, s: int) -> None:
    schedule = get_schedule("cosine", 1000)
    y0_hat = exact.expected_mask(schedule, exact.truth(), t)
    matrix = exact.transition(step_prob(schedule, exact.SAMPLERS[label], exact.STATES.expand(2, -1, -1), y0_hat, t, s))
    assert matrix.shape == (2, 512, 512)
    assert bool((matrix >= 0).all())
    torch.testing.assert_close(matrix.sum(-1), torch.ones(2, 512, dtype=torch.float64))


@pytest.fixture(scope="module", params=["linear", "cosine"])
def table(request: pytest.FixtureRequest) -> dict[tuple[str, str], list[float]]:
    return exact.distances(request.param, STEPS)


def test_the_soft_rule_never_converges_and_the_exact_ones_do(table: dict[tuple[str, str], list[float]]) -> None:
    soft, marginal, ddim, half, none, shared = exact.SAMPLERS
    at_50 = {key: row[-1] for key, row in table.items()}
    for last in ("sample", "threshold"):
        assert at_50[soft, last] > 0.3
        assert at_50[marginal, last] < 0.05
        assert at_50[ddim, last] < 0.05
        assert at_50[ddim, last] < at_50[shared, last] < 0.1, "it converges too, but slower"
        for label in (marginal, ddim, half, none, shared):
            assert table[label, last] == sorted(table[label, last], reverse=True), "more steps come closer"
        assert at_50[ddim, last] < at_50[half, last] < at_50[none, last], "maximal sigma is best"
    for label in (marginal, ddim):  # at the smaller sigmas the bias of the way hides the last step
        for sampled, thresholded in zip(table[label, "sample"], table[label, "threshold"], strict=True):
            assert sampled < thresholded, "sampling the last step is better as a law"
        assert table[label, "sample"][0] > 0.25, "two steps treat pixels as independent"
        assert table[shared, "sample"][0] < table[label, "sample"][0], "a shared latent does not"


def test_a_power_schedule_wants_its_last_step_sampled() -> None:
    """The last of 50 uniform steps is at alpha_bar = 0.95 there (linear: 0.996), so a threshold costs more."""
    samplers = [replace(exact.SAMPLERS[label], steps=50) for label in ("DDPM, exact marginal", "DDIM, sigma = max")]
    for laws in exact.sampler_laws(get_schedule("power2.5", 1000), samplers, exact.truth()):
        sampled, thresholded = (exact.total_variation(laws[last], exact.truth()) for last in ("sample", "threshold"))
        assert sampled < 0.03
        assert thresholded > 2.5 * sampled


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_a_thousand_steps(name: str) -> None:
    soft, marginal, ddim, half, none, shared = exact.SAMPLERS
    table = exact.distances(name, [1000])
    for last in ("sample", "threshold"):
        assert table[soft, last][0] > 0.3
        assert table[marginal, last][0] < 0.002
        assert table[ddim, last][0] < 0.002
        assert table[shared, last][0] < 0.01
        assert 0.01 < table[half, last][0] < table[none, last][0]


def test_steps_of_different_grids_are_refused() -> None:
    with pytest.raises(ValueError, match="samplers: expected one grid"):
        exact.sampler_laws(get_schedule("linear", 10), [Sampler(steps=2), Sampler(steps=3)], exact.truth())


def test_the_table_is_markdown() -> None:
    lines = exact.markdown(steps=[1, 2], T=10).splitlines()
    assert len(lines) == 2 + 2 * 2 * len(exact.SAMPLERS)
    assert {line.count("|") for line in lines} == {6}


@pytest.mark.parametrize(
    ("name", "label"),
    [*itertools.product(("linear", "cosine"), exact.SAMPLERS), ("power2.5", "DDIM, sigma = max")],
)
def test_sample_draws_from_the_exact_law(name: str, label: str) -> None:
    """`sample` itself, 60,000 masks an image, by chi-square on the 512 states."""
    schedule, law, n = get_schedule(name, 1000), exact.truth(), 60_000
    digits = 2 ** torch.arange(8, -1, -1)

    def number(y: torch.Tensor) -> torch.Tensor:
        return (y.flatten(2).long() * digits).sum(-1)  # (X, n)

    def predict(y_t: torch.Tensor, t: int) -> torch.Tensor:
        y0_hat = exact.expected_mask(schedule, law, t)
        rows = torch.stack([table[states] for table, states in zip(y0_hat, number(y_t), strict=True)])
        return rows.reshape(y_t.shape).to(y_t.dtype)

    sampler = replace(exact.SAMPLERS[label], steps=10)
    (laws,) = exact.sampler_laws(schedule, [sampler], law)
    for seed, (last_step, expected) in enumerate(laws.items()):
        generator = torch.Generator().manual_seed(100 + seed)
        y_T = sampling.initial_noise((2, n, 1, 3, 3), generator, torch.zeros(()))
        masks = sampling.sample(schedule, replace(sampler, last_step=last_step), predict, y_T, generator)
        for drawn, p in zip(number(masks), expected.numpy(), strict=True):
            assert_fits(np.bincount(drawn.numpy(), minlength=512), p)
