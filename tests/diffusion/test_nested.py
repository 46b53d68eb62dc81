"""Nested targets against the list of all nested masks of a pixel: links, losses, steps, and masks that stay nested."""

import itertools
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Bernoulli as Law

from berdiff.diffusion import links, nested
from berdiff.diffusion.kernels.bernoulli import Bernoulli
from berdiff.diffusion.losses import total_loss
from berdiff.diffusion.nested import Nested
from berdiff.diffusion.random import sample_generators
from berdiff.diffusion.sampler import Sampler
from berdiff.diffusion.sampling import sample
from diffusion.brute_force import assert_fits, bayes, chain, get_schedule, maths
from fakes import generator

SCHEDULE = get_schedule("cosine", 100)
RULES = {
    "ddim": Sampler(last_step="sample"),
    "sigma-half": Sampler(last_step="sample", sigma=0.5),
    "sigma-0": Sampler(last_step="sample", sigma=0.0),
    "soft": Sampler(last_step="sample", rule="ddpm"),
    "marginal": Sampler(last_step="sample", rule="ddpm", posterior="marginal"),
}
SAMPLERS = {
    f"{name}, {noise}, {last}": replace(rule, noise=noise, last_step=last)
    for name, rule in RULES.items()
    for noise in ("independent", "shared")
    for last in ("sample", "threshold")
}
HURDLE = [name for name in SAMPLERS if "independent, sample" not in name]  # the others are refused
outputs = st.lists(st.floats(-12, 12), min_size=1, max_size=4)


def of_pixel(values, dtype=torch.float64) -> Tensor:
    """(1, 1, K, 1, 1): the targets of one pixel."""
    return torch.as_tensor(values, dtype=dtype).reshape(1, 1, -1, 1, 1)


def nested_masks(K: int) -> np.ndarray:
    """All K + 1 of a pixel: inside none of the targets, in the first, in the first two ..."""
    return np.array([[float(k < depth) for k in range(K)] for depth in range(K + 1)])


def law(output) -> np.ndarray:
    """P of each of `nested_masks`: c_1 ... c_depth (1 - c_{depth + 1})."""
    c = 1 / (1 + np.exp(-np.asarray(output, np.float64)))
    return np.array([c[:depth].prod() * (1 - c[depth] if depth < len(c) else 1) for depth in range(len(c) + 1)])


def is_nested(masks: Tensor) -> bool:
    return bool((masks[:, :, 1:] <= masks[:, :, :-1]).all())


# --- links -----------------------------------------------------------------------------------------------------------


@given(outputs)
@maths
def test_the_links_are_the_marginals_of_the_enumerated_law(output) -> None:
    p = law(output) @ nested_masks(len(output))
    found = nested.probs(of_pixel(output).sigmoid())
    torch.testing.assert_close(found, of_pixel(p))
    torch.testing.assert_close(nested.logits(of_pixel(output)).sigmoid(), of_pixel(p))
    torch.testing.assert_close(nested.inside(found), of_pixel(output).sigmoid())


def test_rounding_never_lifts_a_target_above_the_one_around_it() -> None:
    output = 8 * torch.randn(4, 50, 5, 16, 16, generator=generator()) + 6
    for p in (nested.probs(output.sigmoid()), nested.logits(output)):
        assert bool((p[:, :, 1:] <= p[:, :, :-1]).all())
        assert bool((p[:, :, 1:] < p[:, :, :-1]).any())


def test_logits_are_finite_where_probabilities_are_not_to_be_told_from_0_and_1() -> None:
    """Float32, against float64 by log(1 - p_k) as a sum over all the ways to be outside: each keeps its digits."""
    output = torch.tensor(list(itertools.product((-300.0, -40.0, 0.0, 40.0, 300.0), repeat=3))).requires_grad_()
    logits = nested.logits(output.reshape(1, -1, 3, 1, 1))
    log_in, log_out = F.logsigmoid(output.detach().double()), F.logsigmoid(-output.detach().double())
    for k in range(3):
        ways = torch.stack([log_in[:, :j].sum(1) + log_out[:, j] for j in range(k + 1)], 1)
        expected = log_in[:, : k + 1].sum(1) - ways.logsumexp(1)
        torch.testing.assert_close(logits[0, :, k, 0, 0].double(), expected, rtol=1e-6, atol=1e-6)
    logits.sum().backward()
    assert bool(output.grad.isfinite().all())


