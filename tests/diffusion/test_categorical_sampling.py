"""Drawing from the categorical kernel: single draws, steps, chains, and tiles."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from berdiff.diffusion import bernoulli, categorical
from berdiff.diffusion.kernels import bernoulli as bernoulli_kernel
from berdiff.diffusion.kernels.categorical import Categorical, step_probs
from berdiff.diffusion.sampler import Sampler, time_grid
from berdiff.diffusion.sampling import Step, sample
from diffusion.brute_force import assert_fits, assert_proportion, get_schedule
from diffusion.test_categorical import RULES, chain, in_order, numbers
from reproduce import two_answers

ALL_RULES = {**RULES, "ddim-shared": Sampler(noise="shared"), "ddpm-shared": Sampler(rule="ddpm", noise="shared")}


def of_pixels(p: list[list[float]], n: int) -> torch.Tensor:
    """(1, n, C, 1, pixels) from the probabilities of each pixel's classes, the background last."""
    return torch.tensor(p).T[None, None, :, None].expand(1, n, -1, -1, -1)


def states(masks: torch.Tensor) -> torch.Tensor:
    """The number of each mask `(B, N, K, H, W)`, its pixels' classes as digits: `(B, N)`."""
    digits = numbers(masks).flatten(2)
    return (digits * (masks.shape[2] + 1) ** torch.arange(digits.shape[2] - 1, -1, -1)).sum(-1)


def random_mask(K: int, side: int) -> torch.Tensor:
    return categorical.draw(torch.ones(1, 1, K + 1, side, side), torch.Generator().manual_seed(9))


def sure(y0: torch.Tensor) -> torch.Tensor:
    """Logits whose softmax is y0 to the last digit."""
    return 400 * y0 - 200


# --- single draws ----------------------------------------------------------------------------------------------------


