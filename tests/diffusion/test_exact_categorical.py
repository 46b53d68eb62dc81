"""The end-to-end proof of the categorical kernel: the samplers' exact laws on 729 states, and `sample` against them."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from berdiff.diffusion.kernels.categorical import Categorical
from berdiff.diffusion.sampler import Sampler
from berdiff.diffusion.sampling import sample
from diffusion.brute_force import assert_fits, get_schedule
from diffusion.test_categorical import chain, in_order
from diffusion.test_categorical_sampling import states
from reproduce import exact
from reproduce import exact_categorical as three

SOFT, PRIOR, MARGINAL, DDIM, HALF, ZERO, SHARED = exact.SAMPLERS
NUMBERS, STATES = three.NUMBERS.numpy(), three.STATES.numpy()


def random_estimates() -> torch.Tensor:
    """(5, 3, 2, 3): any, nearly sure, one pixel quite sure, two pixels without background, and all pixels alike."""
    p = torch.randn(5, 3, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    p[1] *= 5
    p = p.softmax(1)
    p[2, :, 0, 0] = torch.tensor([0.0, 1.0, 0.0])
    p[3, :, 1, :2] = torch.tensor([0.3, 0.7, 0.0]).reshape(3, 1)
    p[4] = p[4, :, :1, :1]
    return p


# --- the calculation -------------------------------------------------------------------------------------------------


def test_the_states_are_all_masks_in_order_and_as_the_kernel_has_them() -> None:
    assert (NUMBERS @ 3 ** np.arange(5, -1, -1)).tolist() == list(range(729))
    assert states(three.STATES[None, :, :2]).tolist() == [list(range(729))]
    assert bool((STATES.sum(1) == 1).all())


def test_the_truth_is_hard_enough() -> None:
    law = three.truth()
    torch.testing.assert_close(law.sum(1), torch.ones(2, dtype=torch.float64))
    assert bool((law > 0).all())
    assert law[0, 0] > 0.4, "an empty mode"
    first, second = (int("".join([digit] * 6), 3) for digit in "12")
    assert float(law[0, first]) == pytest.approx(float(law[0, second])), "doubt between the targets"
    assert law[1, first] > 2 * law[1, second] > 2 * law[0, second], "the image matters"
    on = torch.einsum("xs,schw->xchw", law, three.STATES)
    factorised = three.transition(on.unsqueeze(1))[:, 0]
    assert exact.total_variation(factorised, law) > 0.4, "pixels are correlated"


def test_the_estimates_are_bayes_rule_over_all_states() -> None:
    """The posterior given all of y_t, and the prior of a pixel given all the others."""
    law, one_hot = three.truth(), np.eye(3)[NUMBERS]  # [y0, pixel, class]
    for name, t in (("linear", 1), ("linear", 300), ("power2.5", 1000)):
        schedule = get_schedule(name, 1000)
        noise = chain(schedule, 0, t, 3)
        found = [three.expected_mask(schedule, law, t, kind).flatten(3).roll(1, 2) for kind in ("posterior", "prior")]
        posterior, prior = (of.transpose(2, 3).numpy() for of in found)  # [x, y_t, pixel, class]
        for x, y_t in itertools.product((0, 1), (0, 37, 400, 728)):
            likelihood = noise[NUMBERS, NUMBERS[y_t]]  # [y0, pixel]
            joint = law[x].numpy() * likelihood.prod(1)
            np.testing.assert_allclose(
                posterior[x, y_t], np.einsum("s,spc->pc", joint, one_hot) / joint.sum(), 0, 1e-10
            )
            for i in range(6):
                others = law[x].numpy() * np.delete(likelihood, i, 1).prod(1)
                np.testing.assert_allclose(prior[x, y_t, i], others @ one_hot[:, i] / others.sum(), 0, 1e-10)


def test_a_transition_is_the_product_over_pixels() -> None:
    p = torch.rand(729, 3, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).softmax(1)
    matrix, of = three.transition(p).numpy(), in_order(p.flatten(2).transpose(1, 2).numpy())  # [y_t, pixel, class]
    for row, column in ((0, 0), (3, 200), (728, 17), (400, 728)):
        expected = np.prod([of[row, i, NUMBERS[column, i]] for i in range(6)])
        assert matrix[row, column] == pytest.approx(expected, rel=1e-12)


def test_rows_of_a_step_sum_to_one() -> None:
    schedule, y_t = get_schedule("cosine", 1000), three.STATES.expand(2, -1, -1, -1, -1)
    for t, s in ((500, 400), (1, 0)):
        for kind, sampler in exact.SAMPLERS.values():
            y0_hat = three.expected_mask(schedule, three.truth(), t, kind)
            matrix = three.step_matrix(schedule, sampler, y_t, y0_hat, t, s)
            assert matrix.shape == (2, 729, 729)
            assert float(matrix.min()) > -1e-15
            torch.testing.assert_close(matrix.sum(-1), torch.ones(2, 729, dtype=torch.float64))


def test_the_law_of_shared_draws_is_that_of_gumbels() -> None:
    """Against argmax(log p + G) of NumPy's Gumbel numbers; each pixel keeps its law; one class for all by formula."""
    p, n = random_estimates(), 40_000
    law = three.shared_law(p)
    torch.testing.assert_close(law.sum(1), torch.ones(5, dtype=torch.float64), rtol=0, atol=1e-12)
    torch.testing.assert_close(torch.einsum("es,schw->echw", law, three.STATES), p, rtol=0, atol=1e-12)
    assert int((law[0] > 0).sum()) == 28, "as many as six points of the plane have, each with its three rays"
    assert int((law[4] > 0).sum()) == 3
    gumbel = np.random.default_rng(0).gumbel(size=(n, 3, 1))
    with np.errstate(divide="ignore"):
        log_p = np.log(in_order(p.flatten(2).transpose(1, 2).numpy())).transpose(0, 2, 1)  # [estimate, class, pixel]
    for of_estimate, expected in zip(log_p, law.numpy(), strict=True):
        drawn = (of_estimate + gumbel).argmax(1) @ 3 ** np.arange(5, -1, -1)
        assert_fits(np.bincount(drawn, minlength=729), np.where(expected < 1e-14, 0, expected))
    for c, state in enumerate((0, 364, 728)):  # all pixels of one class c: 1 / (1 + sum over d of max p_d / p_c)
        ratios = np.exp(log_p[:2] - log_p[:2, c : c + 1]).max(2)  # the ratio of c to itself is the 1
        np.testing.assert_allclose(law[:2, state].numpy(), 1 / ratios.sum(1), 0, 1e-12)


