"""The reference points on LIDC's real readers, against what is known of them."""

import numpy as np
import pytest
import torch

from berdiff.evaluation import scores


@pytest.fixture(scope="module")
def references(shared_data):
    h5py = pytest.importorskip("h5py")
    with h5py.File(shared_data / "lidc" / "data_lidc.hdf5") as file:
        labels = file["test"]["labels"][::5]  # (N, H, W, R)
    masks = torch.from_numpy(np.ascontiguousarray(labels.transpose(0, 3, 1, 2)[:, :, None]))
    names = [str(i) for i in range(len(masks))]
    return masks, scores.reference_scores(masks, torch.full((len(masks),), 4), names, 16, seed=0)


def test_the_readers_disagree_as_much_as_is_known(references):
    """Mean IoU of two different readers is about 0.474, so d_YY = 3/4 (1 - 0.474) = 0.39, and the floor is a 16th."""
    _, found = references
    assert found[scores.PERFECT]["ged_1"].mean() == pytest.approx(0.39, abs=0.02)
    assert found[scores.PERFECT]["ged_16"].mean() == pytest.approx(0.39 / 16, abs=0.002)
    # one reader repeated: 2 d_YY - 0 - d_YY, the same as the perfect sampler's first draw
    np.testing.assert_allclose(found[scores.ONE_READER]["ged_16"], found[scores.PERFECT]["ged_1"], atol=1e-12)


def test_the_perfect_sampler_is_the_best_of_them(references):
    _, found = references
    for metric in ("hm_iou_16", "soft_dice", "d_max_16"):
        best = found[scores.PERFECT][metric].mean()
        assert all(found[kind][metric].mean() < best for kind in found if kind != scores.PERFECT), metric
    for metric in ("ged_16", "ece", "brier", "nll"):
        best = found[scores.PERFECT][metric].mean()
        assert all(found[kind][metric].mean() > best for kind in found if kind != scores.PERFECT), metric


def test_an_empty_mask_matches_the_readers_that_marked_nothing(references):
    masks, found = references
    nothing = (masks.flatten(2).amax(-1) == 0).double().mean().item()
    assert found[scores.EMPTY]["hm_iou_16"].mean() == pytest.approx(nothing)
    assert nothing == pytest.approx(0.38, abs=0.05)
