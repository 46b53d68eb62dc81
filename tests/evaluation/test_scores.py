"""The values of a case, and the sets they are of."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from berdiff import metrics
from berdiff.evaluation import scores
from berdiff.inference.sets import choose_set, set_rng
from fakes import MemoryStore
from output.made_results import result_2d


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
        "d_sy": torch.from_numpy(metrics.Pairs.of(samples, masks, raters).d_sy()),
        "d_ss": torch.from_numpy(metrics.Pairs.of(samples, masks, raters).d_ss_distinct()),
    }
    q = [(masks[i, :r].flatten(1).amax(1) > 0).double().mean() for i, r in enumerate(raters)]
    expected["finding_ged"] = 2 * (1 - torch.stack(q)[:, None]) ** 2  # none of these samples is empty
    assert set(scores.of_samples(found)) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values.numpy(), atol=1e-12)
    assert scores.subset_sizes(16) == (1, 4, 8, 16)
    assert scores.subset_sizes(1) == (1,)
    assert scores.subset_sizes(5) == (1, 4, 5)
    assert scores.subset_sizes(32) == (1, 4, 8, 16, 32)


def pools(count=12, pool=24, seed=0):
    """Discs of random size, some of them empty: `(count, pool, 1, 16, 16)`."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:16, :16] - 7.5
    radius = rng.uniform(1, 7, (count, pool, 1, 1, 1)) * (rng.random((count, pool, 1, 1, 1)) > 0.4)
    return torch.from_numpy((rows**2 + columns**2 < radius**2).astype(np.uint8))


@pytest.mark.parametrize("rule", ["systematic", "representative"])
def test_ged_hm_iou_and_d_max_are_of_the_set_and_all_else_of_the_pool(readers, rule):
    masks, raters, names = readers
    pool = pools()
    compared = metrics.Compared(pool, masks, raters)
    sets = scores.choose_sets(compared, 5, rule, names, seed=3)
    found = scores.score(compared, sets)
    chosen = {m: torch.stack([pool[i, sets[m][i]] for i in range(12)]) for m in (1, 4, 5)}
    expected = {f"ged_{m}": metrics.ged(of, masks, raters) for m, of in chosen.items()}
    expected["hm_iou_5"] = metrics.hm_iou(chosen[5], masks, raters)
    expected["d_max_5"] = metrics.d_max(chosen[5], masks, raters)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values.numpy(), atol=1e-12, err_msg=name)
    whole = scores.score_samples(pool, masks, raters)
    others = set(found) - set(expected)
    assert {"ged_24_unbiased", "dice", "soft_dice", "ece", "brier", "nll", "d_sy", "d_ss", "finding_ged"} <= others
    for name in others:
        np.testing.assert_array_equal(found[name], whole[name], err_msg=name)
    # as `berdiff segment` chooses for the same seed and name
    again = choose_set(pool[7].numpy(), 5, rule, set_rng(3, names[7]))
    np.testing.assert_array_equal(sets[5][7], again)


def test_a_representative_set_is_nearer_to_raters_than_independent_samples():
    """Raters and pools of one distribution: 300 cases, GED of sets of 4 out of 24, paired; 4 standard errors."""
    both = pools(300, 28, seed=1)
    pool, masks = both[:, :24], both[:, 24:]
    raters, names = torch.full((300,), 4), [str(i) for i in range(300)]
    compared = metrics.Compared(pool, masks, raters)

    def ged(rule):
        return compared.subset(scores.choose_sets(compared, 4, rule, names)[4]).pairs.ged()[:, 0]

    gain = ged("independent") - ged("representative")
    assert gain.mean() > 4 * gain.std() / 300**0.5


def test_one_sample_has_no_pairs(readers):
    masks, raters, _ = readers
    found = scores.score_samples(masks[:, :1], masks, raters)
    assert not [name for name in found if "unbiased" in name]
    assert np.isnan(found["d_ss"]).all()
    np.testing.assert_array_equal(np.isnan(found["d_raters"])[:, 0], raters.numpy() == 1)


@given(st.integers(0, 10**6), st.integers(1, 8), st.sampled_from(["independent", "nested", "exclusive"]))
@settings(max_examples=40, deadline=None)
def test_the_mask_that_is_written_is_the_one_that_is_evaluated(seed, n, kind):
    """Pixel by pixel, each as a case of its own: ties too, of which an even number of samples has many."""
    rng = np.random.default_rng(seed)
    depth = rng.integers(0, 3, (n, 1, 5, 6))
    pool = {
        "independent": rng.integers(0, 2, (n, 2, 5, 6)),
        "nested": np.concatenate([depth >= 1, depth >= 2], 1),
        "exclusive": np.concatenate([depth == 1, depth == 2], 1),
    }[kind].astype(np.uint8)
    result = result_2d(pool=pool, targets=("a", "b"), kind=kind, image=np.zeros((1, 5, 6), np.float32))
    pixels = torch.from_numpy(pool.transpose(2, 3, 0, 1).reshape(30, n, 2, 1, 1).copy())
    raters, masks = torch.ones(30, dtype=torch.int64), torch.zeros(30, 1, 2, 1, 1, dtype=torch.uint8)
    evaluated = scores.score(metrics.Compared(pixels, masks, raters), {n: np.arange(n)}, kind)
    evaluated = evaluated["pixels_likeliest" if kind == "exclusive" else "pixels_predicted"]
    np.testing.assert_array_equal(result.majority(), evaluated.T.reshape(2, 5, 6))
