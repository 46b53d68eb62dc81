"""Representative masks against the most obvious loops."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berdiff.inference import representatives as module
from berdiff.inference.representatives import iou_distance, representatives

RNG = np.random.default_rng(0)


def blobs(n: int, seed: int, kinds: int = 4) -> np.ndarray:
    """(n, 1, 8, 8): noisy copies of a few shapes, some of them equal, some empty."""
    rng = np.random.default_rng(seed)
    shapes = rng.random((kinds, 1, 8, 8)) < 0.4
    shapes[0] = False
    return (shapes[rng.integers(kinds, size=n)] ^ (rng.random((n, 1, 8, 8)) < 0.02)).astype(np.uint8)


def distance_by_loops(samples: np.ndarray) -> np.ndarray:
    n, targets = samples.shape[:2]
    out = np.zeros((n, n))
    for i, j, k in np.ndindex(n, n, targets):
        a, b = samples[i, k] > 0, samples[j, k] > 0
        union = (a | b).sum()
        out[i, j] += (1 - (a & b).sum() / union if union else 0) / targets
    return out


@pytest.mark.parametrize("shape", [(6, 1, 9, 7), (5, 2, 3, 8, 8)])
def test_distance_is_one_minus_iou_of_each_pair(shape):
    samples = (RNG.random(shape) < 0.3).astype(np.uint8)
    samples[1] = 0
    samples[2, 0] = 0
    np.testing.assert_allclose(iou_distance(samples), distance_by_loops(samples), atol=1e-12)


@given(st.integers(1, 9), st.integers(1, 4), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_representatives_are_the_best_of_all_choices(n, k, seed):
    samples = blobs(n, seed)
    distance = distance_by_loops(samples)
    distinct = len(np.unique(samples.reshape(n, -1), axis=0))
    best = min(
        sum(min(distance[i, j] for j in chosen) for i in range(n))
        for chosen in combinations(range(n), min(k, distinct))
    )
    found = representatives(samples, k)
    chosen = [r.index for r in found]
    assert len(found) == min(k, distinct)
    assert sum(min(distance[i, j] for j in chosen) for i in range(n)) == pytest.approx(best)
    # frequencies: an exact count of who is nearest
    assert sum(r.frequency for r in found) == pytest.approx(1)
    nearest = [min(sorted(chosen), key=lambda j: distance[i, j]) for i in range(n)]
    assert [r.frequency for r in found] == [nearest.count(j) / n for j in chosen]
    assert [r.frequency for r in found] == sorted((r.frequency for r in found), reverse=True)
    for r in found:
        np.testing.assert_array_equal(r.mask, samples[r.index])


def test_representatives_by_hand():
    samples = np.zeros((10, 1, 8, 8), np.uint8)
    assert [(r.frequency, r.index) for r in representatives(samples, 3)] == [(1.0, 0)]  # all are equal
    samples[0:6, 0, :4] = 1
    samples[6:9, 0, 4:] = 1
    assert [(r.frequency, r.index) for r in representatives(samples, 3)] == [(0.6, 0), (0.3, 6), (0.1, 9)]
    with pytest.raises(ValueError, match="k: expected at least 1"):
        representatives(samples, 0)


def test_the_search_for_many_samples_is_as_good_as_all_choices(monkeypatch):
    for seed in range(10):
        samples = blobs(24, seed)
        exact = representatives(samples, 3)
        monkeypatch.setattr(module, "MAX_SUBSETS", 0)
        searched = representatives(samples, 3)
        monkeypatch.undo()
        distance = iou_distance(samples)
        costs = [distance[:, [r.index for r in found]].min(1).sum() for found in (exact, searched)]
        assert costs[0] - 1e-9 <= costs[1] <= costs[0] * 1.05 + 1e-9  # a local optimum: no swap is better
