"""The values of a case and the reference points, against brute force."""

import itertools

import numpy as np
import pytest
import torch

from berdiff import metrics
from berdiff.evaluation import scores
from fakes import MemoryStore


@pytest.fixture
def readers():
    store = MemoryStore(12)
    return torch.from_numpy(store.masks), torch.from_numpy(store.cases.raters), store.cases.case.tolist()


def test_scores_are_the_metrics_by_name(readers):
    masks, raters, _ = readers
    samples = torch.randint(2, (12, 5, 1, 16, 16), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    found = scores.score_samples(samples, masks, raters)
    expected = {
        "ged_1": metrics.ged(samples[:, :1], masks, raters),
        "ged_4": metrics.ged(samples[:, :4], masks, raters),
        "ged_5": metrics.ged(samples, masks, raters),
        "ged_5_unbiased": metrics.ged_unbiased(samples, masks, raters),
        "hm_iou_5": metrics.hm_iou(samples, masks, raters),
        "dice": metrics.dice(samples, masks, raters),
        "soft_dice": metrics.soft_dice(samples, masks, raters),
        "d_max_5": metrics.d_max(samples, masks, raters),
        "ece": metrics.ece(samples, masks, raters),
        "brier": metrics.brier(samples, masks, raters),
        "nll": metrics.nll(samples, masks, raters),
    }
    assert set(scores.metric_names(found)) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values.numpy(), atol=1e-12)
    assert scores.subset_sizes(16) == (1, 4, 8, 16)
    assert scores.subset_sizes(1) == (1,)
    assert scores.subset_sizes(5) == (1, 4, 5)
    assert scores.subset_sizes(32) == (1, 4, 8, 16, 32)


def test_ged_of_a_perfect_sampler_is_the_mean_over_every_draw_there_is(readers):
    """All R^n draws, one by one: the closed form d_YY / n is exact, and so is 0 for the unbiased form."""
    masks, raters, names = readers
    found = scores.reference_scores(masks, raters, names, 3, seed=0)[scores.PERFECT]
    for case in range(4):
        own = masks[case, : raters[case]]
        draws = [own[list(drawn)] for drawn in itertools.product(range(len(own)), repeat=3)]
        samples, truth = torch.stack(draws), own.expand(len(draws), -1, -1, -1, -1)
        for n in (1, 3):
            assert abs(metrics.ged(samples[:, :n], truth).mean().item() - found[f"ged_{n}"][case, 0]) < 1e-12
        assert abs(metrics.ged_unbiased(samples, truth).mean().item() - found["ged_3_unbiased"][case, 0]) < 1e-12


def test_hm_iou_of_a_perfect_sampler_is_near_the_mean_over_every_draw(readers):
    masks, raters, _ = readers
    case = int(torch.where(raters == 4)[0][0])
    own = masks[case : case + 1]
    draws = torch.stack([own[0][list(drawn)] for drawn in itertools.product(range(4), repeat=3)])
    exact = metrics.hm_iou(draws, own.expand(len(draws), -1, -1, -1, -1))
    names = [f"repeat {i}" for i in range(200)]  # another name, another draw
    many = own.expand(200, -1, -1, -1, -1)
    found = scores.reference_scores(many, torch.full((200,), 4), names, 3, seed=0)[scores.PERFECT]["hm_iou_3"]
    error = exact.std(correction=0).item() / (200 * scores.HM_IOU_DRAWS) ** 0.5
    assert error > 0
    assert abs(found.mean() - exact.mean().item()) < 4.3 * error


def test_repeated_masks_score_as_n_copies_do(readers):
    masks, raters, names = readers
    found = scores.reference_scores(masks, raters, names, 4, seed=0)
    majority = (masks.sum(1, keepdim=True) * 2 > raters[:, None, None, None, None]).to(torch.uint8)
    for kind, answer in ((scores.MAJORITY, majority), (scores.EMPTY, torch.zeros_like(majority))):
        expected = scores.score_samples(answer.expand(-1, 4, -1, -1, -1), masks, raters)
        assert set(found[kind]) == set(scores.metric_names(expected))
        for name, values in found[kind].items():
            np.testing.assert_allclose(values, expected[name], atol=1e-12, err_msg=f"{kind} {name}")
    assert (found[scores.MAJORITY]["dice"] == 1).all()


def test_one_reader_is_each_reader_in_turn(readers):
    masks, raters, names = readers
    found = scores.reference_scores(masks, raters, names, 4, seed=0)[scores.ONE_RATER]
    for case in range(len(masks)):
        own = masks[case : case + 1, : raters[case]]
        each = [scores.score_samples(own[:, [r] * 4], own, raters[case : case + 1]) for r in range(own.shape[1])]
        for name, values in found.items():
            expected = np.mean([score[name] for score in each])
            assert abs(values[case, 0] - expected) < 1e-12, name


def test_a_case_has_the_same_reference_points_in_any_batch(readers):
    masks, raters, names = readers
    whole = scores.reference_scores(masks, raters, names, 4, seed=1)
    part = scores.reference_scores(masks[5:8], raters[5:8], names[5:8], 4, seed=1)
    for kind in whole:
        for name in whole[kind]:
            np.testing.assert_array_equal(whole[kind][name][5:8], part[kind][name])
