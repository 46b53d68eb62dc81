"""Masked convolutions see earlier pixels alone, so their products are probabilities and their fixed point a sample."""

import math
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from berdiff.methods.pixelseg.masked import MaskedConv, MaskedStack, fixed_point
from fakes import generator
from refusals import refused


def strong_stack(channels: int = 1, seed: int = 0) -> MaskedStack:
    """With weights so large that each pixel depends much on those before it."""
    torch.manual_seed(seed)
    stack = MaskedStack(channels, width=8, layers=3, kernel=5)
    with torch.no_grad():
        stack.out.weight.mul_(4)
    return stack.requires_grad_(False)


def test_a_masked_convolution_is_a_convolution_with_zeros():
    torch.manual_seed(0)
    x = torch.randn(2, 3, 7, 6)
    for own in (False, True):
        conv = MaskedConv(3, 4, 5, own)
        whole = torch.zeros(4, 3, 5, 5)
        for row, column in product(range(3), range(5)):
            if row < 2 or column < 2 or (own and column == 2):
                whole[:, :, row, column] = conv.weight[:, :, row, column]
        torch.testing.assert_close(conv(x), F.conv2d(x, whole, conv.bias, padding=2))
    with refused("kernel:", error=ValueError):
        MaskedConv(1, 1, 4, own=False)


def test_the_logits_of_a_pixel_depend_on_earlier_pixels_alone():
    """The whole Jacobian, norms included: zero at the pixel itself and at all later ones, of every target."""
    h, w, K = 5, 6, 2
    stack = strong_stack(K)
    y = torch.rand(1, K, h, w, generator=generator())  # not 0 and 1: no two pixels are alike
    jacobian = torch.autograd.functional.jacobian(stack, y).reshape(K, h * w, K, h * w)
    seen = (jacobian != 0).any(2).any(0)  # (of pixel, by pixel)
    assert not seen.triu().any()
    assert seen.diagonal(-1).float().mean() > 0.6, "the pixel before is seen (but at the end of the line before)"
    assert seen.diagonal(-w).float().mean() > 0.9, "so is the one above"


def test_a_norm_over_space_would_show_later_pixels():
    """The test above can fail: with GroupNorm in the place of each PixelNorm it does."""
    stack = strong_stack()
    for place in (1, 4, 7):
        stack.layers[place] = nn.GroupNorm(2, 8)
    jacobian = torch.autograd.functional.jacobian(stack, torch.rand(1, 1, 3, 3, generator=generator()))
    assert jacobian.reshape(9, 9).triu().any()


@pytest.mark.parametrize(("K", "h", "w"), [(1, 3, 3), (2, 2, 2)])
def test_the_likelihoods_of_all_masks_sum_to_one(K: int, h: int, w: int):
    stack = strong_stack(K).double()
    masks = torch.tensor(list(product((0.0, 1.0), repeat=K * h * w)), dtype=torch.float64).reshape(-1, K, h, w)
    image = torch.randn(K, h, w, generator=generator(), dtype=torch.float64)  # what an image adds to the logits
    log_p = -F.binary_cross_entropy_with_logits(stack(masks) + image, masks, reduction="none").sum((1, 2, 3))
    assert len(log_p) == 2 ** (K * h * w)
    assert abs(float(log_p.exp().sum()) - 1) < 1e-9
    assert float(log_p.exp().max()) > 10 / len(log_p), "far from all alike"


def raster_scan(logits, u: torch.Tensor) -> torch.Tensor:
    """Pixel by pixel: what `fixed_point` must give."""
    y = torch.zeros_like(u)
    for row, column in product(range(u.shape[-2]), range(u.shape[-1])):
        y[..., row, column] = (u < logits(y).sigmoid()).to(u.dtype)[..., row, column]
    return y


def test_the_fixed_point_is_the_raster_scan_to_the_bit():
    for seed in range(3):
        stack, calls = strong_stack(2, seed), []
        image = torch.randn(1, 2, 10, 9, generator=generator(seed))

        def logits(y, stack=stack, image=image, calls=calls):
            calls.append(len(y))
            return stack(y) + image

        u = torch.rand(4, 2, 10, 9, generator=generator(seed + 10))
        found = fixed_point(logits, u)
        passes = len(calls)
        assert torch.equal(found, raster_scan(logits, u))
        assert 3 < passes < 60, "pixels are coupled, yet fewer passes than the 90 pixels"
        other = torch.cat([u[:1], torch.rand(3, 2, 10, 9, generator=generator(99))])
        assert torch.equal(fixed_point(logits, other)[0], found[0]), "whatever is drawn beside it"


def test_the_fixed_point_ends_where_every_pixel_needs_a_pass():
    """Each pixel is the opposite of the one before it: a pass settles one pixel, and h w passes settle all."""

    def logits(y):
        flat = y.flatten(1)
        before = torch.cat([torch.ones_like(flat[:, :1]), flat[:, :-1]], 1)
        return (100 * (1 - 2 * before)).reshape(y.shape)

    found = fixed_point(logits, torch.full((1, 1, 4, 5), 0.5))
    assert found.flatten().tolist() == [0.0, 1.0] * 10


def test_samples_have_the_probabilities_of_the_likelihood():
    """20,000 masks of 2x2: each of the 16 within 5 standard errors; a false alarm in 100,000 seeds."""
    stack, n = strong_stack(), 20_000
    masks = torch.tensor(list(product((0.0, 1.0), repeat=4))).reshape(-1, 1, 2, 2)
    p = (-F.binary_cross_entropy_with_logits(stack(masks), masks, reduction="none").sum((1, 2, 3))).exp()
    drawn = fixed_point(stack, torch.rand(n, 1, 2, 2, generator=generator(1))).flatten(1) @ torch.tensor([8.0, 4, 2, 1])
    for number, probability in enumerate(p.tolist()):
        share = float((drawn == number).float().mean())
        assert abs(share - probability) < 5 * math.sqrt(probability * (1 - probability) / n)
