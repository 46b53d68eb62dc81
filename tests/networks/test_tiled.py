"""Images larger than the network: tiles cover them, agree where they agree, and are joined as their kernel asks."""

from itertools import pairwise, product

import pytest
import torch
import torch.nn.functional as F

import fakes
from berdiff.data.input_spec import InputSpec
from berdiff.diffusion.gaussian import Gaussian
from berdiff.diffusion.kernels.base import Kernel
from berdiff.diffusion.kernels.bernoulli import Bernoulli
from berdiff.diffusion.random import sample_generators
from berdiff.diffusion.sampler import Sampler
from berdiff.diffusion.schedule import linear
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.families.deterministic import Deterministic
from berdiff.methods.gaussian import GaussianDiffusion
from berdiff.methods.unet import UNet
from berdiff.networks.tiled import TiledDenoiser, starts, weight
from refusals import refused

KERNELS: tuple[Kernel, ...] = (Bernoulli(linear(50)), Gaussian(linear(50)))


class Pixelwise(fakes.Bright):
    """Logits from each pixel alone: tiles agree wherever they overlap."""

    def encode(self, image):
        return image[:, :1]

    def denoise(self, y_t, t, features):
        return 6 * (features[:, None] - 0.5) + (y_t - 0.5)


class Numbered(fakes.Bright):
    """Each tile answers with its own number: 0, 1, 2, ..."""

    def encode(self, image):
        self.tiles = getattr(self, "tiles", -1) + 1
        return torch.full_like(image, float(self.tiles))

    def denoise(self, y_t, t, features):
        return features[:, None].expand_as(y_t)


def tiled(network, kernel: Kernel, size=(8, 8), overlap=0.25) -> TiledDenoiser:
    return TiledDenoiser(network, size, overlap, kernel.to_mean, kernel.from_mean)


def test_tiles_cover_the_image_evenly_and_overlap_as_asked() -> None:
    for length, size, overlap in product((8, 9, 15, 64, 100), (8,), (0.0, 0.25, 0.5, 0.9)):
        places = starts(length, size, overlap)
        assert (places[0], places[-1]) == (0, length - size)
        steps = [b - a for a, b in pairwise(places)]
        assert all(1 <= step <= max(1, size * (1 - overlap)) + 0.5 for step in steps), "rounded to whole pixels"
        assert not steps or max(steps) - min(steps) <= 1
    w = weight((8, 6), torch.zeros(()))
    assert w.shape == (8, 6)
    assert bool((w > 0).all())
    torch.testing.assert_close(w, w.flip(0, 1))
    assert w.argmax() in (3 * 6 + 2, 3 * 6 + 3, 4 * 6 + 2, 4 * 6 + 3)


def test_tiles_that_agree_give_the_same_output_back() -> None:
    generator = torch.Generator().manual_seed(0)
    image, y_t = torch.rand(2, 1, 13, 21, generator=generator), torch.rand(2, 3, 1, 13, 21, generator=generator).round()
    t = torch.full((2, 3), 7)
    network = Pixelwise()
    expected = network.denoise(y_t, t, network.encode(image))
    for kernel in KERNELS:
        output = torch.linspace(-9, 9, 50)
        torch.testing.assert_close(kernel.from_mean(kernel.to_mean(output)), output, rtol=1e-4, atol=1e-5)
        joined = tiled(network, kernel)
        torch.testing.assert_close(joined.denoise(y_t, t, joined.encode(image)), expected, rtol=1e-5, atol=1e-5)


