"""The reference points on LIDC's real readers, against what is known of them."""

import numpy as np
import pytest
import torch

from berdiff.evaluation.references import EMPTY, EXACT, ONE_RATER, PERFECT, reference_scores


def test_the_reference_points_of_lidcs_readers(shared_data):
    """Mean IoU of two different readers is about 0.474, so d_YY = 3/4 (1 - 0.474) = 0.39, and the floor is a 16th."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(shared_data / "lidc" / "data_lidc.hdf5") as file:
        labels = file["test"]["labels"][::5]  # (N, H, W, R)
    masks = torch.from_numpy(np.ascontiguousarray(labels.transpose(0, 3, 1, 2)[:, :, None]))
    names = [str(i) for i in range(len(masks))]
    found = reference_scores(masks, torch.full((len(masks),), 4), names, 16, seed=0)
    perfect = found[PERFECT]
    assert perfect["ged_1"].mean() == pytest.approx(0.39, abs=0.02)
    assert perfect["ged_16"].mean() == pytest.approx(0.39 / 16, abs=0.002)
    # one reader repeated: 2 d_YY - 0 - d_YY, the same as the perfect sampler's first draw
    np.testing.assert_allclose(found[ONE_RATER]["ged_16"], perfect["ged_1"], atol=1e-12)
    # D = 0.514 on the whole split; D (1/4 + 1/16)
    assert found[EXACT]["d_sy"].mean() == pytest.approx(0.514, abs=0.03)
    np.testing.assert_allclose(found[EXACT]["ged_16"], found[EXACT]["d_sy"] * 5 / 16)
    # no other answer is better than the perfect sampler's
    for metric, sign in (("hm_iou_16", 1), ("soft_dice", 1), ("d_max_16", 1), ("ged_16", -1), ("ece", -1), ("nll", -1)):
        others = [scores_of[metric].mean() for kind, scores_of in found.items() if kind not in (PERFECT, EXACT)]
        assert max(sign * value for value in others) < sign * perfect[metric].mean(), metric
    # an empty mask matches the readers that marked nothing
    nothing = (masks.flatten(2).amax(-1) == 0).double().mean().item()
    assert found[EMPTY]["hm_iou_16"].mean() == pytest.approx(nothing)
    assert nothing == pytest.approx(0.38, abs=0.05)
