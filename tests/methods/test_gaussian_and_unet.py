"""Gaussian diffusion and the plain U-net: exact where the truth is known."""

import math
from itertools import pairwise

import torch

from berdiff.diffusion.sampler import GaussianSampler, Sampler
from berdiff.diffusion.schedule import linear
from berdiff.methods.export import export_onnx
from berdiff.methods.families.deterministic import Deterministic
from berdiff.methods.gaussian import GaussianDiffusion
from berdiff.methods.unet import UNet
from fakes import TenLines, diffusion, generator, make_spec
from refusals import refused


class Exact(TenLines):
    """The best estimate there is for independent pixels that are 1 with the probability the image shows."""

    def __init__(self, prediction: str) -> None:
        super().__init__()
        self.prediction, self.schedule = prediction, linear(1000)

    def denoise(self, y_t, t, features):
        alpha_bar = self.schedule.at(t, y_t).to(y_t.dtype)
        p = features.unsqueeze(1)
        y0 = torch.tanh(alpha_bar.sqrt() * y_t / (1 - alpha_bar) + torch.logit(p) / 2)  # E[y0 | y_t], by Bayes
        return y0 if self.prediction == "mask" else (y_t - alpha_bar.sqrt() * y0) / (1 - alpha_bar).sqrt()


def test_with_the_exact_estimate_the_samples_have_the_true_probability():
    """Each of 4 x 1,600 pixels of a probability: the share of ones within 5 standard errors and the grid's own .01."""
    image = torch.cat([torch.full((1, 1, 40, 40), p) for p in (0.1, 0.5, 0.85)], 2)
    ddim, noisy, ddpm = Sampler(steps=250, sigma=0.0), Sampler(steps=250), Sampler(steps=250, rule="ddpm")
    for prediction, sampler in (("noise", ddim), ("mask", noisy), ("noise", ddpm)):
        model = diffusion(Exact(prediction), GaussianDiffusion(prediction=prediction))
        samples = model.sample(image, 4, generator(1), sampler).float()
        for share, p in zip(samples.reshape(4, 3, 40, 40).mean((0, 2, 3)).tolist(), (0.1, 0.5, 0.85), strict=True):
            assert abs(share - p) < 5 * math.sqrt(p * (1 - p) / 6400) + 0.01


def test_ddim_without_noise_depends_on_y_T_only_and_is_the_default():
    model = diffusion(Exact("noise"), GaussianDiffusion())
    assert model.sampler == GaussianSampler(sigma=0.0)
    image, alpha_bar = torch.full((1, 1, 12, 12), 0.4), model.kernel.schedule.alpha_bar.tolist()
    by_hand = torch.randn(1, 1, 1, 12, 12, generator=generator(7))
    for t, s in pairwise(range(1000, -1, -100)):
        eps = model.network.denoise(by_hand, torch.tensor([[t]]), image)
        y0 = ((by_hand - math.sqrt(1 - alpha_bar[t]) * eps) / math.sqrt(alpha_bar[t])).clamp(-1, 1)
        eps = (by_hand - math.sqrt(alpha_bar[t]) * y0) / math.sqrt(1 - alpha_bar[t])
        by_hand = math.sqrt(alpha_bar[s]) * y0 + math.sqrt(1 - alpha_bar[s]) * eps
    drawn = model.sample(image, 1, [generator(7)])
    assert (drawn == (by_hand > 0)).all()
    assert 0 < drawn.float().mean() < 1


def test_gaussian_loss_written_out():
    torch.manual_seed(0)
    image, masks = torch.rand(1, 1, 8, 8), (torch.rand(1, 1, 1, 8, 8) > 0.5).float()
    for prediction in ("noise", "mask"):
        model, g = diffusion(TenLines(), GaussianDiffusion(prediction=prediction)), generator(5)
        torch.rand(1, 1, generator=g)  # the rater: there is only one
        t = 1 + (torch.rand(1, 1, generator=g) * 1000).long()
        eps = torch.randn(64, generator=g).reshape(1, 1, 1, 8, 8)
        alpha_bar = float(model.kernel.schedule.alpha_bar[int(t)])
        signal = torch.where(masks == 1, 1.0, -1.0)
        y_t = math.sqrt(alpha_bar) * signal + math.sqrt(1 - alpha_bar) * eps
        error = model.network.denoise(y_t, t, image) - (eps if prediction == "noise" else signal)
        terms = model.loss(image, masks, generator(5))
        assert terms.keys() == {"loss", "mse"}
        torch.testing.assert_close(terms["loss"], error.square().mean())


def test_unet_gives_what_the_network_makes_of_the_image_only():
    torch.manual_seed(0)
    model = Deterministic(UNet(), make_spec(), TenLines())
    image = torch.rand(2, 1, 8, 8)
    logits = torch.conv2d(image, model.network.conv.weight[:, 1:2], model.network.conv.bias, padding=1)
    samples = model.sample(image, 3, generator())
    assert samples.shape == (2, 3, 1, 8, 8)
    for i in range(3):
        assert (samples[:, i] == (logits > 0)).all()
    masks = (torch.rand(2, 1, 1, 8, 8) > 0.5).float()
    p = logits.sigmoid()
    bce = -(masks[:, 0] * p.log() + (1 - masks[:, 0]) * (1 - p).log()).mean()
    torch.testing.assert_close(model.loss(image, masks, generator())["loss"], bce)


def test_export_describes_bernoulli_steps_only(tmp_path):
    for config in (GaussianDiffusion("fast-tiny"), UNet("fast-tiny")):
        with refused("the model:"):
            export_onnx(config.build(make_spec()), (16, 16), tmp_path / "onnx")
        assert not (tmp_path / "onnx").exists()
