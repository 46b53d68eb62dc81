"""Flow matching: the straight path, its velocity, and Euler's rule where the truth is known in closed form."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from berdiff.diffusion import flow
from berdiff.diffusion.flow import Flow
from berdiff.diffusion.random import sample_generators
from berdiff.diffusion.sampler import Sampler, time_grid
from berdiff.diffusion.sampling import sample
from berdiff.diffusion.schedule import NoiseSchedule, power
from diffusion.brute_force import TEST_FAILURE_RATE, assert_proportion, maths
from fakes import generator

POWERS = (1.0, 1.5, 2.5, 4.0)
EULER = Sampler(sigma=0.0)


def schedule(exponent: float = 1.0, T: int = 1000) -> NoiseSchedule:
    return power(T, exponent)


# --- the path --------------------------------------------------------------------------------------------------------


def test_the_path_has_its_marginals() -> None:
    """y_t ~ N(a y0, (1 - a)^2) with a = (1 - t / T)^k: mean and variance of 20,000 draws; at T it is the noise."""
    n = 20_000
    for k, (t, y0) in itertools.product(POWERS, ((1, 1.0), (300, -1.0), (999, 1.0))):
        a = (1 - t / 1000) ** k
        y_t, eps = flow.q_sample(schedule(k), torch.full((n,), y0, dtype=torch.float64), t, generator(t))
        far = stats.norm.isf(TEST_FAILURE_RATE / 2) * (1 - a) / math.sqrt(n)
        assert float(y_t.mean()) == pytest.approx(a * y0, abs=far)
        low, high = stats.chi2.ppf([TEST_FAILURE_RATE / 2, 1 - TEST_FAILURE_RATE / 2], n) * (1 - a) ** 2
        assert low <= float((y_t - a * y0).square().sum()) <= high
        torch.testing.assert_close(y_t, a * y0 + (1 - a) * eps)
    y_T, eps = flow.q_sample(schedule(2.5), torch.ones(5), 1000, generator())
    assert torch.equal(y_T, eps)


def test_each_mask_has_its_own_step() -> None:
    y0, t = torch.ones(2, 3, 1, 4, 4), torch.tensor([[1000, 500, 1], [20, 300, 999]])
    y_t, eps = flow.q_sample(schedule(), y0, t, sample_generators(0, ["a", "b"], 3))
    for b, i in itertools.product(range(2), range(3)):
        a = 1 - int(t[b, i]) / 1000
        torch.testing.assert_close(y_t[b, i], a + (1 - a) * eps[b, i])


def test_the_velocity_is_the_derivative_of_the_path() -> None:
    y0, eps = torch.tensor([1.0, -1.0, 1.0]), torch.tensor([0.3, 2.0, -1.0])
    a = torch.tensor(0.4, requires_grad=True)
    for i in range(3):
        (slope,) = torch.autograd.grad(a * y0[i] + (1 - a) * eps[i], a)
        assert float(flow.velocity(y0, eps)[i]) == pytest.approx(float(slope))


@given(st.sampled_from(POWERS), st.integers(1, 1000), st.floats(-3, 3), st.floats(-1, 1))
@maths
def test_velocity_and_mask_are_each_others_inverse(k: float, t: int, y: float, y0: float) -> None:
    y_t, y0_hat = (torch.tensor([v], dtype=torch.float64) for v in (y, y0))
    v = flow.predict_velocity(schedule(k), y_t, y0_hat, t)
    assert float(v) == pytest.approx((y0 - y) / (1 - (1 - t / 1000) ** k), rel=1e-9, abs=1e-9)
    torch.testing.assert_close(flow.predict_y0(schedule(k), y_t, v, t), y0_hat, rtol=0, atol=1e-9)


def test_the_estimates_of_a_point_on_the_path_are_its_ends() -> None:
    y0, g = torch.tensor([1.0, -1.0]), generator(4)
    for k, t in itertools.product(POWERS, (1, 400, 1000)):
        y_t, eps = flow.q_sample(schedule(k), y0, t, g)
        v = flow.velocity(y0, eps)
        torch.testing.assert_close(flow.predict_y0(schedule(k), y_t, v, t), y0, rtol=0, atol=1e-5)


# --- Euler's rule ----------------------------------------------------------------------------------------------------


def test_with_the_exact_velocity_one_step_reaches_the_mask_and_any_steps_stay_on_the_line() -> None:
    y0 = torch.where(torch.rand(1, 2, 3, 6, 6, generator=generator()) > 0.5, 1.0, -1.0)
    mask = (y0 > 0).float()
    for prediction, k, steps in itertools.product(("velocity", "mask"), POWERS, (1, 3, (900, 40, 1), 100)):
        kernel, seen = Flow(schedule(k), prediction), []
        y_T = kernel.prior(y0.shape, generator(1), y0)

        def exact(y_t, t, prediction=prediction, y_T=y_T):
            return y0 - y_T if prediction == "velocity" else y0 * 100  # the logits of a mask that is known

        end = sample(kernel, Sampler(steps=steps, sigma=0.0), exact, y_T, generator(), seen.append)
        assert torch.equal(end, mask)
        # with its own steps, the first t is where y_T is taken to lie
        first = (1 - time_grid(1000, steps)[0] / 1000) ** k
        for step in seen:
            a = (1 - step.s / 1000) ** k
            if first == 0:
                torch.testing.assert_close(step.y_s, a * y0 + (1 - a) * y_T, rtol=0, atol=1e-4)
                torch.testing.assert_close(step.y0_hat, y0, rtol=0, atol=1e-4)


def test_eulers_rule_is_ddim_without_noise() -> None:
    g = generator(2)
    y_t, y0_hat = torch.randn(50, generator=g), torch.rand(50, generator=g) * 2 - 1
    for k, (t, s) in itertools.product(POWERS, ((1000, 900), (500, 1), (3, 0))):
        a_t, a_s = ((1 - step / 1000) ** k for step in (t, s))
        eps_hat = (y_t - a_t * y0_hat) / (1 - a_t)
        v = flow.predict_velocity(schedule(k), y_t, y0_hat, t)
        expected = a_s * y0_hat + (1 - a_s) * eps_hat
        torch.testing.assert_close(flow.euler(schedule(k), y_t, v, t, s), expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="expected 0 <= s < t <= T = 1000"):
        flow.euler(schedule(), y_t, y_t, 5, 5)


# --- two masks, of which one has probability w -----------------------------------------------------------------------


class TwoMasks:
    """Masks m and n that differ in D pixels: E[y0 | y_t] is a weighted mean of the two, with weights by Bayes' rule."""

    def __init__(self, D: int, w: float, k: float, prediction: str = "velocity") -> None:
        self.w, self.kernel = w, Flow(schedule(k), prediction)
        self.m = torch.ones(D, dtype=torch.float64)
        self.m[::3] = -1
        self.n = -self.m

    def output(self, y_t: torch.Tensor, t: int) -> torch.Tensor:
        a = float(self.kernel.schedule.alpha_bar[t])

        def log_density(mask: torch.Tensor) -> torch.Tensor:
            return -((y_t - a * mask).square().sum(-1, keepdim=True)) / (2 * (1 - a) ** 2)

        odds = log_density(self.m) - log_density(self.n) + math.log(self.w / (1 - self.w))
        if self.kernel.prediction == "mask":
            return odds * self.m  # the logit of a pixel is that of the mask in which it is set
        mean = torch.tanh(odds / 2) * self.m
        return (mean - y_t) / (1 - a)

    def share(self, steps: int, count: int) -> int:
        """How many of so many samples are m; each one is m or n to the last pixel."""
        y_T = self.kernel.prior((1, count, len(self.m)), generator(steps), self.m)
        masks = sample(self.kernel, Sampler(steps=steps, sigma=0.0), self.output, y_T, generator())
        is_m, is_n = ((masks == (mask > 0)).all(-1) for mask in (self.m, self.n))
        assert bool((is_m | is_n).all())
        return int(is_m.sum())


