"""The reference points, against brute force and against what the exact distribution of raters scores."""

import itertools

import numpy as np
import pytest
import torch

from berdiff import metrics
from berdiff.evaluation import references
from berdiff.evaluation.references import (
    EMPTY,
    EXACT,
    HM_IOU_DRAWS,
    MAJORITY,
    ONE_RATER,
    PERFECT,
    reference_scores,
)
from berdiff.evaluation.scores import of_samples, score_samples
from fakes import MemoryStore


@pytest.fixture
def readers():
    store = MemoryStore(12)
    return torch.from_numpy(store.masks), torch.from_numpy(store.cases.raters), store.cases.case.tolist()


def test_ged_of_a_perfect_sampler_is_the_mean_over_every_draw_there_is(readers):
    """All R^n draws, one by one: the closed form d_YY / n is exact, and so is 0 for the unbiased form."""
    masks, raters, names = readers
    found = reference_scores(masks, raters, names, 3, seed=0)[PERFECT]
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
    found = reference_scores(many, torch.full((200,), 4), names, 3, seed=0)[PERFECT]["hm_iou_3"]
    error = exact.std(correction=0).item() / (200 * HM_IOU_DRAWS) ** 0.5
    assert error > 0
    assert abs(found.mean() - exact.mean().item()) < 4.3 * error


def test_repeated_masks_score_as_n_copies_do(readers):
    masks, raters, names = readers
    found = reference_scores(masks, raters, names, 4, seed=0)
    majority = (masks.sum(1, keepdim=True) * 2 > raters[:, None, None, None, None]).to(torch.uint8)
    for kind, answer in ((MAJORITY, majority), (EMPTY, torch.zeros_like(majority))):
        expected = score_samples(answer.expand(-1, 4, -1, -1, -1), masks, raters)
        assert set(found[kind]) == set(of_samples(expected))
        for name, values in found[kind].items():
            np.testing.assert_allclose(values, expected[name], atol=1e-12, err_msg=f"{kind} {name}")
    assert (found[MAJORITY]["dice"] == 1).all()


def test_one_reader_is_each_reader_in_turn(readers):
    masks, raters, names = readers
    found = reference_scores(masks, raters, names, 4, seed=0)[ONE_RATER]
    for case in range(len(masks)):
        own = masks[case : case + 1, : raters[case]]
        each = [score_samples(own[:, [r] * 4], own, raters[case : case + 1]) for r in range(own.shape[1])]
        for name, values in found.items():
            expected = np.mean([score[name] for score in each])
            assert abs(values[case, 0] - expected) < 1e-12, name


def test_the_exact_model_has_the_limit_of_each_cases_own_raters(readers):
    """From the pairs of different raters, one by one; a case of one rater has none."""
    masks, raters, names = readers
    found = reference_scores(masks, raters, names, 5, seed=0)[EXACT]
    chosen = reference_scores(masks, raters, names, 5, 0, "representative", pool=20)[EXACT]
    assert {1, 4} <= set(raters.tolist())
    for case, R in enumerate(raters.tolist()):
        own = list(masks[case, :R, 0].numpy().astype(bool))
        distances, disagree = [], []
        for a, b in itertools.combinations(own, 2):
            distances.append(1 - ((a & b).sum() / (a | b).sum() if (a | b).any() else 1))
            disagree.append(float(a.any() != b.any()))
        D, D_finding = (np.mean(of) if of else np.nan for of in (distances, disagree))
        expected = {f"ged_{m}": D * (1 / R + 1 / m) for m in (1, 4, 5)} | {"ged_5_unbiased": D / R}
        expected |= {"d_sy": D, "d_ss": D, "finding_ged": D_finding * (1 / R + 1 / 5)}
        assert expected.keys() == found.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(found[name][case, 0], value, atol=1e-12, err_msg=name)
        for name in ("ged_1", "ged_4", "ged_5", "ged_20_unbiased"):  # a chosen set does not pay for its few masks
            np.testing.assert_allclose(chosen[name][case, 0], D / R, atol=1e-12)


def test_a_pool_changes_no_other_reference_of_a_set(readers):
    masks, raters, names = readers
    plain = reference_scores(masks, raters, names, 4, seed=0)
    pooled = reference_scores(masks, raters, names, 4, 0, "systematic", pool=12)
    for kind in (ONE_RATER, MAJORITY, EMPTY):
        assert {name.replace("12_unb", "4_unb") for name in pooled[kind]} == set(plain[kind])
        for name, values in pooled[kind].items():
            np.testing.assert_array_equal(values, plain[kind][name.replace("12_unb", "4_unb")])
    for name in ("ged_1", "ged_4", "d_sy", "d_ss"):
        np.testing.assert_array_equal(pooled[PERFECT][name], plain[PERFECT][name])


def test_a_metric_with_a_number_of_its_own_keeps_its_name() -> None:
    once = {
        "ged_1": np.zeros((1, 1)),
        "hm_iou_1": np.ones((1, 1)),
        "rim_1mm": np.full((1, 1), 2.0),
        "d_ss": np.zeros((1, 1)),
    }
    assert {"hm_iou_16", "rim_1mm"} < set(references._repeated(once, 16, 16))
