"""The Hypothesis strategies of `berdiff.testing` give what they say."""

import numpy as np
from hypothesis import find, given, settings
from hypothesis import strategies as st

from berdiff.targets.targets import Targets
from berdiff.testing import strategies

QUICK = settings(max_examples=30, deadline=None)


@QUICK
@given(st.data(), st.sampled_from(["independent", "nested", "exclusive"]), st.sampled_from([(4, 6), (2, 3, 4)]))
def test_masks_are_of_their_kind(data, kind, shape):
    masks = data.draw(strategies.masks((2, 3), 3, shape, kind))
    assert masks.dtype == np.uint8
    assert masks.shape in {(2, 3, *shape), (3, 3, *shape)}
    assert masks.max() <= 1
    assert not Targets(("a", "b", "c"), kind).violation(masks)


def test_masks_shrink_to_empty_ones_of_one_rater():
    assert find(strategies.masks(), lambda masks: True).shape == (1, 1, *strategies.SMALL)
    assert find(strategies.masks(targets=2, kind="nested"), lambda masks: masks[:, 1].any()).sum() == 2
    assert find(strategies.masks(targets=2), lambda masks: Targets(("a", "b"), "nested").violation(masks)).sum() == 1


@QUICK
@given(strategies.images(2), strategies.images(dtype="uint8"), strategies.grids(), strategies.grids(oblique=False))
def test_images_and_places(unit, whole, oblique, straight):
    assert unit.shape == (2, *strategies.SMALL)
    assert 0 <= unit.min() <= unit.max() <= 1
    assert whole.dtype == np.uint8
    for _, affine in (oblique, straight):
        spacing = np.linalg.norm(affine[:3, :3], axis=0)
        assert ((spacing > 0.29) & (spacing < 5.01)).all()
        np.testing.assert_allclose(np.abs(np.linalg.det(affine)), spacing.prod(), rtol=1e-6)  # axes are at right angles
    assert np.count_nonzero(straight.affine[:3, :3]) == 3
