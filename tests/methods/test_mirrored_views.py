"""Mirrored views: the masks come back the right way round, each view is seen equally often, a batch changes nothing."""

import pytest
import torch
from torch import Tensor

from berdiff.diffusion.random import sample_generators
from berdiff.diffusion.sampler import Sampler
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.families.encoded import EncodedSegmenter
from berdiff.methods.families.views import AXES, mirrored, mirrored_back, take
from fakes import make_spec

IMAGE = torch.rand(2, 1, 16, 24, generator=torch.Generator().manual_seed(0))


class Threshold(EncodedSegmenter):
    """Marks bright pixels, and remembers what it was shown."""

    seen: list[Tensor]

    def loss(self, image, masks, generators):
        raise NotImplementedError

    def encode(self, image):
        return (image, (image.mean((2, 3)), None))

    def draw(self, features, shape, request):
        image = features[0]
        self.seen.append(image)
        return (image > 0.5).unsqueeze(1).expand(shape)


def threshold() -> Threshold:
    model = Threshold(BerDiff(preset="tiny"), make_spec((16, 24)), 1)
    model.seen = []
    return model


@pytest.mark.parametrize("views", [1, 2, 4])
def test_a_method_that_mirrors_with_its_image_is_not_changed(views):
    masks = threshold().sample(IMAGE, 5, sample_generators(0, ["a", "b"], 5), Sampler(views=views))
    assert torch.equal(masks, (IMAGE > 0.5).unsqueeze(1).expand(-1, 5, -1, -1, -1).to(torch.uint8))


def test_each_view_is_seen_about_equally_often():
    model = threshold()
    model.masks_per_pass = 400
    model.sample(IMAGE[:1], 400, sample_generators(0, ["a"], 400), Sampler(views=4))
    (seen,) = model.seen
    counts = [int((seen == view).flatten(1).all(1).sum()) for view in mirrored(IMAGE[:1], 4)]
    assert sum(counts) == 400
    # chi-square of 3 degrees above 21.1: once in 10,000 seeds
    assert sum((count - 100) ** 2 / 100 for count in counts) < 21.1


def test_mirrored_back_undoes_each_view():
    views = mirrored(IMAGE, 4).reshape(4, 2, 1, 16, 24).transpose(0, 1)  # (B, view, ...)
    assert not torch.equal(views[:, 1], views[:, 0])
    back = mirrored_back(views, torch.arange(4).expand(2, 4))
    assert torch.equal(back, IMAGE.unsqueeze(1).expand_as(back))
    assert len(AXES) == 4


def test_take_reaches_into_nested_features():
    x = torch.arange(6).reshape(3, 2)
    first, (second, nothing) = take((x, (2 * x, None)), torch.tensor([2, 0]))
    assert first.tolist() == [[4, 5], [0, 1]]
    assert second.tolist() == [[8, 10], [0, 2]]
    assert nothing is None


@pytest.mark.parametrize("hurdle", [0.0, 0.05])
def test_a_sample_and_its_callback_do_not_depend_on_the_batch(hurdle):
    torch.manual_seed(0)
    sampler = Sampler(steps=3, noise="shared", last_step="sample", views=4)
    config = BerDiff(preset="fast-tiny", T=20, prediction="mask", hurdle=hurdle, sampler=sampler)
    model = config.build(make_spec((16, 24))).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    steps = []
    both = model.sample(IMAGE, 8, sample_generators(0, ["a", "b"], 8), callback=steps.append)
    alone = model.sample(IMAGE[1:], 8, sample_generators(0, ["b"], 8))
    assert torch.equal(both[1:], alone)
    assert len(steps) == 3
    assert torch.equal(steps[-1].y_s.to(torch.uint8), both)
