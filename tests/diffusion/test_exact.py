"""The end-to-end proof: the samplers' exact laws on the enumerable distribution, and `sample` against them."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from berdiff.diffusion.kernels.bernoulli import Bernoulli
from berdiff.diffusion.sampler import LastStep, Sampler
from berdiff.diffusion.sampling import sample
from berdiff.methods.base import SampleRequest
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.berdiff.hurdle import GatedDenoiser, HurdleSegmenter
from berdiff.networks.denoiser import Denoiser
from diffusion.brute_force import assert_fits, chain, get_schedule
from fakes import make_spec
from refusals import refused
from reproduce import exact

SOFT, PRIOR, MARGINAL, DDIM, HALF, ZERO, SHARED = exact.SAMPLERS
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


def test_the_estimates_are_bayes_rule_over_all_states() -> None:
    """The posterior given all of y_t, and the prior of a pixel given all the others."""
    law, states = exact.truth().numpy(), exact.STATES.numpy().astype(int)
    for name, t in itertools.product(("linear", "power2.5"), (1, 300, 1000)):
        schedule = get_schedule(name, 1000)
        posterior, prior = (exact.expected_mask(schedule, exact.truth(), t, kind) for kind in ("posterior", "prior"))
        for x, y_t in itertools.product((0, 1), (0, 37, 255, 511)):
            likelihood = chain(schedule, 0, t)[states, states[y_t]]  # [y0, pixel]
            joint = law[x] * likelihood.prod(1)
            np.testing.assert_allclose(posterior[x, y_t], joint @ states / joint.sum(), atol=1e-10)
            for i in range(9):
                others = law[x] * np.delete(likelihood, i, 1).prod(1)
                assert float(prior[x, y_t, i]) == pytest.approx(others @ states[:, i] / others.sum(), abs=1e-10)


def test_a_transition_is_the_product_over_pixels() -> None:
    p = torch.rand(512, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    p[5] = torch.tensor([0, 1, 0, 1, 1, 0, 0, 1, 0.25])
    matrix = exact.transition(p).numpy()
    states = exact.STATES.numpy()
    for row, column in ((0, 0), (3, 200), (5, 0b010110010), (5, 0b010110011), (5, 0), (511, 17)):
        expected = np.prod(np.where(states[column] == 1, p[row].numpy(), 1 - p[row].numpy()))
        assert matrix[row, column] == pytest.approx(expected, abs=1e-15)


def test_rows_of_a_step_sum_to_one() -> None:
    schedule, y_t = get_schedule("cosine", 1000), exact.STATES.expand(2, -1, -1)
    for t, s in ((500, 400), (1, 0)):
        for kind, sampler in exact.SAMPLERS.values():
            y0_hat = exact.expected_mask(schedule, exact.truth(), t, kind)
            matrix = exact.step_matrix(schedule, sampler, y_t, y0_hat, t, s)
            assert matrix.shape == (2, 512, 512)
            assert bool((matrix >= 0).all())
            torch.testing.assert_close(matrix.sum(-1), torch.ones(2, 512, dtype=torch.float64))


def test_the_soft_rule_converges_if_it_is_fed_the_prior_only() -> None:
    law = exact.truth()
    samplers = [
        (kind, replace(sampler, steps=12)) for kind, sampler in map(exact.SAMPLERS.get, (SOFT, PRIOR, MARGINAL))
    ]
    for name in ("linear", "cosine"):
        soft, prior, marginal = exact.sampler_laws(get_schedule(name, 1000), samplers, law)
        assert exact.total_variation(prior["sample"], marginal["sample"]) < 1e-9
        assert exact.total_variation(prior["sample"], law) < 0.1
        assert exact.total_variation(soft["sample"], law) > 0.3, "fed the posterior, it counts y_t twice"
        assert exact.total_variation(prior["threshold"], law) > 0.3, "thresholded, it leaves the pixel's evidence out"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_the_exact_rules_converge_and_maximal_sigma_is_best(name: str) -> None:
    table = exact.distances(name, STEPS)
    at_50 = {key: row[-1] for key, row in table.items()}
    for last in ("sample", "threshold"):
        assert at_50[SOFT, last] > 0.3, "fed the posterior"
        assert at_50[MARGINAL, last] < 0.05
        assert at_50[DDIM, last] < 0.05
        assert at_50[DDIM, last] < at_50[SHARED, last] < 0.1, "it converges too, but slower"
        for label in (MARGINAL, DDIM, HALF, ZERO, SHARED):
            assert table[label, last] == sorted(table[label, last], reverse=True), "more steps come closer"
        assert at_50[DDIM, last] < at_50[HALF, last] < at_50[ZERO, last], "maximal sigma is best"
    assert table[PRIOR, "sample"] == pytest.approx(table[MARGINAL, "sample"], abs=1e-9), "fed the prior it is exact"
    assert at_50[PRIOR, "threshold"] > 0.3, "a thresholded prior leaves out what the pixel itself says"
    for label in (MARGINAL, DDIM):  # at the smaller sigmas the bias of the way hides the last step
        for sampled, thresholded in zip(table[label, "sample"], table[label, "threshold"], strict=True):
            assert sampled < thresholded, "sampling the last step is better as a law"
        assert table[label, "sample"][0] > 0.25, "two steps treat pixels as independent"
        assert table[SHARED, "sample"][0] < table[label, "sample"][0], "shared noise does not"


def test_a_power_schedule_wants_its_last_step_sampled() -> None:
    """The last of 50 uniform steps is at alpha_bar = 0.95 there (linear: 0.996), so a threshold costs more."""
    kind, sampler = exact.SAMPLERS[DDIM]
    (laws,) = exact.sampler_laws(get_schedule("power2.5", 1000), [(kind, replace(sampler, steps=50))], exact.truth())
    sampled, thresholded = (exact.total_variation(laws[last], exact.truth()) for last in ("sample", "threshold"))
    assert sampled < 0.03
    assert thresholded > 2.5 * sampled


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_a_thousand_steps(name: str) -> None:
    table = exact.distances(name, [1000])
    assert table[PRIOR, "sample"] == pytest.approx(table[MARGINAL, "sample"], abs=1e-9)
    for last in ("sample", "threshold"):
        assert table[SOFT, last][0] > 0.3
        assert table[MARGINAL, last][0] < 0.002
        assert table[DDIM, last][0] < 0.002
        assert table[SHARED, last][0] < 0.01
        assert 0.01 < table[HALF, last][0] < table[ZERO, last][0]


def test_the_table_is_markdown_and_of_one_grid() -> None:
    lines = exact.markdown(steps=[1], T=10).splitlines()
    assert len(lines) == 2 + 2 * (2 * len(exact.SAMPLERS) + 3)
    assert sum("hurdle" in line for line in lines) == 2 * 3, "independent noise is thresholded alone"
    assert {line.count("|") for line in lines} == {5}
    two = [("posterior", Sampler(steps=2)), ("posterior", Sampler(steps=3))]
    with refused("samplers:", error=ValueError):
        exact.sampler_laws(get_schedule("linear", 10), two, exact.truth())


def assert_drawn_from(
    name: str, prediction: str, kind: exact.Estimate, sampler: Sampler, expected: torch.Tensor
) -> None:
    """`sample` itself, 40,000 masks per image, by chi-square on the 512 states."""
    schedule, law, n = get_schedule(name, 1000), exact.truth(), 40_000
    digits = 2 ** torch.arange(8, -1, -1)

    def number(y: torch.Tensor) -> torch.Tensor:
        return (y.flatten(2).long() * digits).sum(-1)  # (X, n)

    def estimate(y_t: torch.Tensor, t: int) -> torch.Tensor:
        logits = exact.expected_mask(schedule, law, t, kind).logit()
        rows = torch.stack([table[states] for table, states in zip(logits, number(y_t), strict=True)])
        return rows.reshape(y_t.shape).to(y_t.dtype)

    kernel, generator = Bernoulli(schedule, prediction), torch.Generator().manual_seed(100)  # type: ignore[arg-type]
    y_T = kernel.prior((2, n, 1, 3, 3), generator, torch.zeros(()))
    masks = sample(kernel, sampler, estimate, y_T, generator)
    for drawn, p in zip(number(masks), expected.numpy(), strict=True):
        assert_fits(np.bincount(drawn.numpy(), minlength=512), p)


@pytest.mark.parametrize("label", exact.SAMPLERS)
def test_sample_draws_from_the_exact_law(label: str) -> None:
    kind, sampler = exact.SAMPLERS[label]
    sampler = replace(sampler, steps=6)
    for name in ("linear", "power2.5") if label == DDIM else ("linear",):
        (laws,) = exact.sampler_laws(get_schedule(name, 1000), [(kind, sampler)], exact.truth())
        for last_step, expected in laws.items():
            assert_drawn_from(name, "mask", kind, replace(sampler, last_step=last_step), expected)


def test_soft_steps_of_a_predicted_prior_have_the_law_of_the_exact_marginal() -> None:
    """`prediction="prior"` adds the evidence exactly once, wherever the step does not add it itself."""
    kind, exact_marginal = exact.SAMPLERS[MARGINAL]
    (laws,) = exact.sampler_laws(
        get_schedule("cosine", 1000), [(kind, replace(exact_marginal, steps=6))], exact.truth()
    )
    soft = Sampler(steps=6, rule="ddpm", posterior="soft")
    for last_step, expected in laws.items():
        assert_drawn_from("cosine", "prior", "prior", replace(soft, last_step=last_step), expected)


# --- the hurdle ------------------------------------------------------------------------------------------------------


def laws_of(name: str, steps: int, hurdle: bool) -> dict[tuple[str, str], torch.Tensor]:
    samplers = [(kind, replace(sampler, steps=steps)) for kind, sampler in map(exact.SAMPLERS.get, exact.HURDLE)]
    found = exact.sampler_laws(get_schedule(name, 1000), samplers, exact.truth(), hurdle)
    return {(label, last): law for label, ends in zip(exact.HURDLE, found, strict=True) for last, law in ends.items()}


def test_a_law_is_the_mixture_of_its_empty_mask_and_the_others() -> None:
    law = exact.truth()
    some = exact.nonempty(law)
    torch.testing.assert_close(some.sum(1), torch.ones(2, dtype=torch.float64))
    assert not bool(some[:, 0].any())
    torch.testing.assert_close(exact.mixture(law, some), law, rtol=0, atol=1e-15)


def test_the_last_step_of_a_hurdle_is_the_usual_one_without_its_empty_outcome() -> None:
    """Rows sum to one, none is empty, and what two masks are to each other stays as it was."""
    schedule, y_t = get_schedule("power2.5", 1000), exact.STATES.expand(2, -1, -1)
    for label, last in ((DDIM, "threshold"), (SHARED, "threshold"), (SHARED, "sample")):
        kind, sampler = exact.SAMPLERS[label]
        sampler = replace(sampler, last_step=last)
        y0_hat = exact.expected_mask(schedule, exact.nonempty(exact.truth()), 400, kind)
        matrix = exact.nonempty_matrix(schedule, sampler, y_t, y0_hat, 400)
        usual = exact.step_matrix(schedule, sampler, y_t, y0_hat, 400, 0)
        assert not bool(matrix[..., 0].any())
        torch.testing.assert_close(matrix.sum(-1), torch.ones(2, 512, dtype=torch.float64))
        some = 1 - usual[..., :1]
        assert float(some.min()) < 0.95, "without a hurdle some are empty"
        if last == "sample":
            torch.testing.assert_close(matrix[..., 1:] * some, usual[..., 1:])
        else:
            kept = some[..., 0] > 0
            assert torch.equal(matrix[kept], usual[kept])
            assert 0 < int(kept.sum()) < 1024


def test_with_a_hurdle_the_empty_share_is_exact_and_the_rest_is_nearer_to_the_truth() -> None:
    """In any number of steps; it is what few steps get wrong most, with either noise."""
    law = exact.truth()
    for name, steps in (("power2.5", 2), ("power2.5", 3), ("power2.5", 5), ("linear", 3)):
        without, behind = laws_of(name, steps, False), laws_of(name, steps, True)
        for (label, last), found in behind.items():
            torch.testing.assert_close(found.sum(1), torch.ones(2, dtype=torch.float64))
            torch.testing.assert_close(found[:, 0], law[:, 0], rtol=0, atol=1e-12)
            assert exact.total_variation(found, law) < exact.total_variation(without[label, last], law)
        for label in exact.HURDLE:
            assert float((without[label, "sample"][:, 0] - law[:, 0]).abs().max()) > 0.05, "as it was"


@pytest.mark.slow
def test_the_hurdle_converges() -> None:
    table = exact.distances("linear", [5, 50, 200], hurdle=True)
    for row in table.values():
        assert row == sorted(row, reverse=True)
    assert table[DDIM, "threshold"][-1] < 0.004


class Oracle(Denoiser[torch.Tensor]):
    """The best possible network of a law of masks that mark something; its summary is the logit of pi."""

    stride, summary_width = 1, 1

    def __init__(self, name: str, law: torch.Tensor) -> None:
        super().__init__("oracle")
        self.schedule, self.law = get_schedule(name, 1000), law

    def encode(self, image: torch.Tensor) -> torch.Tensor:
        return image.flatten(1)[:, 0].long()  # which x

    def encode_and_summarise(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.encode(image)
        return x, self.law[x, :1].logit().float()

    def denoise(self, y_t: torch.Tensor, t: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        table = exact.expected_mask(self.schedule, exact.nonempty(self.law)[features], int(t[0, 0])).logit()
        states = (y_t.flatten(2).long() * 2 ** torch.arange(8, -1, -1)).sum(-1)
        return torch.stack([of_x[s] for of_x, s in zip(table, states, strict=True)]).reshape(y_t.shape).to(y_t.dtype)


@pytest.mark.parametrize(("label", "last"), [(DDIM, "threshold"), (SHARED, "threshold"), (SHARED, "sample")])
def test_the_segmenter_with_a_hurdle_draws_from_the_exact_law(label: str, last: LastStep) -> None:
    """Method, gate, kernel and last step together, on all 512 states."""
    n, (_, sampler) = 40_000, exact.SAMPLERS[label]
    expected = laws_of("power2.5", 3, True)
    config = BerDiff(schedule="power2.5", prediction="mask", hurdle=1.0)
    gated = GatedDenoiser(Oracle("power2.5", exact.truth()), config.kernel())
    gated.head = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Identity())
    model = HurdleSegmenter(config, make_spec((3, 3)), gated, config.kernel())
    for x in (0, 1):
        features = model.encode(torch.full((1, 1, 3, 3), float(x)))
        chosen = replace(sampler, steps=3, last_step=last)
        masks = model.draw(features, (1, n, 1, 3, 3), SampleRequest([torch.Generator().manual_seed(8)], chosen))
        states = (masks.flatten(2).long() * 2 ** torch.arange(8, -1, -1)).sum(-1)
        assert_fits(np.bincount(states[0].numpy(), minlength=512), expected[label, last][x].numpy())