@given(outputs, st.integers(0, 4))
@maths
def test_the_cross_entropy_is_the_likelihood_of_the_whole_nested_mask(output, depth) -> None:
    K = len(output)
    depth = min(depth, K)
    y = of_pixel(nested_masks(K)[depth])
    found = nested.bce_loss(y, of_pixel(output)).sum()
    torch.testing.assert_close(float(found), -float(np.log(law(output)[depth])), rtol=1e-9, atol=1e-9)
    conditional = [Law(logits=of_pixel(output)[0, 0, k]).log_prob(y[0, 0, k]) for k in range(min(depth + 1, K))]
    torch.testing.assert_close(found, -torch.stack(conditional).sum())


# --- losses ----------------------------------------------------------------------------------------------------------


def case(K: int, seed: int = 0, n: int = 6) -> dict[str, Tensor]:
    """What a kernel's loss takes: nested masks of K targets, 6 per image, each at its own t."""
    g = generator(seed)
    y0 = torch.rand(2, n, K, 4, 4, generator=g).lt(0.7).float().cumprod(2)
    t = torch.randint(1, 101, (2, n), generator=g)
    y_t, eps = Bernoulli(SCHEDULE).q_sample(y0, t, g)
    return {"output": torch.randn(y0.shape, generator=g), "y0": y0, "y_t": y_t, "eps": eps, "t": t}


@pytest.mark.parametrize("inner", [1.0, 2.5])
@pytest.mark.parametrize("posterior", ["soft", "marginal"])
def test_the_kl_is_of_each_target_and_the_cross_entropy_of_all_at_once(posterior, inner) -> None:
    of, of_targets = case(3), torch.tensor([1, inner, inner**2], dtype=torch.float64)
    weight = torch.rand(2, 6, generator=generator(1))
    found = Nested(SCHEDULE, "mask", 0.7, 0.4, posterior, inner_weight=inner).loss(**of, weight=weight)
    c = of["output"].double().sigmoid()
    p = torch.stack([c[:, :, : k + 1].prod(2) for k in range(3)], 2)
    by_target: list[Tensor] = []
    for k in range(3):
        y0, y_t, eps = (of[name][:, :, k : k + 1].double() for name in ("y0", "y_t", "eps"))
        rest = of["t"], "mask", 1.0, 0.0, posterior, weight
        by_target.append(total_loss(SCHEDULE, p[:, :, k : k + 1].logit(), y0, y_t, eps, *rest)["kl"])
    kl = (torch.stack(by_target) * of_targets).mean()
    outside = torch.cat([torch.zeros(2, 6, 1, 4, 4), 1 - of["y0"][:, :, :-1]], 2).bool()
    likelihood = Law(c).log_prob(of["y0"].double()).masked_fill(outside, 0) * of_targets[:, None, None]
    bce = -(likelihood.flatten(2).mean(2) * weight).sum()
    assert {name: float(value) for name, value in found.items()} == pytest.approx(
        {"loss": float(0.7 * kl + 0.4 * bce), "kl": float(kl), "bce": float(bce)}, rel=1e-5
    )
    assert Nested(SCHEDULE, lambda_kl=0.0).loss(**of).keys() == {"loss", "bce"}
    assert Nested(SCHEDULE, lambda_bce=0.0).loss(**of).keys() == {"loss", "kl"}


