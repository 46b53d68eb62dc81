"""What every method promises, whatever it is made of: batches, passes, callbacks, groups, and what it refuses."""

import torch

from berdiff.diffusion.random import sample_generators
from berdiff.diffusion.sampler import Sampler
from berdiff.methods.base import ParameterGroup, Segmenter
from berdiff.methods.berdiff import BerDiff
from fakes import TenLines, diffusion, generator


def test_memory_bound_changes_nothing_and_each_image_is_encoded_once():
    torch.manual_seed(0)
    model, image = diffusion(TenLines()), torch.rand(3, 1, 8, 8, generator=generator())
    largest, encoded = [0], []
    model.network.conv.register_forward_hook(lambda _module, args, _output: largest.append(len(args[0])))
    encode = model.network.encode
    model.network.encode = lambda image: encoded.append(len(image)) or encode(image)
    for n in (1, 3, 7):
        reference = model.sample(image, n, sample_generators(0, list("abc"), n))
        for masks_per_pass in (1, 2, 5, 100):
            model.masks_per_pass, largest[:] = masks_per_pass, [0]
            bounded = model.sample(image, n, sample_generators(0, list("abc"), n))
            assert max(largest) <= masks_per_pass
            torch.testing.assert_close(bounded, reference, rtol=0, atol=0)
        model.masks_per_pass = Segmenter.masks_per_pass
    encoded.clear()
    model.sample(image, 16, generator())
    assert sum(encoded) == 3


def test_every_pass_has_the_same_shape_where_samples_have_their_own_generators():
    """Convolutions round differently for other batch sizes; so a last pass that is not full is filled up."""
    model, image = diffusion(TenLines()), torch.rand(5, 1, 8, 8)
    model.masks_per_pass, sizes = 4, []
    model.network.conv.register_forward_hook(lambda _module, args, _output: sizes.append(len(args[0])))
    for count, n in ((5, 2), (1, 2), (3, 3), (1, 7)):
        sizes.clear()
        model.sample(image[:count], n, sample_generators(0, list("abcde")[:count], n))
        assert set(sizes) == {4 if n != 3 else 3}
    sizes.clear()
    model.sample(image, 2, generator())  # nothing is promised, and nothing is filled
    assert set(sizes) == {4, 2}


def test_callback_sees_every_step_with_falling_t():
    model, seen = diffusion(TenLines(), BerDiff(T=1000)), []
    model.sample(torch.rand(1, 1, 8, 8), 2, generator(), Sampler(steps=4), callback=seen.append)
    assert [(step.t, step.s) for step in seen] == [(1000, 750), (750, 500), (500, 250), (250, 0)]
    assert [(step.index, step.total) for step in seen] == [(i, 4) for i in range(4)]
    assert all(step.y_s.shape == step.y0_hat.shape == (1, 2, 1, 8, 8) for step in seen)
    seen.clear()
    model.sample(torch.rand(2, 1, 8, 8), 16, generator(), Sampler(steps=3), callback=seen.append)
    assert [step.t for step in seen] == [1000, 667, 333] * 2, "once more for each pass"


def test_a_parameter_group_has_a_rate_at_each_step():
    assert [ParameterGroup().rate_at(step) for step in (1, 900)] == [1.0, 1.0]
    assert ParameterGroup(("head.",), rate=0.1).rate_at(7) == 0.1
    warm = ParameterGroup(rate=lambda step: min(1.0, step / 10))
    assert [warm.rate_at(step) for step in (1, 5, 10, 11)] == [0.1, 0.5, 1.0, 1.0]
    model = diffusion(TenLines())
    (group,) = model.parameter_groups()
    assert all(name.startswith(group.prefixes) for name, _ in model.named_parameters())
    model.after_step({})
