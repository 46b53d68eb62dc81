"""P(finding): mask by mask, against the definitions, and what perfect calibration gives."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from berdiff.metrics import Pairs
from berdiff.metrics.finding import (
    finding_distance,
    finding_ece,
    finding_ged,
    finding_r2,
    finding_shares,
    finding_sums,
    reliability,
)

SHARES = st.lists(st.tuples(st.integers(0, 16), st.integers(0, 4)), min_size=2, max_size=40)


def of(p, q):
    return finding_sums(np.array(p, float), np.array(q, float)).sum(0)


def test_shares_are_those_of_masks_that_mark_anything_and_padding_is_no_rater():
    rng = np.random.default_rng(0)
    samples, masks = ((rng.random((5, m, 2, 6, 6)) < 0.02).astype(np.uint8) for m in (7, 4))
    raters = [1, 2, 3, 4, 2]
    p, q = finding_shares(Pairs.of(*map(torch.from_numpy, (samples, masks)), torch.tensor(raters)))
    for i, k in itertools.product(range(5), range(2)):
        assert p[i, k] == pytest.approx(np.mean([mask.any() for mask in samples[i, :, k]]))
        assert q[i, k] == pytest.approx(np.mean([mask.any() for mask in masks[i, : raters[i], k]]))
    assert 0 < p.mean() < 1


@given(n=st.integers(1, 9), r=st.integers(1, 5), data=st.data())
@settings(max_examples=40, deadline=None)
def test_its_ged_is_that_of_masks_that_are_empty_or_alike(n, r, data):
    marked = data.draw(st.lists(st.booleans(), min_size=n + r, max_size=n + r))
    both = torch.tensor(marked, dtype=torch.uint8).reshape(1, n + r, 1, 1, 1).expand(-1, -1, -1, 4, 4)
    pairs = Pairs.of(both[:, :n], both[:, n:])
    p, q = finding_shares(pairs)
    assert finding_ged(p, q)[0, 0] == pytest.approx(pairs.ged()[0, 0], abs=1e-12)
    D = finding_distance(q, np.array([[r]]))
    np.testing.assert_allclose(D, pairs.d_raters, atol=1e-12)
    assert np.isnan(D).all() == (r == 1)


@given(cases=SHARES)
@settings(max_examples=60, deadline=None)
def test_ece_and_r2_equal_their_definitions(cases):
    p, q = np.array(cases).T / np.array([[16], [4]])
    found = of(p, q)
    rows = reliability(p, q)
    gap = sum(row["cases"] * abs(row["p"] - row["q"]) for row in rows if row["p"] is not None and row["q"] is not None)
    assert finding_ece(found) == pytest.approx(gap / len(p), abs=1e-12)
    if np.var(q) > 0:
        assert finding_r2(found) == pytest.approx(1 - np.mean((p - q) ** 2) / np.var(q))
    else:
        assert np.isnan(finding_r2(found))
    assert sum(row["cases"] for row in rows) == len(p)
    for row in rows:
        inside = (row["low"] <= p) & (p < row["high"]) | ((row["high"] == 1) & (p == 1))
        assert row["cases"] == inside.sum()
        if row["cases"]:
            assert (row["p"], row["q"]) == pytest.approx((p[inside].mean(), q[inside].mean()))


def test_perfect_calibration_has_no_error_and_a_share_is_in_its_own_bin():
    p = np.repeat(np.arange(17) / 16, 16)
    q = np.concatenate([np.arange(16) < k for k in range(17)]).astype(float)  # one rater each, of which a share p marks
    assert finding_ece(of(p, q)) == pytest.approx(0, abs=1e-12)
    assert finding_ece(of(q, q)) == 0
    assert finding_r2(of(q, q)) == 1
    constant = np.full_like(q, q.mean())
    assert finding_r2(of(constant, q)) == pytest.approx(0, abs=1e-12)
    assert finding_ece(of(constant, q)) == pytest.approx(0, abs=1e-12)
    assert finding_ece(of(1 - q, q)) == 1
    for pool in range(1, 101):  # k / pool is rounded, and never into a neighbour's bin
        k = np.arange(pool + 1)
        placed = finding_sums(k / pool, np.full(pool + 1, -1.0))[:, 4:].argmax(1)
        assert placed.tolist() == np.minimum(k * 10 // pool, 9).tolist()


def test_many_resamples_at_once_are_each_by_itself():
    rng = np.random.default_rng(0)
    sums = finding_sums(rng.random(20), rng.random(20))
    weight = rng.integers(0, 3, (5, 20))
    for total, ece, r2 in zip(weight @ sums, finding_ece(weight @ sums), finding_r2(weight @ sums), strict=True):
        assert (finding_ece(total), finding_r2(total)) == (ece, r2)