@pytest.mark.parametrize("inner", [1.0, 6.0])
def test_no_weight_of_inner_targets_moves_the_minimum(inner) -> None:
    """At the true law of a pixel the expected loss is flat, whatever the inner targets weigh."""
    shares = torch.tensor([0.6, 0.25, 0.1, 0.05], dtype=torch.float64)  # of the masks of depth 0, 1, 2, 3
    masks = torch.stack([of_pixel(mask) for mask in nested_masks(3)])
    at_least = shares.flip(0).cumsum(0).flip(0)
    truth = (at_least[1:] / at_least[:-1]).logit()
    output = of_pixel(truth.tolist()).requires_grad_()

    def expected(output: Tensor, inner: float) -> Tensor:
        link = links.Nested(inner)
        return (shares * torch.stack([link.cross_entropy(output, y) for y in masks])).sum()

    (gradient,) = torch.autograd.grad(expected(output, inner), output)
    assert float(gradient.abs().max()) < 1e-12
    moved = of_pixel((truth + torch.tensor([0.0, 0.0, 0.3])).tolist())
    excess, alone = ((expected(moved, weight) - expected(output, weight)).item() for weight in (inner, 1.0))
    assert excess == pytest.approx(alone * inner**2)


def test_both_terms_are_least_at_the_true_law() -> None:
    """Expected over the masks of a pixel; at s = 0 and before, with y_t of every value."""
    truth = torch.tensor([0.4, -0.7, 1.1], dtype=torch.float64)
    masks, weight = torch.tensor(nested_masks(3)), torch.tensor(law(truth.tolist()))
    kernel = Nested(SCHEDULE, posterior="marginal")
    for y_t, t in itertools.product(itertools.product((0.0, 1.0), repeat=3), (1, 40)):
        steps = torch.full((1, 4), t)
        for name in ("kl", "bce"):
            output = truth.clone().requires_grad_()
            states = output.expand(1, 4, 3)[..., None, None], masks[None, ..., None, None]
            noisy = torch.tensor(y_t, dtype=torch.float64).expand(1, 4, 3)[..., None, None]
            kernel.loss(*states, noisy, noisy, steps, weight[None])[name].backward()
            torch.testing.assert_close(output.grad, torch.zeros(3, dtype=torch.float64), rtol=0, atol=1e-12)


# --- one step --------------------------------------------------------------------------------------------------------


def ones_of(sampler: Sampler, y_t: int, y0: int, t: int, s: int) -> float:
    """P(y_s = 1 | y_t, y0) of one target."""
    if sampler.rule == "ddpm":
        return bayes(SCHEDULE, y_t, y0, t, s)
    b, alpha_bar_t = float(SCHEDULE.alpha_bar[s]), float(SCHEDULE.alpha_bar[t])
    sigma = sampler.sigma * (1 - b) / (1 - alpha_bar_t)
    return sigma * y_t + (b - sigma * alpha_bar_t) * y0 + ((1 - b) - (1 - alpha_bar_t) * sigma) / 2


def law_of_step(sampler: Sampler, output, y_t, t: int, s: int) -> dict[tuple[int, ...], float]:
    """P(y_s) of all 2^K states, by the sum over all nested y0.

    The soft form is Bayes target by target: y0 by its law and the y_s drawn so far, then y_s given y_t and that y0.
    """
    K, found = len(output), {}
    masks = nested_masks(K).astype(int)
    for y_s in itertools.product((0, 1), repeat=K):
        if sampler.rule == "ddpm" and sampler.posterior == "soft":
            of_y0, total = law(output), 1.0
            for k in range(K):
                from_0, to_t = chain(SCHEDULE, 0, s)[masks[:, k]], chain(SCHEDULE, s, t)[:, y_t[k]]
                joint = (of_y0 @ from_0) * to_t
                total *= joint[y_s[k]] / joint.sum() if joint.sum() else 0.0
                of_y0 = of_y0 * from_0[:, y_s[k]]
            found[y_s] = total
        else:
            each = np.array([[ones_of(sampler, y_t[k], y0[k], t, s) for k in range(K)] for y0 in masks])
            found[y_s] = float(law(output) @ np.where(y_s, each, 1 - each).prod(1))
    return found


