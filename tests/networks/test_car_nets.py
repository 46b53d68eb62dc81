"""CAR's three nets: sizes, shapes, and what of G is shared by the masks of an image."""

import torch

from berdiff.methods.car.network import PRESETS, Calibrator, Discriminator, Refiner
from refusals import refused


def nets(preset: str, channels=1, targets=1, size=(128, 128)):
    sizes = PRESETS[preset]
    f = Calibrator(channels, targets, sizes.calibrator)
    g = Refiner(channels, targets, sizes.refiner, 8)
    return f, g, Discriminator(channels, targets, sizes.discriminator, size, sizes.halvings)


def test_z_enters_at_three_resolutions():
    """Each of the three injections alone changes the mask."""
    torch.manual_seed(0)
    _, g, _ = nets("tiny", size=(16, 16))
    features, z = g.encode(torch.rand(1, 1, 16, 16), torch.rand(1, 1, 16, 16)), torch.randn(1, 1, 8)
    other, before = -z, g.decode(features, z)
    for place in range(3):
        hook = g.inject[place].register_forward_pre_hook(lambda _module, args: (args[0], other))
        assert not torch.allclose(g.decode(features, z), before)
        hook.remove()


def test_the_discriminator_is_made_for_one_size_and_says_what_is_too_small():
    with refused("size:", error=ValueError):
        nets("small", size=(16, 64))
    *_, d = nets("small", size=(24, 24))
    assert d(torch.rand(1, 1, 24, 24), torch.rand(1, 1, 24, 24)).shape == (1,)
