"""What must hold for all masks (hypothesis), and what must hold on average (simulation with a fixed seed)."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from berdiff import metrics
from berdiff.testing import strategies

QUICK = settings(max_examples=60, deadline=None)


def masks_of(most: int):
    """(1, m, 1, 4, 6) masks of 0 and 1, m up to `most`."""
    return strategies.masks((1, most), 1, (4, 6)).map(lambda masks: torch.from_numpy(masks[None]))


@QUICK
@given(samples=masks_of(9), masks=masks_of(7))
def test_ged_is_never_negative(samples, masks):
    assert metrics.ged(samples, masks).item() >= -1e-12


@QUICK
@given(masks=masks_of(7), repeats=st.integers(1, 3), seed=st.integers(0, 99))
def test_identical_multisets_are_at_distance_0_and_match_wholly(masks, repeats, seed):
    order = torch.randperm(repeats * masks.shape[1], generator=torch.Generator().manual_seed(seed))
    samples = masks.repeat(1, repeats, 1, 1, 1)[:, order]
    assert abs(metrics.ged(samples, masks).item()) < 1e-12
    for metric in (metrics.hm_iou, metrics.d_max, metrics.dice, metrics.soft_dice):
        assert abs(metric(samples, masks).item() - 1) < 1e-12
    assert abs(metrics.ece(samples, masks).item()) + metrics.brier(samples, masks).item() < 1e-12


@QUICK
@given(samples=masks_of(6), masks=masks_of(5), seed=st.integers(0, 99))
def test_order_does_not_matter(samples, masks, seed):
    generator = torch.Generator().manual_seed(seed)
    s = samples[:, torch.randperm(samples.shape[1], generator=generator)]
    y = masks[:, torch.randperm(masks.shape[1], generator=generator)]
    for metric in (metrics.ged, metrics.hm_iou, metrics.d_max, metrics.dice, metrics.soft_dice, metrics.ece):
        assert abs(metric(s, y).item() - metric(samples, masks).item()) < 1e-12


@QUICK
@given(samples=masks_of(6), masks=masks_of(5))
def test_values_stay_in_their_ranges(samples, masks):
    for metric in (metrics.hm_iou, metrics.d_max, metrics.dice, metrics.soft_dice, metrics.ece, metrics.brier):
        assert 0 <= metric(samples, masks).item() <= 1 + 1e-12
    assert metrics.ged(samples, masks).item() <= 2 + 1e-12
    # a matching cannot beat each rater's own best
    assert metrics.hm_iou(samples, masks).item() <= metrics.d_max(samples, masks).item() + 1e-12


def simulated_model(n, cases, seed):
    """One case's raters, and a model that draws iid from other masks: `cases` draws of n samples each."""
    rng = np.random.default_rng(seed)
    raters = (rng.random((1, 4, 1, 6, 6)) < 0.5).astype(np.uint8)
    raters[:, 0] = 0
    modes = (rng.random((5, 1, 6, 6)) < 0.4).astype(np.uint8)
    modes[0] = 0
    modes[1] = raters[0, 1]
    weight = np.array([0.3, 0.3, 0.2, 0.1, 0.1])
    samples = modes[rng.choice(5, size=(cases, n), p=weight)]
    masks = np.repeat(raters, cases, 0)
    # the distance of the distributions themselves: every mode once, weighted
    pairs = metrics.Pairs.of(torch.from_numpy(modes)[None], torch.from_numpy(raters))
    d = 1 - pairs.iou[0, 0]
    d_sy, d_ss, d_yy = weight @ d[:5, 5:].mean(1), weight @ d[:5, :5] @ weight, d[5:, 5:].mean()
    return torch.from_numpy(samples), torch.from_numpy(masks), 2 * d_sy - d_ss - d_yy, d_ss


def within(values, expected):
    """Within 4.3 standard errors: false alarms about 2e-5 each."""
    spread = values.std().item() / len(values) ** 0.5
    assert spread < 0.01
    assert abs(values.mean().item() - expected) < 4.3 * spread


def test_ged_unbiased_has_the_right_mean_at_every_n():
    for n in (2, 3, 8, 16):
        samples, masks, truth, _ = simulated_model(n, 4000, seed=n)
        within(metrics.ged_unbiased(samples, masks), truth)


def test_bias_law_of_ged():
    """GED_n = GED_inf + d_SS / n for iid samples; and the two estimates differ, so the test can tell them apart."""
    for n in (1, 4, 16):
        samples, masks, truth, d_ss = simulated_model(n, 4000, seed=10 + n)
        values = metrics.ged(samples, masks)
        within(values, truth + d_ss / n)
        assert abs(values.mean().item() - truth) > 10 * values.std().item() / len(values) ** 0.5


def test_a_perfect_sampler_scores_d_yy_over_n():
    """The floor: samples drawn from the raters themselves."""
    rng = np.random.default_rng(0)
    raters = torch.from_numpy((rng.random((1, 4, 1, 6, 6)) < 0.5).astype(np.uint8))
    for n in (1, 4, 16):
        samples = raters[0][rng.integers(4, size=(4000, n))]
        values = metrics.Pairs.of(samples, raters.expand(4000, -1, -1, -1, -1))
        within(torch.from_numpy(values.ged()), values.d_yy[0, 0] / n)