def probability(kernel: Nested, sampler: Sampler, output, y_t, y_s, t: int, s: int, dtype=torch.float64) -> float:
    """Of drawing y_s: the kernel's own step, with y_s put where it draws and the probabilities it draws from kept."""
    total, left = [1.0], list(y_s)

    def draw(p: Tensor, generators) -> Tensor:
        y = left.pop(0)
        total.append(float(p) if y else 1 - float(p))
        return torch.full_like(p, y)

    with mock.patch("berdiff.diffusion.nested.draw", draw):
        drawn, _ = kernel.step(sampler, of_pixel(output, dtype), of_pixel(y_t, dtype), t, s, generator())
    assert drawn.flatten().tolist() == list(y_s)
    return 0.0 if 0 in total else float(np.prod(total))  # after what cannot be, there is no next


@given(st.lists(st.floats(-8, 8), min_size=1, max_size=3), st.integers(0, 7), st.integers(1, 100), st.data())
@settings(maths, max_examples=20)
@pytest.mark.parametrize("name", RULES)
def test_a_step_is_the_sum_over_all_nested_masks(name, output, number, t, data) -> None:
    """The joint law of all targets of a pixel, not only that of each."""
    s = data.draw(st.integers(0, t - 1))
    y_t = tuple(number >> k & 1 for k in range(len(output)))
    for y_s, expected in law_of_step(RULES[name], output, y_t, t, s).items():
        found = probability(Nested(SCHEDULE), RULES[name], output, y_t, y_s, t, s)
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-10)


@pytest.mark.parametrize("name", ["ddim", "soft", "marginal"])
@pytest.mark.parametrize("s", [0, 20])
def test_steps_are_drawn_from_that_law(name, s) -> None:
    n, output, y_t = 20_000, (0.8, 0.3, -0.4), (1, 0, 1)
    expected = np.array(list(law_of_step(RULES[name], output, y_t, 45, s).values()))
    states = (of_pixel(v, torch.float32).expand(1, n, -1, -1, -1) for v in (output, y_t))
    y_s, y0_hat = Nested(SCHEDULE).step(RULES[name], *states, 45, s, generator(5))
    torch.testing.assert_close(y0_hat[:, :1], of_pixel(law(output) @ nested_masks(3), torch.float32))
    numbers = (y_s.flatten(2).long() * torch.tensor([4, 2, 1])).sum(-1)[0]
    assert_fits(np.bincount(numbers.numpy(), minlength=8), expected)


@pytest.mark.parametrize("name", [name for name in SAMPLERS if "soft" not in name and "sample" in name])
def test_of_a_best_network_masks_of_a_pixel_are_drawn_from_the_truth_in_any_number_of_steps(name) -> None:
    """The end-to-end law of nested targets is exact, which draws of each target by itself would not be."""
    n, schedule, truth = 10_000, get_schedule("power2.5", 1000), torch.tensor([0.3, 0.1, 0.35, 0.25])
    masks = torch.tensor(nested_masks(3), dtype=torch.float32)

    def estimate(y_t: Tensor, t: int) -> Tensor:
        keep = (1 + float(schedule.alpha_bar[t])) / 2
        same = (y_t.flatten(2).unsqueeze(2) == masks).float()  # (1, n, 4 masks, 3 targets)
        at_least = ((keep * same + (1 - keep) * (1 - same)).prod(-1) * truth).flip(-1).cumsum(-1).flip(-1)
        return (at_least[..., 1:] / at_least[..., :-1]).logit()[..., None, None]

    kernel = Nested(schedule)
    for steps in (1, 2, 4):
        y_T = kernel.prior((1, n, 3, 1, 1), generator(steps), torch.zeros(()))
        found = sample(kernel, replace(SAMPLERS[name], steps=steps), estimate, y_T, generator(steps + 10))
        assert is_nested(found)
        assert_fits(np.bincount(found.flatten(1).reshape(n, 3).sum(1).long().numpy(), minlength=4), truth.numpy())


