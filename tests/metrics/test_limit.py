"""The limit of GED, by simulation on a distribution whose masks can be counted, and as a bound."""

import numpy as np
import pytest
import torch

from berdiff import metrics

from .test_properties import within

WEIGHT = np.array([0.35, 0.25, 0.2, 0.15, 0.05])


def modes() -> np.ndarray:
    """Five masks (5, 1, 6, 6), the first empty: p(y|x) draws them by `WEIGHT`."""
    rng = np.random.default_rng(0)
    masks = (rng.random((5, 1, 6, 6)) < 0.5).astype(np.uint8)
    masks[0] = 0
    return masks


def true_distance() -> np.ndarray:
    """(5, 5): 1 - IoU of each two modes, one by one."""
    flat = modes().reshape(5, -1).astype(bool)
    union = (flat[:, None] | flat).sum(-1)
    return 1 - np.where(union > 0, (flat[:, None] & flat).sum(-1) / np.maximum(union, 1), 1)


def drawn(cases: int, count: int, rng: np.random.Generator) -> torch.Tensor:
    return torch.from_numpy(modes()[rng.choice(5, size=(cases, count), p=WEIGHT)])


@pytest.mark.parametrize(("R", "n"), [(4, 16), (4, 1), (2, 3), (1, 4)])
def test_samples_and_raters_of_one_distribution_score_the_limit(R, n):
    """Mean GED of 6,000 cases, within 4.3 standard errors, against D of the distribution itself."""
    rng = np.random.default_rng(10 * R + n)
    D = WEIGHT @ true_distance() @ WEIGHT
    pairs = metrics.Pairs.of(drawn(6000, n, rng), drawn(6000, R, rng))
    expected = float(metrics.ged_limit(np.array(D), np.array(R), n))
    within(torch.from_numpy(pairs.ged()), expected)
    assert expected == pytest.approx(D / R + D / n)
    if n > 1:
        within(torch.from_numpy(pairs.ged_unbiased()), float(metrics.ged_limit(np.array(D), np.array(R))))
    if R > 1:  # each case estimates D from its own raters, without bias
        within(torch.from_numpy(pairs.d_raters), D)
        within(torch.from_numpy(metrics.ged_limit(pairs.d_raters, pairs.raters[:, None], n)), expected)


def test_no_set_that_has_not_seen_the_raters_is_below_d_over_r():
    """Any weights Q of the modes: E GED = 2 d_QP - d_QQ - D (1 - 1/R), computed exactly; p(y|x) itself has D / R."""
    d, R = true_distance(), 4
    D = WEIGHT @ d @ WEIGHT
    rng = np.random.default_rng(0)
    expected = [
        2 * Q @ d @ WEIGHT - Q @ d @ Q - D * (1 - 1 / R) for Q in (WEIGHT, *rng.dirichlet(np.full(5, 0.5), 2000))
    ]
    assert expected[0] == pytest.approx(D / R)
    assert min(expected) >= D / R - 1e-12


def test_cases_of_one_rater_have_no_limit():
    masks = drawn(3, 4, np.random.default_rng(0))
    pairs = metrics.Pairs.of(masks, masks, torch.tensor([1, 2, 4]))
    limit = metrics.ged_limit(pairs.d_raters, pairs.raters[:, None], 16)
    assert np.isnan(limit[:, 0]).tolist() == [True, False, False]
