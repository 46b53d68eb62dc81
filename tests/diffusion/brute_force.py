"""What the closed forms are compared with: slow, obvious references, and statistical tests with few false alarms.

Nothing here calls berdiff except to build a schedule: each reference starts from the one-step betas or the list of
states.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from scipy import stats

from berdiff.diffusion.schedule import SCHEDULES, NoiseSchedule, make_schedule

# The chance that one statistical check fails although the code is right. Seeds are fixed, so a check that passes once
# passes always; the budget says how surprised to be when a change of the seed or of torch turns one red.
TEST_FAILURE_RATE = 2e-5

# Reproducible and without a deadline: the machine that runs the tests may be busy.
maths = settings(max_examples=60, deadline=None, derandomize=True)

LENGTHS = (10, 100, 1000)
# What rounding may cost a formula of a dozen operations on numbers of size one.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-6}

get_schedule = cache(make_schedule)


class Case(NamedTuple):
    """A schedule, a pair s < t and a precision: what every closed form is tried on."""

    schedule: NoiseSchedule
    t: int
    s: int
    dtype: torch.dtype

    @property
    def tolerance(self) -> float:
        return TOLERANCE[self.dtype]

    def tensor(self, values: object) -> torch.Tensor:
        return torch.as_tensor(values, dtype=self.dtype)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    T = draw(st.sampled_from(LENGTHS))
    t = draw(
        st.one_of(st.integers(1, T), st.integers(1, 8), st.just(T))
    )  # digits are lost near 0; alpha_bar_T may be 0
    s = draw(st.one_of(st.integers(0, t - 1), st.just(t - 1), st.just(0)))
    name = draw(st.sampled_from(sorted(SCHEDULES)))
    return Case(get_schedule(name, T), t, s, draw(st.sampled_from([torch.float32, torch.float64])))


def early(t: int, s: int, dtype: torch.dtype = torch.float32) -> Case:
    """A step where a and b are almost 1: there float32 has lost the digits of 1 - a, if it ever subtracts."""
    return Case(get_schedule("cosine", 1000), t, s, dtype)


def forgotten(s: int, name: str = "power2.5", dtype: torch.dtype = torch.float32) -> Case:
    """A step from T where alpha_bar_T is exactly 0, so that a is 0 too: nothing may divide by it or take its log."""
    return Case(get_schedule(name, 1000), 1000, s, dtype)


probabilities = st.floats(0, 1)
bits = st.sampled_from([0.0, 1.0])


def step_matrix(beta: float) -> np.ndarray:
    """Eq. 2 as a 2x2 matrix, [from, to]."""
    return np.array([[1 - beta / 2, beta / 2], [beta / 2, 1 - beta / 2]])


@cache
def chain(schedule: NoiseSchedule, s: int, t: int) -> np.ndarray:
    """q(y_t | y_s) as the product of the one-step matrices s+1..t, [y_s, y_t]."""
    product = np.eye(2)
    for beta in schedule.beta[s + 1 : t + 1].tolist():
        product = product @ step_matrix(beta)
    return product


def bayes(schedule: NoiseSchedule, y_t: int, y0: int, t: int, s: int) -> float:
    """q(y_s = 1 | y_t, y0) by Bayes' rule over the two states of y_s."""
    joint = [chain(schedule, 0, s)[y0, y_s] * chain(schedule, s, t)[y_s, y_t] for y_s in (0, 1)]
    return joint[1] / sum(joint)


def reverse_step(case: Case, y_t: float, p: float, posterior: str) -> tuple[float, float]:
    """(mu_hat, 1 - mu_hat), eq. 6 by sums over the states; no subtraction, so small values keep their digits."""
    if posterior == "marginal":
        ones = [bayes(case.schedule, int(y_t), y0, case.t, case.s) for y0 in (0, 1)]
        zeros = [bayes(case.schedule, 1 - int(y_t), 1 - y0, case.t, case.s) for y0 in (0, 1)]  # both states renamed
        return (1 - p) * ones[0] + p * ones[1], (1 - p) * zeros[0] + p * zeros[1]
    from_t, from_0 = chain(case.schedule, case.s, case.t)[:, int(y_t)], chain(case.schedule, 0, case.s)
    joint = from_t * ((1 - p) * from_0[0] + p * from_0[1])
    return joint[1] / joint.sum(), joint[0] / joint.sum()


def kl(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """KL(B(p) || B(q)), elementwise, in nats."""
    return torch.xlogy(p, p / q) + torch.xlogy(1 - p, (1 - p) / (1 - q))


def assert_proportion(ones: int, n: int, p: float) -> None:
    """`ones` of `n` draws fit probability p, by the exact binomial law."""
    low, high = stats.binom.ppf([TEST_FAILURE_RATE / 2, 1 - TEST_FAILURE_RATE / 2], n, p)
    assert low <= ones <= high, f"{ones} of {n} ones; expected {low:.0f}..{high:.0f} at p = {p}"


def assert_fits(counts: np.ndarray, p: np.ndarray) -> None:
    """Counts of states fit the law p by chi-square; states expected fewer than 10 times are counted as one."""
    n = counts.sum()
    assert not counts[p == 0].any(), "a state of probability 0 was drawn"
    rare = p * n < 10
    observed = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(p[~rare], p[rare].sum()) * n
    keep = expected > 0
    if keep[-1] and expected[-1] < 10:  # the rare states together are still rare: leave them to the largest bin
        largest = expected[:-1].argmax()
        observed[largest] += observed[-1]
        expected[largest] += expected[-1]
        keep[-1] = False
    observed, expected = observed[keep], expected[keep]
    statistic = ((observed - expected) ** 2 / expected).sum()
    surprise = stats.chi2.sf(statistic, len(observed) - 1)
    assert surprise > TEST_FAILURE_RATE, f"chi-square {statistic:.1f} on {len(observed)} bins, p-value {surprise:.1e}"
