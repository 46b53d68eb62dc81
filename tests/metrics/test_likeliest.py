"""Dice of the likeliest class of exclusive targets, against counting pixel by pixel."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from berdiff import metrics
from refusals import refused


def one_hot(classes: torch.Tensor, targets: int) -> torch.Tensor:
    """Classes (B, m, H, W) of 0 to K -> masks (B, m, K, H, W)."""
    return (classes[:, :, None] == torch.arange(1, targets + 1).reshape(1, 1, -1, 1, 1)).to(torch.uint8)


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_counts_are_those_of_every_pixel(seed, n, R, K):
    rng = torch.Generator().manual_seed(seed)
    samples, masks = (torch.randint(K + 1, (2, m, 4, 5), generator=rng) for m in (n, R))
    raters = torch.randint(1, R + 1, (2,), generator=rng)
    padded = masks.clone()
    for case, own in enumerate(raters):
        padded[case, own:] = 0
    found = metrics.likeliest_counts(one_hot(samples, K), one_hot(padded, K), raters)
    expected = np.zeros((2, K, 3), int)
    for case, y, x in np.ndindex(2, 4, 5):
        votes = [int((samples[case, :, y, x] == c).sum()) for c in range(K + 1)]
        best = votes.index(max(votes))  # of equally many the background, then the first target
        rated = [int((masks[case, : raters[case], y, x] == c).sum()) for c in range(K + 1)]
        for k in range(K):
            predicted, truth = best == k + 1, 2 * rated[k + 1] > raters[case]
            expected[case, k] += [predicted and truth, predicted, truth]
    np.testing.assert_array_equal(found.numpy(), expected)
    # the same truth as `dice_counts`, and all that it finds: a majority is the likeliest class
    usual = metrics.dice_counts(one_hot(samples, K), one_hot(padded, K), raters)
    assert torch.equal(found[..., 2], usual[..., 2])
    assert (found >= usual).all()
    if K == 1:
        assert torch.equal(found, usual)


def test_samples_that_overlap_are_refused():
    samples = torch.ones(1, 3, 2, 4, 4, dtype=torch.uint8)
    with refused("samples:"):
        metrics.likeliest_counts(samples, samples)
