"""SegDiff, MedSegDiff and flow matching as methods: what every method promises, and what is their own."""

import math
from dataclasses import replace

import pytest
import torch

from berdiff.diffusion.sampler import Sampler
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.flow import FlowMatching
from berdiff.methods.gaussian import GaussianDiffusion
from berdiff.methods.medsegdiff import MedSegDiff
from berdiff.methods.segdiff import SegDiff
from berdiff.recipes import RECIPES
from fakes import TenLines, diffusion, generator, make_spec, real


@pytest.mark.parametrize("config", [FlowMatching("fast-tiny"), GaussianDiffusion("fast-tiny"), BerDiff("fast-tiny")])
def test_the_encode_once_network_sees_masks_around_0_whatever_the_noise(config):
    """Pure noise is then fair coins of -1 and 1, or N(0, 1): mean 0, variance 1. Tiles hand it on."""
    model, seen = real(config), []
    model.network.step.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    y_T = model.kernel.prior((2, 8, 1, 32, 32), [generator(i) for i in range(16)], torch.empty(0))
    image = torch.rand(2, 1, 32, 32, generator=generator())
    for each in (model, model.tiled((16, 16), 0.25)):
        each.estimate(y_T, torch.full((2, 8), model.T), each.network.encode(image))
    assert len(seen) > 2
    for part in seen:  # 4,096 values or more: five standard errors of mean and variance
        assert abs(float(part.mean())) < 5 / 4096**0.5
        assert abs(float(part.var()) - 1) < 5 * (2 / 4096) ** 0.5


# --- the guess of MedSegDiff -----------------------------------------------------------------------------------------


def test_the_guess_is_one_more_term_of_the_same_loss():
    model, image = real(MedSegDiff("tiny", lambda_guess=3.0, masks_per_image=2)), torch.rand(2, 1, 16, 16)
    masks = (torch.rand(2, 2, 1, 16, 16) > 0.5).float()
    terms, told = model.loss(image, masks, generator(5)), []
    model.guess.register_forward_hook(lambda _module, _args, output: told.append(output))
    again = model.loss(image, masks, generator(5))
    plain = super(type(model), model).loss(image, masks, generator(5))
    assert terms.keys() == {"loss", "mse", "guess"}
    torch.testing.assert_close(terms["mse"], plain["loss"])  # the draws are algorithm 1's
    torch.testing.assert_close(terms["loss"], terms["mse"] + 3 * terms["guess"])
    torch.testing.assert_close(again["guess"], terms["guess"])
    g = generator(5)
    first = (torch.rand(2, 1, generator=g) * 2).long().flatten()
    y0 = torch.stack([masks[b, (int(first[b]) + i) % 2] for b in range(2) for i in range(2)])
    torch.testing.assert_close(terms["guess"], (told[0] - y0).square().mean())


# --- exact where the truth is known ----------------------------------------------------------------------------------


class Exact(TenLines):
    """The best estimate there is for independent pixels that are 1 with the probability the image shows."""

    def __init__(self, kernel) -> None:
        super().__init__()
        self.kernel = kernel

    def denoise(self, y_t, t, features):
        a = self.kernel.schedule.at(t, y_t).to(y_t.dtype)
        logits = 2 * a * y_t / (1 - a).square() + torch.logit(features.unsqueeze(1))  # of a pixel, by Bayes
        return logits if self.kernel.prediction == "mask" else (torch.tanh(logits / 2) - y_t) / (1 - a)


def test_with_the_exact_estimate_the_samples_have_the_true_probability():
    """4 x 1,600 pixels of each probability: the share of ones within 5 standard errors and the grid's own .01."""
    image = torch.cat([torch.full((1, 1, 40, 40), p) for p in (0.1, 0.5, 0.85)], 2)
    for config in (FlowMatching(), FlowMatching(schedule="power2.5", prediction="mask")):
        model = diffusion(Exact(config.kernel()), config)
        samples = model.sample(image, 4, generator(1), Sampler(steps=200, sigma=0.0)).float()
        for share, p in zip(samples.reshape(4, 3, 40, 40).mean((0, 2, 3)).tolist(), (0.1, 0.5, 0.85), strict=True):
            assert abs(share - p) < 5 * math.sqrt(p * (1 - p) / 6400) + 0.01


# --- trained ---------------------------------------------------------------------------------------------------------


ODE, TWENTY = Sampler(steps=20, sigma=0.0), Sampler(steps=20)  # all chance in y_T, or in every step
EASY = {"T": 100, "schedule": "power2.5", "prediction": "mask", "masks_per_image": 16}
CCDM = replace(
    RECIPES["ccdm-cpu"].config.model, preset="fast-tiny", masks_per_image=16, lambda_kl=16.0**2
)  # a sum over the square
TOYS = {
    "berdiff, mask": (BerDiff("fast-tiny", **EASY, sampler=TWENTY), 60),
    "gaussian, mask": (GaussianDiffusion("fast-tiny", **EASY, sampler=ODE), 60),
    "gaussian, noise": (GaussianDiffusion("tiny", T=100, masks_per_image=8, sampler=ODE), 300),
    "ccdm": (CCDM, 120),
    "segdiff, mask": (SegDiff("tiny", T=100, prediction="mask", masks_per_image=8, sampler=ODE), 150),
    "segdiff, noise": (SegDiff("tiny", T=100, masks_per_image=8, sampler=ODE), 300),
    "medsegdiff, mask": (MedSegDiff("tiny", T=100, prediction="mask", masks_per_image=8, sampler=ODE), 150),
    "flow, mask": (FlowMatching("fast-tiny", **EASY, sampler=ODE), 150),
    "flow, velocity": (FlowMatching("fast-tiny", **{**EASY, "prediction": "velocity"}, sampler=ODE), 250),
}
FAST = ("berdiff, mask", "gaussian, mask")


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in TOYS]
)
def test_two_equally_likely_masks_are_both_drawn(name: str):
    """Left or right half, and the image does not tell which: each sample is one of them, and 64 are 32 to 5 sigma."""
    config, steps = TOYS[name]
    torch.manual_seed(0)
    model = config.build(make_spec())
    masks = torch.zeros(1, 2, 1, 16, 16)
    masks[:, 0, ..., :8], masks[:, 1, ..., 8:] = 1, 1
    image, optimizer = torch.full((1, 1, 16, 16), 0.5), torch.optim.Adam(model.parameters(), 3e-3)
    for step in range(steps):
        optimizer.zero_grad()
        model.loss(image, masks, generator(step))["loss"].backward()
        optimizer.step()
    samples = model.eval().sample(image, 64, generator())[0].float()
    left, right = ((samples == masks[0, i]).flatten(1).float().mean(1) for i in range(2))
    assert float(torch.maximum(left, right).median()) > 0.97, "whole masks, not their mean"
    assert 12 <= int((left > right).sum()) <= 52
