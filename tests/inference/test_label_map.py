"""Label maps: the masks come back from them, and the likeliest class is that of the most samples, pixel by pixel."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berdiff.targets.targets import Targets, label_map


def likeliest(pool: np.ndarray) -> np.ndarray:
    names = tuple(f"target {k}" for k in range(pool.shape[1]))
    return Targets(names, "exclusive").answer(pool)


def drawn(seed: int, kind: str, n: int, targets: int, shape: tuple[int, ...]) -> np.ndarray:
    """(n, K, ...) uint8 of a kind."""
    depth = np.random.default_rng(seed).integers(0, targets + 1, (n, 1, *shape))
    values = np.arange(1, targets + 1).reshape(1, targets, *[1] * len(shape))
    return ((depth >= values) if kind == "nested" else (depth == values)).astype(np.uint8)


@given(st.integers(0, 10**6), st.integers(1, 5), st.sampled_from([(4, 5), (2, 3, 4)]))
@settings(max_examples=30, deadline=None)
def test_masks_come_back_from_their_label_map(seed, targets, shape):
    for kind in ("nested", "exclusive"):
        masks = drawn(seed, kind, 1, targets, shape)[0]
        labels = label_map(masks)
        assert labels.dtype == np.uint8
        for k in range(targets):
            np.testing.assert_array_equal(labels > k if kind == "nested" else labels == k + 1, masks[k])


@given(st.integers(0, 10**6), st.integers(1, 7), st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_the_likeliest_class_is_that_of_the_most_samples(seed, n, targets):
    pool = drawn(seed, "exclusive", n, targets, (3, 4))
    found = label_map(likeliest(pool))
    for y, x in np.ndindex(3, 4):
        votes = Counter(int(label_map(sample)[y, x]) for sample in pool)
        best = max(range(targets + 1), key=lambda c: (votes[c], -c))  # of equally many the background, the first target
        assert found[y, x] == best
    if targets == 1:
        np.testing.assert_array_equal(likeliest(pool)[0], 2 * pool[:, 0].sum(0) > n)


def test_a_majority_is_never_left_out_and_a_plurality_is_enough():
    pool = np.zeros((10, 2, 1, 3), np.uint8)
    pool[:6, 0, 0, 0] = 1  # more than half: as `mask` has it
    pool[:4, 0, 0, 1] = pool[4:7, 1, 0, 1] = 1  # 4 and 3 against 3 of the background: none has half
    pool[:5, 0, 0, 2] = 1  # half is no majority
    assert label_map(likeliest(pool)).tolist() == [[1, 1, 0]]


@pytest.mark.parametrize("kind", ["nested", "exclusive"])
def test_representatives_of_several_targets_are_whole_samples(kind):
    """Two answers, 6 and 4 times: the representatives are these, and not a mixture of their targets."""
    from berdiff.inference.representatives import representatives

    two = drawn(0, kind, 2, 3, (6, 6))
    samples = two[[0, 1, 0, 1, 0, 0, 1, 0, 0, 1]]
    found = representatives(samples, 2)
    assert [(r.frequency, r.index) for r in found] == [(0.6, 0), (0.4, 1)]
    for r, expected in zip(found, two, strict=True):
        np.testing.assert_array_equal(r.mask, expected)
    # each target weighs the same, whatever its size: the medoid of three is the one nearest by mean IoU
    samples = np.zeros((3, 2, 8, 8), np.uint8)
    samples[:, 0, :7] = 1  # a large target, alike in all
    samples[0, 1, 0, 0:2] = samples[1, 1, 0, 0:3] = samples[2, 1, 0, 0:6] = 1
    (only,) = representatives(samples, 1)
    assert only.index == 1  # 2/3 and 3/6 to the others; 2/3 and 2/6; 3/6 and 2/6