def test_draw_is_exact_at_zero_and_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dice show 0, and the largest number below 1; probabilities of 0 stay 0 although their sum is rounded."""
    rows = [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.3, 0.7], [0.1, 0.9, 0.0], [1 / 3, 2 / 3, 0.0]]
    for dtype, dice in itertools.product((torch.float32, torch.float64), ("low", "high")):
        number = 0.0 if dice == "low" else 1 - 2.0 ** -(24 if dtype == torch.float32 else 53)
        monkeypatch.setattr(
            categorical, "uniform", lambda shape, g, like, number=number: torch.full_like(like[:, :, :1], number)
        )
        p = of_pixels(rows, 1).to(dtype)
        for total in (1.0, 0.1, 3.0):  # p need not sum to 1
            drawn = categorical.with_background(categorical.draw(total * p, torch.Generator()))
            assert bool((p[drawn > 0] > 0).all())
    assert not bool(categorical.draw(torch.zeros(1, 1, 3, 2, 2), torch.Generator()).any())


def test_draw_has_its_probabilities_and_two_classes_those_of_a_coin() -> None:
    n, rows = 20_000, [[0.1, 0.2, 0.3, 0.4], [0.9, 0.0, 1e-3, 0.099], [0.25, 0.25, 0.25, 0.25]]
    drawn = numbers(categorical.draw(of_pixels(rows, n), torch.Generator().manual_seed(0)))
    for row, found in zip(rows, drawn.flatten(2).unbind(2), strict=True):
        assert_fits(np.bincount(found.flatten().numpy(), minlength=4), in_order(np.array(row)))
    p = torch.rand(2, 3, 1, 20, 20, generator=torch.Generator().manual_seed(1))
    ours, theirs = (
        of(x, torch.Generator().manual_seed(2))
        for of, x in ((categorical.draw, categorical.with_background(p)), (bernoulli.draw, p))
    )
    assert torch.equal(ours, theirs)


def test_the_most_likely_class_wins_and_of_equals_a_target() -> None:
    p = of_pixels([[0.2, 0.3, 0.5], [0.2, 0.5, 0.3], [0.4, 0.2, 0.4], [0.4, 0.4, 0.2], [0.3, 0.35, 0.35]], 1)
    assert numbers(categorical.most_likely(p)).flatten().tolist() == [0, 2, 1, 1, 2]


def test_one_gumbel_per_class_gives_each_pixel_its_law_and_equals_the_same_answer() -> None:
    n, C = 20_000, 4
    rows = [[0.1, 0.2, 0.3, 0.4], [0.4, 0.1, 0.0, 0.5], [0.1, 0.2, 0.3, 0.4], [0.001, 0.002, 0.9, 0.097]]
    masks = categorical.draw_shared(of_pixels(rows, n), torch.Generator().manual_seed(3))
    drawn = numbers(masks).flatten(0, 2)
    for row, found in zip(rows, drawn.unbind(1), strict=True):
        assert_fits(np.bincount(found.numpy(), minlength=C), in_order(np.array(row)))
    assert torch.equal(drawn[:, 0], drawn[:, 2])
    together = np.bincount((C * drawn[:, 0] + drawn[:, 1]).numpy(), minlength=C * C) / n
    apart = np.outer(in_order(np.array(rows[0])), in_order(np.array(rows[1]))).flatten()
    assert np.abs(together - apart).sum() > 0.3, "not independent"


def test_with_two_classes_the_gumbels_are_a_uniform_level() -> None:
    """level = sigmoid(G_background - G_target): the mask is `bernoulli.draw_level` at that level."""
    n = 20_000
    p = torch.rand(1, n, 1, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    masks = categorical.draw_shared(categorical.with_background(p), torch.Generator().manual_seed(4))
    u = torch.rand(n, 2, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    gumbel = -(-torch.log1p(-u)).log()
    level = torch.sigmoid(gumbel[:, 1] - gumbel[:, 0])
    assert torch.equal(masks.squeeze(0), (level[:, None, None, None] < p[0]).double())
    assert_fits(np.bincount((level * 100).long().numpy(), minlength=100), np.full(100, 0.01))


# --- one step --------------------------------------------------------------------------------------------------------


def test_a_drawn_step_has_its_probabilities() -> None:
    """With shared noise too: the joint law differs (`test_exact_categorical`), each pixel's own must not."""
    kernel, n, p = Categorical(get_schedule("linear", 1000)), 10_000, torch.tensor([0.2, 0.5, 0.3]).double()
    output = (p[:2] / p[2]).log().float().reshape(2, 1, 1)
    for rule, (t, s) in itertools.product(ALL_RULES.values(), ((1000, 700), (100, 1), (100, 0))):
        sampler, generator = replace(rule, last_step="sample"), torch.Generator().manual_seed(t)
        y_t = torch.tensor([[1.0, 0, 0], [0, 1, 0]])[:, None]  # one pixel of each class
        y_s, y0_hat = kernel.step(sampler, *(x.expand(1, n, 2, 1, 3) for x in (output, y_t)), t, s, generator)
        torch.testing.assert_close(y0_hat[0, 0, :, 0, 0].double(), p[:2])
        full = categorical.with_background(y_t[None, None]).double()
        if sampler.noise == "shared":  # the step from a hard y0, for each of its classes
            hard = torch.eye(3, dtype=torch.float64)[None, ..., None, None].expand(-1, -1, -1, 1, 3)
            each = step_probs(kernel.schedule, sampler, full.expand(-1, 3, -1, -1, -1), hard, t, s)
            expected = torch.einsum("k,kchw->chw", p, each[0])
        else:
            known = p[:, None, None].expand(1, 1, 3, 1, 3)
            expected = step_probs(kernel.schedule, sampler, full, known, t, s)[0, 0]
        for pixel, found in enumerate(numbers(y_s).flatten(0, 2).unbind(1)):
            assert_fits(np.bincount(found.numpy(), minlength=3), in_order(expected[:, 0, pixel].numpy()))


def test_the_last_step_and_only_it_takes_the_most_likely_class() -> None:
    schedule = get_schedule("linear", 100)
    y0_hat = of_pixels([[0.2, 0.3, 0.5], [0.3, 0.4, 0.3], [0.6, 0.2, 0.2]], 1)
    for rule, y_t in itertools.product(RULES.values(), torch.eye(3)):
        threshold, drawn = replace(rule, last_step="threshold"), replace(rule, last_step="sample")
        y_t = y_t.reshape(1, 1, 3, 1, 1).expand_as(y0_hat)
        last = step_probs(schedule, threshold, y_t, y0_hat, 10, 0)
        assert last[0, 0, :, 0].argmax(0).tolist() == [2, 1, 0]
        assert torch.equal(last.max(2).values, torch.ones(1, 1, 1, 3))
        for s in (1, 50):
            p, other = (step_probs(schedule, sampler, y_t, y0_hat, 60, s) for sampler in (threshold, drawn))
            assert torch.equal(p, other)
            assert bool(((p > 0) & (p < 1)).all())


