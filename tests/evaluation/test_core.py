"""Sampling the centre of whole images."""

import pytest
import torch

from berdiff.data.augment import crop
from berdiff.evaluation.core import sample_cases
from fakes import Blur, make_spec


@pytest.mark.parametrize(("size", "seen"), [((16, 16), (8, 8)), ((15, 17), (8, 4)), ((9, 9), (9, 9))])
def test_masks_of_the_centre_lie_where_a_training_crops_and_nothing_is_marked_outside(size, seen):
    segmenter = Blur(0.5).build(make_spec())
    images = torch.rand(3, 1, *size, generator=torch.Generator().manual_seed(0))
    found = sample_cases(segmenter, images, ["a", "b", "c"], 4, crop=seen)
    expected = sample_cases(segmenter, torch.from_numpy(crop(images.numpy(), seen).copy()), ["a", "b", "c"], 4)
    assert found.shape == (3, 4, 1, *size)
    assert (crop(found.numpy(), seen) == expected.numpy()).all()
    assert found.sum() == expected.sum() > 0
    assert torch.equal(
        sample_cases(segmenter, images, ["a", "b", "c"], 4, crop=size),
        sample_cases(segmenter, images, ["a", "b", "c"], 4),
    )