def euler_share(D: int, w: float, k: float, steps: int) -> float:
    """P(m) after so many steps of Euler's rule, exactly: only x = <y, m> / sqrt(D) moves, from x_T ~ N(0, 1), and the
    end rises with the start. So the start that ends at 0 is found by halving."""
    root, prior = math.sqrt(D), math.log(w / (1 - w)) / 2
    grid = [(1 - t / 1000) ** k for t in time_grid(1000, steps)]

    def end(x: float) -> float:
        for a_t, a_s in itertools.pairwise(grid):
            mean = root * math.tanh(root * a_t * x / (1 - a_t) ** 2 + prior)
            x += (a_s - a_t) / (1 - a_t) * (mean - x)
        return x

    low, high = -9.0, 9.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if end(middle) > 0 else (middle, high)
    return float(stats.norm.sf(low))


@pytest.mark.parametrize("prediction", ["velocity", "mask"])
def test_both_masks_are_drawn_as_often_as_they_should(prediction: str) -> None:
    """In 200 steps within .01 of the truth, and in any number exactly as often as Euler's rule implies."""
    n = 2000
    for (D, w, k), steps in itertools.product(((3, 0.5, 1.0), (12, 0.8, 1.0), (30, 0.3, 2.5)), (3, 20, 200)):
        ones = TwoMasks(D, w, k, prediction).share(steps, n)
        assert_proportion(ones, n, euler_share(D, w, k, steps))
        if steps == 200:
            assert ones / n == pytest.approx(w, abs=0.01 + 4.3 * math.sqrt(w * (1 - w) / n))


