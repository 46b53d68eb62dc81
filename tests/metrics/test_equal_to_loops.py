"""Every metric against its slow, obvious loop, on random masks with empties, ragged raters and several targets."""

import itertools

import numpy as np
import torch

from berdiff import metrics

from . import loops

PAIRWISE = [
    (metrics.ged, loops.ged),
    (metrics.d_max, loops.d_max),
    (metrics.dice, loops.majority_dice),
    (metrics.soft_dice, loops.soft_dice),
    (metrics.ece, loops.ece),
    (metrics.brier, loops.brier),
    (metrics.nll, loops.nll),
]


def random_masks(rng, *shape, empty=0.3):
    """Masks of random density; some are wholly empty."""
    *leading, height, width = shape
    density = rng.random((*leading, 1, 1)) * (rng.random((*leading, 1, 1)) > empty)
    return torch.from_numpy((rng.random((*leading, height, width)) < density).astype(np.uint8))


def by_loop(function, samples, masks, raters):
    """Case by case and target by target."""
    b, _, k = samples.shape[:3]
    rows = [[function(list(samples[i, :, j]), list(masks[i, : raters[i], j])) for j in range(k)] for i in range(b)]
    return np.array(rows, dtype=float)


def agree(ours, theirs):
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=0, atol=1e-12)


def test_all_metrics_equal_their_loops():
    for n, r in itertools.product((1, 2, 3, 16, 32), (1, 2, 4, 7)):
        rng = np.random.default_rng(100 * n + r)
        samples, masks = random_masks(rng, 2, n, 1, 5, 7), random_masks(rng, 2, r, 1, 5, 7)
        raters = [r] * 2
        for ours, loop in PAIRWISE:
            agree(ours(samples, masks), by_loop(loop, samples.numpy(), masks.numpy(), raters))
        if n > 1:
            expected = by_loop(loops.ged_unbiased, samples.numpy(), masks.numpy(), raters)
            agree(metrics.ged_unbiased(samples, masks), expected)


def test_ragged_raters_and_several_targets():
    raters = [1, 2, 3, 4, 2, 1]
    all_metrics = [*PAIRWISE, (metrics.ged_unbiased, loops.ged_unbiased), (metrics.hm_iou, loops.hm_iou_by_flow)]
    for size in ((8, 8), (5, 7), (16, 3)):
        rng = np.random.default_rng(1)
        samples, masks = random_masks(rng, 6, 5, 3, *size), random_masks(rng, 6, 4, 3, *size)
        for i, r in enumerate(raters):
            masks[i, r:] = 0  # padding
        for ours, loop in all_metrics:
            values = ours(samples, masks, torch.tensor(raters))
            assert values.shape == (6, 3)
            agree(values, by_loop(loop, samples.numpy(), masks.numpy(), raters))


def test_hm_iou_is_the_best_transport_plan():
    """Repeating both sides to their lcm and matching is the transport problem of uniform masses, solved otherwise."""
    for n, r in itertools.product((2, 7, 16, 31), (1, 3, 4, 6, 7)):
        rng = np.random.default_rng(n + 100 * r)
        samples, masks = random_masks(rng, 2, n, 1, 6, 8), random_masks(rng, 2, r, 1, 6, 8)
        expected = by_loop(loops.hm_iou_by_flow, samples.numpy(), masks.numpy(), [r] * 2)
        agree(metrics.hm_iou(samples, masks), expected)


def test_empty_masks():
    """Two empty masks agree wholly, an empty and a non-empty one not at all."""
    empty, full = (torch.full((1, 4, 1, 8, 8), value, dtype=torch.uint8) for value in (0, 1))
    for samples, masks in ((empty, full), (full, empty), (empty, empty)):
        alike = float(samples is masks)
        assert metrics.ged(samples, masks).item() == 2 * (1 - alike)
        for metric in (metrics.hm_iou, metrics.dice, metrics.soft_dice, metrics.d_max):
            assert metric(samples, masks).item() == alike


def test_any_dtype_of_0_and_1():
    rng = np.random.default_rng(3)
    samples, masks = random_masks(rng, 2, 3, 1, 6, 6), random_masks(rng, 2, 4, 1, 6, 6)
    for metric in (metrics.ged, metrics.hm_iou, metrics.dice, metrics.nll):
        for dtype in (torch.bool, torch.float32, torch.int64):
            agree(metric(samples.to(dtype), masks.to(dtype)), metric(samples, masks).numpy())