# --- what it says ----------------------------------------------------------------------------------------------------


def laws_of(name: str, labels: list[str], steps: int) -> list[dict[str, torch.Tensor]]:
    samplers = [(kind, replace(sampler, steps=steps)) for kind, sampler in map(exact.SAMPLERS.__getitem__, labels)]
    return exact.sampler_laws(get_schedule(name, 1000), samplers, three.truth(), masks=three.CATEGORICAL)


def test_the_exact_rules_converge_and_the_soft_one_if_it_is_fed_the_prior() -> None:
    law = three.truth()
    soft, prior, marginal, ddim = laws_of("cosine", [SOFT, PRIOR, MARGINAL, DDIM], 12)
    assert exact.total_variation(prior["sample"], marginal["sample"]) < 1e-9
    assert exact.total_variation(marginal["sample"], law) < 0.1
    assert exact.total_variation(ddim["sample"], law) < 0.1
    assert exact.total_variation(soft["sample"], law) > 0.3, "fed the posterior, it counts y_t twice"
    assert exact.total_variation(prior["threshold"], law) > 0.3, "thresholded, it leaves the pixel's evidence out"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_more_steps_come_closer_and_maximal_sigma_is_best(name: str) -> None:
    table = exact.distances(name, [2, 5, 10, 50], masks=three.CATEGORICAL)
    at_50 = {key: row[-1] for key, row in table.items()}
    for last in ("sample", "threshold"):
        assert at_50[SOFT, last] > 0.3, "fed the posterior"
        assert at_50[MARGINAL, last] < 0.05
        assert at_50[DDIM, last] < 0.05
        assert at_50[SHARED, last] < 0.1, "it converges too"
        for label in (MARGINAL, DDIM, HALF, ZERO, SHARED):
            assert table[label, last] == sorted(table[label, last], reverse=True), "more steps come closer"
        assert at_50[DDIM, last] < at_50[HALF, last] < at_50[ZERO, last], "maximal sigma is best"
    assert table[PRIOR, "sample"] == pytest.approx(table[MARGINAL, "sample"], abs=1e-9), "fed the prior it is exact"
    assert table[DDIM, "sample"][0] > 0.25, "two steps treat pixels as independent"
    assert table[SHARED, "sample"][0] < table[DDIM, "sample"][0], "shared noise does not"
    assert table[DDIM, "sample"][-1] < table[SHARED, "sample"][-1], "and in many steps that is not needed"


@pytest.mark.slow
def test_a_thousand_steps() -> None:
    samplers = [MARGINAL, DDIM]
    for ends in laws_of("linear", samplers, 1000):
        for found in ends.values():
            assert exact.total_variation(found, three.truth()) < 0.003


def test_the_table_is_markdown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "SAMPLERS", {DDIM: exact.SAMPLERS[DDIM]})
    lines = exact.markdown([1], 10, three.CATEGORICAL).splitlines()
    assert len(lines) == 2 + 2 * 2
    assert {line.count("|") for line in lines} == {5}


# --- the sampler against its law -------------------------------------------------------------------------------------


def assert_drawn_from(
    kernel: Categorical, law: torch.Tensor, label: str, sampler: Sampler, expected: np.ndarray
) -> None:
    """`sample` itself, 10,000 masks per image, by chi-square on the 729 states."""
    n, (kind, _) = 10_000, exact.SAMPLERS[label]

    def estimate(y_t: torch.Tensor, t: int) -> torch.Tensor:
        p = three.expected_mask(kernel.schedule, law, t, kind)
        logits = (p[:, :, :2].log() - p[:, :, 2:].log()).to(y_t.dtype)
        return torch.stack([table[numbers] for table, numbers in zip(logits, states(y_t), strict=True)])

    generator = torch.Generator().manual_seed(100)
    y_T = kernel.prior((2, n, 2, 2, 3), generator, torch.zeros(()))
    masks = sample(kernel, sampler, estimate, y_T, generator)
    for drawn, p in zip(states(masks), expected, strict=True):
        assert_fits(np.bincount(drawn.numpy(), minlength=729), np.where(p < 1e-12, 0, p))


@pytest.mark.parametrize("label", exact.SAMPLERS)
def test_sample_draws_from_the_exact_law(label: str) -> None:
    kernel, law, (_, sampler) = Categorical(get_schedule("cosine", 1000)), three.truth(), exact.SAMPLERS[label]
    (laws,) = laws_of("cosine", [label], 2)
    for last_step, expected in laws.items():
        assert_drawn_from(kernel, law, label, replace(sampler, steps=2, last_step=last_step), expected.numpy())
