"""Representatives and measurements against the most obvious loops."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berdiff.inference import summary
from berdiff.inference.summary import iou_distance, longest_diameter, measure, representatives

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
    for i in range(n):
        for j in range(n):
            for k in range(targets):
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


def test_equal_samples_have_one_representative_with_all_of_the_frequency():
    samples = np.zeros((16, 1, 8, 8), np.uint8)
    assert [(r.frequency, r.index) for r in representatives(samples, 3)] == [(1.0, 0)]


def test_two_groups_and_an_outlier_are_found():
    samples = np.zeros((10, 1, 8, 8), np.uint8)
    samples[0:6, 0, :4] = 1
    samples[6:9, 0, 4:] = 1
    assert [(r.frequency, r.index) for r in representatives(samples, 3)] == [(0.6, 0), (0.3, 6), (0.1, 9)]


def test_the_search_for_many_samples_is_as_good_as_all_choices(monkeypatch):
    for seed in range(10):
        samples = blobs(24, seed)
        exact = representatives(samples, 3)
        monkeypatch.setattr(summary, "_MOST_SUBSETS", 0)
        searched = representatives(samples, 3)
        monkeypatch.undo()
        distance = iou_distance(samples)
        costs = [distance[:, [r.index for r in found]].min(1).sum() for found in (exact, searched)]
        assert costs[1] <= costs[0] * 1.05 + 1e-9  # a local optimum: no swap is better
        assert costs[1] >= costs[0] - 1e-9


def test_no_representatives_is_refused():
    with pytest.raises(ValueError, match="k: expected at least 1"):
        representatives(np.zeros((2, 1, 4, 4), np.uint8), 0)


# --- millimetres -----------------------------------------------------------------------------------------------------


def diameter_by_loops(mask: np.ndarray, spacing: tuple[float, float]) -> float:
    """Flood fill over 8 neighbours, then the corners of every pixel of a piece against each other."""
    left = {(int(y), int(x)) for y, x in np.argwhere(mask)}
    longest = 0.0
    while left:
        piece, front = set(), [left.pop()]
        while front:
            y, x = front.pop()
            piece.add((y, x))
            around = {(y + i, x + j) for i in (-1, 0, 1) for j in (-1, 0, 1)} & left
            left -= around
            front += around
        corners = {(y + i, x + j) for y, x in piece for i in (0, 1) for j in (0, 1)}
        for a in corners:
            for b in corners:
                longest = max(longest, np.hypot((a[0] - b[0]) * spacing[0], (a[1] - b[1]) * spacing[1]))
    return float(longest)


@given(st.integers(0, 10**6), st.floats(0.05, 0.7), st.tuples(st.floats(0.3, 3), st.floats(0.3, 3)))
@settings(max_examples=40, deadline=None)
def test_longest_diameter_is_that_of_all_pairs_of_corners(seed, density, spacing):
    mask = (np.random.default_rng(seed).random((7, 9)) < density).astype(np.uint8)
    assert longest_diameter(mask, spacing) == pytest.approx(diameter_by_loops(mask, spacing))


def test_longest_diameter_by_hand():
    mask = np.zeros((10, 10), np.uint8)
    assert longest_diameter(mask, (1, 1)) == 0
    mask[2, 3] = 1
    assert longest_diameter(mask, (3.0, 4.0)) == pytest.approx(5)  # one pixel: its diagonal
    mask[9, 9] = 1  # another finding far away does not make the first one longer
    assert longest_diameter(mask, (3.0, 4.0)) == pytest.approx(5)
    mask[3, 4] = 1  # joined by a corner
    assert longest_diameter(mask, (3.0, 4.0)) == pytest.approx(10)


def test_of_a_volume_the_longest_diameter_of_any_slice():
    volume = np.zeros((3, 8, 8), np.uint8)
    volume[0, 0, 0:4] = 1
    volume[2, 1:3, 0:6] = 1
    assert longest_diameter(volume, (0.5, 2.0)) == pytest.approx(np.hypot(1, 12))


def test_measures_in_millimetres_with_quantiles_over_samples():
    masks = np.zeros((4, 10, 10), np.uint8)
    for i in range(4):
        masks[i, : 2 * i, :3] = 1  # 0, 6, 12, 18 pixels
    found = measure(masks, (0.5, 2.0))
    assert found["finding_probability"] == 0.75
    assert found["area"]["unit"] == "mm^2"
    for name, q in (("q05", 5), ("q50", 50), ("q95", 95)):
        assert found["area"][name] == pytest.approx(np.percentile([0, 6, 12, 18], q))
        lengths = [0, *(np.hypot(2 * i * 0.5, 6) for i in (1, 2, 3))]
        assert found["longest_diameter"][name] == pytest.approx(np.percentile(lengths, q))
    assert found["longest_diameter"]["unit"] == "mm"


def test_measures_of_a_volume_and_of_unknown_spacing():
    masks = np.ones((2, 3, 4, 5), np.uint8)
    found = measure(masks, (2.5, 0.5, 2.0))
    assert found["volume"] == {"unit": "mm^3", **dict.fromkeys(("q05", "q50", "q95"), pytest.approx(60 * 2.5))}
    assert found["longest_diameter"]["q50"] == pytest.approx(np.hypot(2, 10))
    nan = float("nan")
    found = measure(masks, (nan, 0.5, 2.0))  # slices at unknown distances: no volume in mm, but diameters
    assert found["volume"]["unit"] == "voxel"
    assert found["volume"]["q50"] == 60
    assert found["longest_diameter"]["unit"] == "mm"
    found = measure(masks[:, 0], (nan, nan))
    assert (found["area"]["unit"], found["area"]["q50"]) == ("px^2", 20)
    assert found["longest_diameter"] == {"unit": "px", **dict.fromkeys(("q05", "q50", "q95"), pytest.approx(41**0.5))}