def test_overlaps_are_exact_beyond_float32(monkeypatch):
    """Where a count could exceed what float32 holds, float64 is used: forced here by lowering the limit."""
    from berdiff.metrics import pairs

    rng = np.random.default_rng(4)
    samples, masks = random_masks(rng, 2, 3, 1, 16, 16), random_masks(rng, 2, 4, 1, 16, 16)
    usual = pairs.Pairs.of(samples, masks).intersections
    monkeypatch.setattr(pairs, "EXACT_IN_FLOAT32", 1)
    assert pairs._overlaps(samples[0, :, 0].flatten(1).numpy(), masks[0, :, 0].flatten(1).numpy()).dtype == np.float64
    np.testing.assert_array_equal(pairs.Pairs.of(samples, masks).intersections, usual)


def test_distances_of_different_masks():
    rng = np.random.default_rng(5)
    samples, masks = random_masks(rng, 4, 5, 2, 5, 7), random_masks(rng, 4, 4, 2, 5, 7)
    raters = [2, 3, 4, 2]
    pairs = metrics.Pairs.of(samples, masks, torch.tensor(raters))

    def loop(which):
        chosen = {"d_ss": lambda s, y: (s, s), "d_raters": lambda s, y: (y, y), "d_sy": lambda s, y: (s, y)}[which]
        distinct = which != "d_sy"
        return by_loop(
            lambda s, y: loops.mean_distance(*chosen(s, y), distinct), samples.numpy(), masks.numpy(), raters
        )

    np.testing.assert_allclose(pairs.d_ss_distinct(), loop("d_ss"), atol=1e-12)
    np.testing.assert_allclose(pairs.d_raters, loop("d_raters"), atol=1e-12)
    np.testing.assert_allclose(pairs.d_sy(), loop("d_sy"), atol=1e-12)
    assert np.isnan(metrics.Pairs.of(samples[:, :1], masks).d_ss_distinct()).all()


def test_a_subset_is_the_pairs_of_those_samples():
    rng = np.random.default_rng(6)
    samples, masks = random_masks(rng, 3, 9, 2, 6, 6), random_masks(rng, 3, 4, 2, 6, 6)
    raters = torch.tensor([1, 4, 2])
    pairs, places = metrics.Pairs.of(samples, masks, raters), rng.integers(9, size=(3, 5))  # some come twice
    chosen = torch.stack([own[place] for own, place in zip(samples, places, strict=True)])
    expected = metrics.Pairs.of(chosen, masks, raters)
    np.testing.assert_array_equal(pairs.subset(places).intersections, expected.intersections)
    agree(torch.from_numpy(expected.hm_iou()), pairs.subset(places).hm_iou())
    first = pairs.subset(np.arange(4))
    agree(metrics.ged(samples[:, :4], masks, raters), first.ged())
    assert first.n == 4


def test_a_metric_counts_pixels_wherever_they_lie():
    """Of (1, H, W) it is that of (H, W), of a volume that of its pixels in another order or in one plane."""
    rng = np.random.default_rng(7)
    samples, masks = random_masks(rng, 3, 5, 2, 4, 6, 5), random_masks(rng, 3, 4, 2, 4, 6, 5)
    samples[:, :, 1] *= 1 - samples[:, :, 0]  # exclusive, for the likeliest class
    raters = torch.tensor([1, 4, 2])
    for metric in metrics.all_metrics():
        if metric.function is not None:
            expected = metric(samples, masks, raters).numpy()
            for order in ((0, 1, 2, 5, 3, 4), (0, 1, 2, 4, 3, 5)):
                found = metric(samples.permute(order), masks.permute(order), raters)
                np.testing.assert_array_equal(found, expected, metric.name)
            np.testing.assert_array_equal(metric(samples.flatten(3, 4), masks.flatten(3, 4), raters), expected)
            plane = samples[:, :, :, 0], masks[:, :, :, 0]
            flat, thick = metric(*plane, raters), metric(*(of.unsqueeze(3) for of in plane), raters)
            np.testing.assert_array_equal(thick, flat, metric.name)
