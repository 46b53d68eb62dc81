"""Bringing slices to one size, against torch's interpolation and against slicing by hand."""

from fractions import Fraction

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from berdiff.data.fitting import centre, fit_image, fit_labels, fit_spacing

RNG = np.random.default_rng(0)


def test_resize_agrees_with_torch():
    for size in ((224, 224), (100, 31), (300, 260)):
        check_resize(size)


def check_resize(size):
    image = RNG.random((3, 240, 200), np.float32)
    expected = F.interpolate(torch.from_numpy(image)[None], size, mode="bilinear", antialias=True, align_corners=False)
    np.testing.assert_allclose(fit_image(image, size, "resize"), expected[0], atol=1e-4)
    labels = RNG.integers(0, 2, (2, 1, 240, 200), np.uint8)
    nearest = F.interpolate(torch.from_numpy(labels), size, mode="nearest-exact").numpy()
    # torch computes places in float32, which decides otherwise where a centre lies just on an edge
    edges = np.ones(size, bool)
    for axis, (old, new) in enumerate(zip(labels.shape[-2:], size, strict=True)):
        on_edge = [(Fraction(2 * i + 1, 2) * Fraction(old, new)).denominator == 1 for i in range(new)]
        edges &= ~np.expand_dims(on_edge, 1 - axis)
    assert edges.mean() > 0.5
    np.testing.assert_array_equal(fit_labels(labels, size, "resize")[..., edges], nearest[..., edges])


def test_eight_bits_stay_eight_bits():
    image = RNG.integers(0, 256, (1, 64, 64), np.uint8)
    small = fit_image(image, (48, 48), "resize")
    exact = fit_image(image.astype(np.float32), (48, 48), "resize")
    assert small.dtype == np.uint8
    assert np.abs(small - exact).max() <= 0.5


def test_crop_is_the_centre():
    image = RNG.random((4, 240, 240), np.float32)
    np.testing.assert_array_equal(fit_image(image, (224, 224), "crop"), image[:, 8:-8, 8:-8])
    labels = RNG.integers(0, 2, (2, 1, 180, 180), np.uint8)
    np.testing.assert_array_equal(fit_labels(labels, (128, 128), "crop"), labels[..., 26:-26, 26:-26])


def test_a_smaller_image_gets_zeros_around_it():
    found = centre(np.ones((1, 2, 6)), (5, 4))
    expected = np.zeros((1, 5, 4))
    expected[:, 1:3] = 1
    np.testing.assert_array_equal(found, expected)


def test_image_and_mask_move_together():
    blob = np.zeros((1, 60, 80), np.float32)
    blob[0, 20:40, 30:60] = 1
    for how, size in [("crop", (50, 100)), ("resize", (30, 40)), ("resize", (120, 160))]:
        image, mask = fit_image(blob, size, how), fit_labels(blob.astype(np.uint8), size, how)
        np.testing.assert_array_equal(image > 0.5, mask)


def test_spacing_keeps_the_millimetres():
    assert fit_spacing((1.0, 2.0), (240, 240), (224, 120), "resize") == pytest.approx((240 / 224, 4.0))
    assert fit_spacing((1.0, 2.0), (240, 240), (224, 120), "crop") == (1.0, 2.0)
