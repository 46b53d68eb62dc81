"""CAR's three nets: sizes, shapes, and what of G is shared by the masks of an image."""

import pytest
import torch

from berdiff.methods.car.network import PRESETS, Calibrator, Discriminator, Refiner
from refusals import refused


def count(*modules) -> int:
    return sum(p.numel() for module in modules for p in module.parameters())


def nets(preset: str, channels=1, targets=1, size=(128, 128)):
    sizes = PRESETS[preset]
    f = Calibrator(channels, targets, sizes.calibrator)
    g = Refiner(channels, targets, sizes.refiner, 8)
    return f, g, Discriminator(channels, targets, sizes.discriminator, size, sizes.halvings)


def test_parameter_counts_are_the_documented_ones():
    f, g, d = nets("paper")
    assert [round(count(net) / 1e6, 1) for net in (f, g, d)] == [4.6, 0.6, 3.4]
    assert round(count(f, g, d) / 1e6, 1) == 8.6
    assert round(count(*nets("small", size=(64, 64))) / 1e6, 1) == 3.0


@pytest.mark.parametrize(("channels", "targets"), [(1, 1), (4, 3)])
def test_shapes(channels: int, targets: int):
    f, g, d = nets("tiny", channels, targets, (16, 32))
    image = torch.rand(2, channels, 16, 32)
    logits = f(image)
    assert logits.shape == (2, targets, 16, 32)
    drawn = g.decode(g.encode(image, logits.sigmoid()), torch.randn(2, 5, 8))
    assert drawn.shape == (2, 5, targets, 16, 32)
    assert d(image, drawn[:, 0].sigmoid()).shape == (2,)


def test_the_masks_of_an_image_are_what_each_z_gives_alone():
    torch.manual_seed(0)
    _, g, _ = nets("tiny", size=(16, 16))
    image, probability, z = torch.rand(2, 1, 16, 16), torch.rand(2, 1, 16, 16), torch.randn(2, 3, 8)
    together = g.decode(g.encode(image, probability), z)
    for n in range(3):
        alone = g.decode(g.encode(image, probability), z[:, n : n + 1])
        torch.testing.assert_close(together[:, n : n + 1], alone, rtol=1e-4, atol=1e-5)
    assert (together[:, 0] - together[:, 1]).abs().max() > 1e-2, "z does something"
    assert (together[0] - together[1]).abs().max() > 1e-2, "and so does the image"


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