def test_tiles_that_differ_are_joined_as_the_kernel_asks() -> None:
    """A Gaussian output is the plain weighted mean; 0.1.0 averaged sigmoids of it. A Bernoulli one is a probability."""
    image, y_t, t = torch.zeros(1, 1, 8, 12), torch.zeros(1, 1, 1, 8, 12), torch.ones(1, 1)
    w = weight((8, 8), y_t)
    left, right = F.pad(w, (0, 4)), F.pad(w, (4, 0))
    share = right / (left + right)  # of the second tile, whose number is 1; the first one's is 0
    plain, by_odds = (tiled(Numbered(), kernel, overlap=0.5) for kernel in (KERNELS[1], KERNELS[0]))
    found = plain.denoise(y_t, t, plain.encode(image))[0, 0, 0]
    torch.testing.assert_close(found, share, rtol=1e-5, atol=1e-6)
    assert bool(((found > 0.01) & (found < 0.99)).any()), "some pixels are in both"
    found = by_odds.denoise(y_t, t, by_odds.encode(image))[0, 0, 0].sigmoid()
    expected = (1 - share) * torch.tensor(0.0).sigmoid() + share * torch.tensor(1.0).sigmoid()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_a_diffusion_joins_tiles_by_its_own_kernel() -> None:
    for config, odds in ((GaussianDiffusion(T=50), False), (BerDiff(T=50), True)):
        network = fakes.diffusion(Numbered(), config).tiled((8, 8), 0.5).network
        found = network.denoise(torch.zeros(1, 1, 1, 8, 12), torch.ones(1, 1), network.encode(torch.zeros(1, 1, 8, 12)))
        share = weight((8, 8), found)[0, 1] / (weight((8, 8), found)[0, 1] + weight((8, 8), found)[0, 5])
        numbers = torch.tensor([0.0, 1.0])
        numbers = numbers.sigmoid() if odds else numbers
        joined = (1 - share) * numbers[0] + share * numbers[
            1
        ]  # at column 5: the sixth of one tile, the second of the next
        torch.testing.assert_close(found[0, 0, 0, 0, 5], joined.logit() if odds else joined, rtol=0, atol=1e-5)


def test_ends_of_the_scale_stay_ends() -> None:
    for kernel in KERNELS:
        for output in (torch.tensor([-80.0, 80.0]), torch.tensor([-1e4, 1e4])):
            back = kernel.from_mean(kernel.to_mean(output) * 1.0000001)
            assert not bool(back.isnan().any())
            assert back[0] < -80 or back[0] == pytest.approx(-80, rel=0.1)
            assert back[1] > 15


def segmenters(spec: InputSpec):
    few = Sampler(steps=3, sigma=0.0)
    yield fakes.diffusion(fakes.Bright(), BerDiff(T=50, prediction="mask", sampler=Sampler(steps=3)), spec)
    yield fakes.diffusion(fakes.Bright(), GaussianDiffusion(T=50, prediction="mask", sampler=few), spec)
    yield Deterministic(UNet(), spec, fakes.Bright())


def test_an_image_of_one_tile_is_sampled_as_without_tiles_and_a_larger_one_at_all() -> None:
    generator = torch.Generator().manual_seed(1)
    one, large = torch.rand(2, 1, 16, 16, generator=generator), torch.rand(2, 1, 24, 37, generator=generator)
    for model in segmenters(fakes.make_spec()):
        model.masks_per_pass = 4
        tiles = model.tiled((16, 16), 0.25)
        assert (tiles.sampler, tiles.masks_per_pass, tiles.targets) == (model.sampler, 4, 1)
        whole, parts = (m.sample(one, 3, sample_generators(0, ["a", "b"], 3)) for m in (model, tiles))
        assert 0 < float(whole.float().mean()) < 1
        assert torch.equal(parts, whole)
        drawn = tiles.sample(large, 3, sample_generators(0, ["a", "b"], 3))
        assert drawn.shape == (2, 3, 1, 24, 37)
        assert torch.equal(drawn[1:], tiles.sample(large[1:], 3, sample_generators(0, ["b"], 3)))


def test_a_method_that_cannot_join_tiles_says_so() -> None:
    with refused("16x16", "stand-in"):
        fakes.StandIn().build(fakes.make_spec()).tiled((16, 16), 0.25)
