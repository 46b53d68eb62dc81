"""PixelSeg: halves, smoothing, the loss of both resolutions, and a sample that a raster scan would draw."""

from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import ndimage

from berdiff.methods.pixelseg import PixelSeg
from berdiff.methods.pixelseg.segmenter import AutoregressiveSegmenter, halve, smooth
from fakes import generator, make_spec


def build(targets=("nodule",), **settings) -> AutoregressiveSegmenter:
    torch.manual_seed(0)
    model = PixelSeg("tiny", **settings).build(make_spec((8, 8), targets=targets))
    with torch.no_grad():
        model.network.stack.out.weight.mul_(4)
    return model


def batch(K=1):
    image = torch.rand(2, 1, 8, 8, generator=generator())
    return image, (torch.rand(2, 4, K, 8, 8, generator=generator(1)) > 0.6).to(torch.uint8)


def test_a_half_size_pixel_is_marked_where_more_than_two_of_four_are():
    y = (torch.rand(2, 3, 2, 6, 8, generator=generator()) > 0.4).float()
    found = halve(y)
    assert found.shape == (2, 3, 2, 3, 4)
    for index in np.ndindex(2, 3, 2, 3, 4):
        *mask, i, j = index
        part = y[tuple(mask)][2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
        assert float(found[index]) == float(part.sum() > 2)


def test_smoothing_is_scipys_closing_and_median():
    y = torch.rand(3, 2, 1, 9, 11, generator=generator()) > 0.6
    found = smooth(y)
    for index in np.ndindex(3, 2, 1):
        dilated = ndimage.binary_dilation(y[index].numpy(), np.ones((3, 3)))
        closed = ndimage.binary_erosion(dilated, np.ones((3, 3)), border_value=1)  # a closing unmarks nothing
        median = ndimage.median_filter(closed.astype(np.uint8), 3, mode="constant", cval=0)
        assert (found[index].numpy() == median).all()
    assert 0.02 < float((found != y).float().mean()) < 0.98


def test_the_loss_written_out_with_two_targets():
    model, (image, masks) = build(("a", "b"), foreground_weight=3.0), batch(2)
    masks = masks[:, :1]
    terms = model.loss(image, masks, generator())
    y = masks.float()
    y_half = halve(y)
    logits = model.network.encode(image)
    next_pixel = model.network.stack(y_half[:, 0]) + logits[1]
    p = next_pixel.sigmoid()
    half = -(3 * y_half[:, 0] * p.log() + (1 - y_half[:, 0]) * (1 - p).log()).mean()
    up = F.interpolate(next_pixel, scale_factor=2, mode="bilinear")
    p = model.network.join(torch.cat([logits[0], up], 1)).sigmoid()
    full = -(y[:, 0] * p.log() + (1 - y[:, 0]) * (1 - p).log()).mean()
    torch.testing.assert_close(terms["bce_half"], half)
    torch.testing.assert_close(terms["bce"], full)
    torch.testing.assert_close(terms["loss"], full + half)


def test_the_full_size_loss_does_not_teach_the_masked_convolutions():
    model, (image, masks) = build(), batch()
    terms = model.loss(image, masks, generator())
    terms["bce"].backward(retain_graph=True)
    assert all(p.grad is None for p in model.network.stack.parameters())
    terms["bce_half"].backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in model.network.stack.parameters())
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("smoothed", [False, True])
def test_a_sample_is_what_a_raster_scan_draws(smoothed: bool):
    model = build(("a", "b"), smooth=smoothed).eval()
    image, _ = batch()
    with torch.no_grad():
        drawn = model.sample(image[:1], 2, [generator(3), generator(4)])
        features = model.encode(image[:1])
        u_half, u = (
            torch.stack(parts).unsqueeze(0)
            for parts in zip(
                *[
                    (torch.rand(32, generator=g).reshape(2, 4, 4), torch.rand(128, generator=g).reshape(2, 8, 8))
                    for g in (generator(3), generator(4))
                ],
                strict=True,
            )
        )
        y = torch.zeros_like(u_half)
        for i, j in product(range(4), range(4)):
            y[..., i, j] = (u_half < model.network.next_pixel(features, y).sigmoid())[..., i, j].float()
        expected = u < model.network.whole(features, model.network.next_pixel(features, y)).sigmoid()
        if smoothed:
            expected = smooth(expected)
    assert torch.equal(drawn, expected.to(torch.uint8))
    assert 0 < float(drawn.float().mean()) < 1
