"""JPro. U-net: its loss, its settings, and what CAR promises with it as every method does."""

from dataclasses import replace

import pytest
import torch

from berdiff.diffusion.random import sample_generators
from berdiff.methods.jprounet import JProUNet
from berdiff.training.config import OptimConfig
from berdiff.training.engine import clip, make_optimizer, set_rates
from fakes import make_spec, real

TINY = JProUNet("tiny", dims=4, masks_per_image=2)
SPEC = make_spec((16, 16), ("t1", "t2"), ("core", "edema", "whole"))


def batch(spec=None):
    spec, generator = spec or make_spec(), torch.Generator().manual_seed(0)
    image = torch.rand(3, len(spec.channels), 16, 16, generator=generator)
    return image, (torch.rand(3, 4, len(spec.targets), 16, 16, generator=generator) > 0.5).to(torch.uint8)


# --- the loss --------------------------------------------------------------------------------------------------------


def test_the_loss_is_distance_and_cross_entropy_summed_over_pixels_and_beta_times_the_mean_divergence():
    model, (image, masks) = real(replace(TINY, beta=7.0), SPEC), batch(SPEC)
    terms = model.loss(image, masks, sample_generators(0, list("abc"), 1))
    pixels = 3 * 16 * 16  # and targets
    mean = sum(terms[f"kl_{level}"] for level in (1, 2, 3)) / 3
    torch.testing.assert_close(terms["kl"], mean)
    expected = (pixels * terms["bce"] + pixels * terms["image"] + 7 * mean) / pixels
    torch.testing.assert_close(terms["loss"], expected)

    decoded, decode = [], model.network.decode
    model.network.decode = lambda *args: decoded.append(decode(*args)) or decoded[0]
    model.loss(image, masks, sample_generators(0, list("abc"), 1))
    (_, given_back), *_ = decoded
    torch.testing.assert_close(terms["image"] * pixels, (image[:, None] - given_back).abs().sum((2, 3, 4)).mean())


def test_beta_rises_after_each_step_and_not_in_the_loss():
    model, (image, masks) = real(replace(TINY, beta_warmup=4)), batch()
    pixels, betas = 256, []
    for _ in range(6):
        for _ in range(2):  # as with two parts of a batch
            terms = model.loss(image, masks, sample_generators(0, list("abc"), 1))
        betas.append(float(((terms["loss"] - terms["bce"] - terms["image"]) * pixels / terms["kl"]).detach()))
        model.after_step(terms)
    assert betas == pytest.approx([2.5, 5, 7.5, 10, 10, 10], rel=1e-3)


# --- does it learn? --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_equally_likely_masks_are_both_drawn():
    """A large and a small square: each about half the time, hardly a mask in between."""
    torch.manual_seed(0)
    square = torch.zeros(2, 1, 16, 16)
    square[0, :, 4:12, 4:12] = square[1, :, 6:10, 6:10] = 1
    image, masks = torch.full((4, 1, 16, 16), 0.3), square.expand(4, 2, 1, 16, 16)
    model = JProUNet("tiny", beta=1.0, masks_per_image=2).build(make_spec())
    optim = OptimConfig(lr=5e-3, clip_norm=1.0, decay="cosine", decay_steps=300)
    optimizer = make_optimizer(model, optim, fused=True)
    for step in range(1, 301):
        model.loss(image, masks, sample_generators(step, list("abcd"), 1))["loss"].backward()
        set_rates(optimizer, optim, step)
        clip(optimizer)
        optimizer.step()
        optimizer.zero_grad()
    samples = model.eval().sample(image[:1], 256, torch.Generator().manual_seed(0))[0]
    wrong = torch.stack([(samples - mask).abs().sum((1, 2, 3)) for mask in square])
    shares = (wrong <= 6).float().mean(1)
    assert shares.min() > 0.35
    assert shares.sum() > 0.85