# --- chains ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ALL_RULES)
def test_an_oracle_is_recovered_and_the_way_there_is_right(rule: str) -> None:
    """Each y_s on the way keeps q(y_s | y0) too: a class survives with its probability, and all others are alike."""
    for (name, K), steps in itertools.product((("linear", 1), ("power4", 2), ("cosine", 3)), (2, 30)):
        y0 = random_mask(K, 40)
        kernel, generator = Categorical(get_schedule(name, 1000)), torch.Generator().manual_seed(steps)
        wrong: list[tuple[int, int]] = []
        where: list[torch.Tensor] = []

        def note(step: Step, wrong=wrong, where=where, y0=y0, K=K) -> None:
            moved = (numbers(step.y_s) - numbers(y0)) % (K + 1)
            wrong.append((step.s, int((moved > 0).sum())))
            where.append(torch.bincount(moved.flatten(), minlength=K + 1)[1:])

        sampler = replace(ALL_RULES[rule], steps=steps, last_step=("threshold", "sample")[K % 2])
        y_T = kernel.prior(y0.shape, generator, y0)
        assert torch.equal(sample(kernel, sampler, lambda y_t, t, y0=y0: sure(y0), y_T, generator, note), y0)
        assert [s for s, _ in wrong] == list(time_grid(1000, steps))[1:]
        for s, count in wrong[:: steps // 2]:
            assert_proportion(count, y0[:, :, 0].numel(), 1 - chain(kernel.schedule, 0, s, K + 1)[0, 0])
        if K > 1:
            assert_fits(where[0].numpy(), np.full(K, 1 / K))


def test_pure_noise_is_every_class_alike() -> None:
    for K in (1, 2, 3):
        y_T = Categorical(get_schedule("linear", 10)).prior((3, 5, K, 30, 30), torch.Generator(), torch.zeros(()))
        assert y_T.shape == (3, 5, K, 30, 30)
        assert_fits(np.bincount(numbers(y_T).flatten().numpy(), minlength=K + 1), np.full(K + 1, 1 / (K + 1)))


# --- two equally likely answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("last_step", ["sample", "threshold"])
def test_two_exclusive_answers_are_both_drawn_and_never_mixed(last_step: str) -> None:
    schedule, n = get_schedule("power2.5", 1000), 500
    object_, answers = two_answers.disc().bool(), two_answers.answers()
    # thresholded, one step from pure noise has nothing random in it
    for steps in (1, 2, 5, 10) if last_step == "sample" else (2, 5, 10):
        sampler = Sampler(steps, noise="shared", last_step=last_step)  # type: ignore[arg-type]
        masks = two_answers.drawn(schedule, sampler, n, torch.Generator().manual_seed(steps))
        assert torch.equal(masks.any(1), object_.expand(n, -1, -1)), "the object, whole and alone"
        is_first, is_second = ((masks == answer).flatten(1).all(1) for answer in answers)
        assert bool((is_first ^ is_second).all())
        assert_proportion(int(is_first.sum()), n, 0.5)
        first, second, mixed = two_answers.shares(masks)
        assert (first, second, mixed) == (float(is_first.float().mean()), float(is_second.float().mean()), 0)
    independent = Sampler(2, last_step="sample")
    *_, mixed = two_answers.shares(two_answers.drawn(schedule, independent, n, torch.Generator().manual_seed(0)))
    assert mixed > 0.3, "what pixels that decide by themselves would do"


def test_the_table_of_two_answers_is_markdown() -> None:
    lines = two_answers.markdown(n=2).splitlines()
    assert len(lines) == 2 + 5 * 2 * 2
    assert {line.count("|") for line in lines} == {7}


@pytest.mark.slow
def test_a_trained_network_draws_both_answers_and_seldom_mixes_them() -> None:
    """Each pixel sees itself and the mean over all, and learns by the kernel's loss; the image tells where, not which.

    Its estimates differ a little from pixel to pixel, as an exact one's do not: so seldom, and not never."""
    torch.manual_seed(0)
    kernel, image, width, n = Categorical(get_schedule("power2.5", 1000)), two_answers.disc(), 32, 300
    local = torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.SiLU())
    whole = torch.nn.Sequential(torch.nn.Linear(width + 1, 64), torch.nn.SiLU(), torch.nn.Linear(64, width))
    out = torch.nn.Sequential(torch.nn.SiLU(), torch.nn.Linear(width, 2))

    def predict(y_t: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        pixels = y_t.flatten(3).transpose(2, 3)  # (1, N, pixels, 2)
        time = (t / 1000)[..., None, None].expand_as(pixels[..., :1])
        h = local(torch.cat([pixels, image.reshape(-1, 1).expand_as(time), time], -1))
        pooled = whole(torch.cat([h.mean(2), time[:, :, 0]], -1)).unsqueeze(2)
        return out(h + pooled).transpose(2, 3).reshape(y_t.shape)

    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam([*local.parameters(), *whole.parameters(), *out.parameters()], 1e-2)
    for _ in range(600):
        y0 = two_answers.answers()[torch.randint(2, (1, 32), generator=generator)]
        t = torch.randint(1, 1001, (1, 32), generator=generator)
        y_t, eps = kernel.q_sample(y0, t, generator)
        optimizer.zero_grad()
        kernel.loss(predict(y_t, t), y0, y_t, eps, t)["loss"].backward()
        optimizer.step()

    def drawn(sampler: Sampler) -> tuple[float, float, float]:
        y_T = kernel.prior((1, n, 2, 12, 12), generator, torch.zeros(()))
        masks = sample(kernel, sampler, lambda y_t, t: predict(y_t, torch.full((1, n), t)), y_T, generator)[0]
        return two_answers.shares(masks * image)  # of the object itself

    for steps, last_step in ((1, "sample"), (3, "sample"), (3, "threshold"), (10, "sample"), (10, "threshold")):
        first, second, mixed = drawn(Sampler(steps, noise="shared", last_step=last_step))  # type: ignore[arg-type]
        assert mixed < 0.1
        assert 0.3 < first / (first + second) < 0.7
    assert drawn(Sampler(1, last_step="sample"))[2] > 0.9, "independent noise"


# --- tiles -----------------------------------------------------------------------------------------------------------


def test_means_of_tiles_are_means_of_probabilities() -> None:
    kernel = Categorical(get_schedule("linear", 10))
    outputs = 6 * torch.randn(5, 2, 3, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    joined = kernel.from_mean(torch.stack([kernel.to_mean(output[None]) for output in outputs]).mean(0))
    expected = torch.cat([outputs, torch.zeros(5, 2, 1, 4, 4)], 2).softmax(2).mean(0)
    torch.testing.assert_close(categorical.probs(joined)[0], expected)
    torch.testing.assert_close(kernel.from_mean(kernel.to_mean(outputs)), outputs)
    one = outputs[:, :, :1]
    torch.testing.assert_close(kernel.to_mean(one), bernoulli_kernel.Bernoulli(kernel.schedule, "mask").to_mean(one))


def test_sure_tiles_stay_sure_and_finite() -> None:
    """In float32 the background of a sure pixel is rounded to nothing, and a mean a hair above 1 to less than that."""
    kernel = Categorical(get_schedule("linear", 10))
    for values in ([80.0, -80.0], [200.0, 199.0], [20.0, 20.0], [-200.0, -torch.inf], [-torch.inf, -torch.inf]):
        output = torch.tensor(values).reshape(1, 1, 2, 1, 1)
        p = categorical.probs(output.double()).flatten()
        for rounding in (1.0, 1 + 1e-6):
            back = categorical.probs(kernel.from_mean(kernel.to_mean(output) * rounding)).flatten()
            torch.testing.assert_close(back.double(), p, rtol=0, atol=3e-6)