# --- every mask is nested --------------------------------------------------------------------------------------------


def guess(y_t: Tensor, t: int) -> Tensor:
    """An estimate that depends on the noisy mask, sure of some pixels and not of others."""
    return 3 * torch.sin(torch.arange(y_t[0, 0].numel(), dtype=y_t.dtype) ** 2).reshape(y_t.shape[2:]) + 2 * y_t


@pytest.mark.parametrize(
    ("name", "nonempty"), [*((name, False) for name in SAMPLERS), *((name, True) for name in HURDLE)]
)
def test_every_mask_is_nested(name, nonempty) -> None:
    kernel = Nested(SCHEDULE, nonempty=nonempty)
    for steps in (1, 3, (99, 98, 3, 2, 1)):
        y_T = kernel.prior((2, 5, 4, 6, 6), generator(1), torch.zeros(()))
        masks = sample(kernel, replace(SAMPLERS[name], steps=steps), guess, y_T, generator(2))
        assert is_nested(masks)
        assert set(masks.unique().tolist()) == {0, 1}
        assert not torch.equal(masks[:, :, 0], masks[:, :, -1])
        if nonempty:
            assert bool(masks[:, :, 0].flatten(2).any(2).all())


# --- tiles -----------------------------------------------------------------------------------------------------------


def test_tiles_are_joined_by_the_means_of_their_probabilities() -> None:
    kernel, output = Nested(SCHEDULE), 4 * torch.randn(2, 5, 3, 8, 8, generator=generator(), dtype=torch.float64)
    p = kernel.to_mean(output)
    torch.testing.assert_close(p, torch.stack([output.sigmoid()[:, :, : k + 1].prod(2) for k in range(3)], 2))
    torch.testing.assert_close(kernel.from_mean(p), output, rtol=1e-9, atol=1e-9)
    mean = p.mean(0, keepdim=True)
    torch.testing.assert_close(kernel.to_mean(kernel.from_mean(mean)), mean)
    ends = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.5, 0.0], [1 + 1e-7, 1 + 2e-7]]).reshape(1, 5, 2, 1, 1)
    assert torch.equal(kernel.to_mean(kernel.from_mean(ends)), ends.clamp(max=1))


# --- one target is the Bernoulli kernel ------------------------------------------------------------------------------


@pytest.mark.parametrize("nonempty", [False, True])
@pytest.mark.parametrize("posterior", ["soft", "marginal"])
def test_one_target_is_the_bernoulli_kernel_to_the_bit(posterior, nonempty) -> None:
    chosen = "mask", 0.7, 0.4, posterior, nonempty
    one, two = Nested(SCHEDULE, *chosen), Bernoulli(SCHEDULE, *chosen)
    of = case(1)
    for weight in (None, torch.rand(2, 6, generator=generator(1))):
        ours, theirs = one.loss(**of, weight=weight), two.loss(**of, weight=weight)
        assert list(ours.items()) == list(theirs.items())
    for output in (of["output"], torch.tensor([-torch.inf, torch.inf]).expand(2, 6, 1, 4, 2).repeat(1, 1, 1, 1, 2)):
        mean = one.to_mean(output)
        assert torch.equal(mean, two.to_mean(output))
        assert torch.equal(one.from_mean(mean), two.from_mean(mean))
    for name, sampler in SAMPLERS.items():
        for t, s in ((60, 30), (60, 0), (1, 0)):
            for own in (generator(3), sample_generators(0, ["a", "b"], 6)):
                state = [g.get_state() for g in (own if isinstance(own, list) else [own])]
                ours = one.step(sampler, of["output"], of["y_t"], t, s, own)
                for g, before in zip(own if isinstance(own, list) else [own], state, strict=True):
                    g.set_state(before)
                theirs = two.step(sampler, of["output"], of["y_t"], t, s, own)
                assert torch.equal(ours[0], theirs[0]), name
                assert torch.equal(ours[1], theirs[1]), name