def test_the_error_of_a_step_falls_with_their_number() -> None:
    for D, w, k in itertools.product((1, 20, 200), (0.6, 0.8, 0.95), (1.0, 2.5)):
        errors = [euler_share(D, w, k, steps) - w for steps in (20, 40, 80, 160)]
        assert all(error > 0 for error in errors), "the likelier mask is drawn too often, not too seldom"
        assert all(later < 0.7 * earlier for earlier, later in itertools.pairwise(errors)), "first order: about half"


def test_masks_that_differ_in_many_pixels_need_a_noisier_pace() -> None:
    """What docs/methods/flow.md says: 200 pixels, ten steps; of the rarer mask, due 20 %, there are 9 or 17 %."""
    even, noisy = (TwoMasks(200, 0.8, k).share(10, 4000) / 4000 for k in (1.0, 2.5))
    assert even == pytest.approx(0.907, abs=0.02)
    assert noisy == pytest.approx(0.829, abs=0.025)


# --- the kernel ------------------------------------------------------------------------------------------------------


def test_the_loss_written_out() -> None:
    g = generator(3)
    y0 = (torch.rand(2, 3, 2, 4, 4, generator=g) > 0.5).float()
    output = torch.randn(y0.shape, generator=g)
    t, weight = torch.randint(1, 1001, (2, 3), generator=g), torch.rand(2, 3, generator=g)
    kernel = Flow(schedule())
    y_t, eps = kernel.q_sample(y0, t, g)
    errors = {
        "velocity": ("mse", (output - (2 * y0 - 1 - eps)) ** 2),
        "mask": ("bce", -(y0 * torch.sigmoid(output).log() + (1 - y0) * torch.sigmoid(-output).log())),
    }
    for prediction, (name, error) in errors.items():
        terms = Flow(schedule(), prediction).loss(output, y0, y_t, eps, t)
        assert terms.keys() == {"loss", name}
        torch.testing.assert_close(terms["loss"], error.mean())
        by_mask = sum(weight[b, i] * error[b, i].mean() for b in range(2) for i in range(3))
        torch.testing.assert_close(Flow(schedule(), prediction).loss(output, y0, y_t, eps, t, weight)["loss"], by_mask)


def test_tiles_are_averaged_as_estimated_masks() -> None:
    """The estimate of the mean output is the mean of the estimates, for either prediction."""
    g = generator(5)
    y_t, outputs = torch.randn(40, generator=g), torch.randn(2, 40, generator=g)
    for prediction in ("velocity", "mask"):
        kernel = Flow(schedule(2.5), prediction)
        joined = kernel.from_mean((kernel.to_mean(outputs[0]) + kernel.to_mean(outputs[1])) / 2)
        estimates = [kernel.step(EULER, output, y_t, 400, 300, g)[1] for output in (*outputs, joined)]
        torch.testing.assert_close(estimates[2], (estimates[0] + estimates[1]) / 2, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(kernel.from_mean(kernel.to_mean(outputs)), outputs, rtol=1e-4, atol=1e-5)
        assert bool(kernel.from_mean(kernel.to_mean(torch.tensor([-1e4, 1e4])) * 1.0000001).diff() > 30)
