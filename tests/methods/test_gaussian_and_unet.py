"""Gaussian diffusion and the plain U-net: exact where the truth is known, and the same contract as BerDiff."""

import math

import pytest
import torch
from ten_lines import TenLines
from torch import nn

from berdiff.diffusion import gaussian
from berdiff.diffusion.sampling import Sampler, sample_generators
from berdiff.diffusion.schedule import linear
from berdiff.errors import InputError
from berdiff.evaluation.evaluate import Settings
from berdiff.evaluation.search import search
from berdiff.methods.export import export_onnx
from berdiff.methods.folder import load, save
from berdiff.methods.gaussian import GaussianDiff
from berdiff.methods.segmenter import Segmenter
from berdiff.methods.unet import PlainUNet
from berdiff.networks.build import make_network


class Exact(TenLines):
    """The best estimate there is for independent pixels that are 1 with the probability the image shows."""

    def __init__(self, target: str) -> None:
        super().__init__()
        self.target, self.schedule = target, linear(1000)

    def denoise(self, y_t, t, features):
        alpha_bar = self.schedule.at(t, y_t).to(y_t.dtype)
        p = features.unsqueeze(1)
        y0 = torch.tanh(alpha_bar.sqrt() * y_t / (1 - alpha_bar) + torch.logit(p) / 2)  # E[y0 | y_t], by Bayes
        return y0 if self.target == "mask" else (y_t - alpha_bar.sqrt() * y0) / (1 - alpha_bar).sqrt()


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def real(kind: str, channels: int = 1):
    """A method on the smallest real network, with weights that do something."""
    torch.manual_seed(0)
    net = make_network("fast-tiny", image_channels=channels)
    for p in net.parameters():
        nn.init.normal_(p, std=0.1)
    if kind == "unet":
        return PlainUNet(net, images_per_pass=4).eval()
    return GaussianDiff(net, linear(50), sampler=Sampler(steps=(50, 20, 5), sigma=0.0), masks_per_pass=4).eval()


@pytest.mark.parametrize("target", ["noise", "mask"])
@pytest.mark.parametrize(
    "sampler", [Sampler(steps=250, sigma=0.0), Sampler(steps=250), Sampler(steps=250, rule="ddpm")]
)
def test_with_the_exact_estimate_the_samples_have_the_true_probability(target, sampler):
    """Each of 4 x 1,600 pixels of a probability: the share of ones within 5 standard errors and the grid's own .01."""
    model = GaussianDiff(Exact(target), linear(1000), target=target)
    for p in (0.1, 0.5, 0.85):
        share = model.sample(torch.full((1, 1, 40, 40), p), 4, generator(1), sampler).float().mean()
        assert abs(float(share) - p) < 5 * math.sqrt(p * (1 - p) / 6400) + 0.01


def test_ddim_without_noise_depends_on_y_T_alone_and_is_the_default():
    model = GaussianDiff(Exact("noise"), linear(1000))
    assert model.sampler == Sampler(sigma=0.0)
    image = torch.full((1, 1, 12, 12), 0.4)
    y_T = torch.randn(1, 1, 1, 12, 12, generator=generator(7))
    by_hand = y_T
    for t, s in zip(range(1000, 0, -100), range(900, -1, -100), strict=True):
        eps = model.network.denoise(by_hand, torch.tensor([[t]]), image)
        alpha_t, alpha_s = (float(model.schedule.alpha_bar[i]) for i in (t, s))
        y0 = ((by_hand - math.sqrt(1 - alpha_t) * eps) / math.sqrt(alpha_t)).clamp(-1, 1)
        eps = (by_hand - math.sqrt(alpha_t) * y0) / math.sqrt(1 - alpha_t)
        by_hand = math.sqrt(alpha_s) * y0 + math.sqrt(1 - alpha_s) * eps
    drawn = model.sample(image, 1, [generator(7)])
    assert (drawn == (by_hand > 0)).all()
    assert 0 < drawn.float().mean() < 1


@pytest.mark.parametrize("target", ["noise", "mask"])
def test_gaussian_loss_written_out(target):
    torch.manual_seed(0)
    model = GaussianDiff(TenLines(), linear(1000), target=target)
    image, masks = torch.rand(1, 1, 8, 8), (torch.rand(1, 1, 1, 8, 8) > 0.5).float()
    g = generator(5)
    torch.rand(1, 1, generator=g)  # the reader: there is only one
    t = 1 + (torch.rand(1, 1, generator=g) * 1000).long()
    eps = torch.randn(64, generator=g).reshape(1, 1, 1, 8, 8)
    alpha_bar = float(model.schedule.alpha_bar[int(t)])
    signal = torch.where(masks == 1, 1.0, -1.0)
    y_t = math.sqrt(alpha_bar) * signal + math.sqrt(1 - alpha_bar) * eps
    error = model.network.denoise(y_t, t, image) - (eps if target == "noise" else signal)
    terms = model.loss(image, masks, generator(5))
    assert terms.keys() == {"loss", "mse"}
    torch.testing.assert_close(terms["loss"], error.square().mean())


def test_noise_and_signal_estimates_are_each_others_inverse():
    schedule, y_t, y0 = linear(1000), torch.randn(4, 5), torch.rand(4, 5) * 2 - 1
    for t in (1, 30, 1000):
        eps = gaussian.predict_eps(schedule, y_t, y0, t)
        torch.testing.assert_close(gaussian.predict_y0(schedule, y_t, eps, t), y0, rtol=0, atol=1e-4)


def test_unet_says_what_the_network_says_of_the_image_alone():
    torch.manual_seed(0)
    model = PlainUNet(TenLines())
    image = torch.rand(2, 1, 8, 8)
    logits = torch.conv2d(image, model.network.conv.weight[:, 1:2], model.network.conv.bias, padding=1)
    samples = model.sample(image, 3, generator())
    assert samples.shape == (2, 3, 1, 8, 8)
    assert samples.dtype == torch.uint8
    for i in range(3):
        assert (samples[:, i] == (logits > 0)).all()
    masks = (torch.rand(2, 1, 1, 8, 8) > 0.5).float()
    p = logits.sigmoid()
    bce = -(masks[:, 0] * p.log() + (1 - masks[:, 0]) * (1 - p).log()).mean()
    torch.testing.assert_close(model.loss(image, masks, generator())["loss"], bce)


@pytest.mark.parametrize("model", [GaussianDiff(TenLines(), linear(1000)), PlainUNet(TenLines())])
def test_loss_falls_on_a_toy(model):
    assert isinstance(model, Segmenter)
    torch.manual_seed(0)
    masks = torch.zeros(8, 4, 1, 16, 16)
    masks[..., 4:12, 4:12] = 1
    image = torch.rand(8, 1, 16, 16) / 2 + masks[:, 0] / 2
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    losses = []
    for step in range(60):
        loss = model.loss(image, masks, generator(step % 3))["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert sum(losses[-3:]) < 0.7 * sum(losses[:3])


@pytest.mark.parametrize("kind", ["gaussian", "unet"])
def test_a_sample_is_the_same_whatever_batch_it_is_drawn_in(kind):
    model = real(kind)
    image, names = torch.rand(5, 1, 16, 16), list("abcde")
    whole = model.sample(image, 3, sample_generators(0, names, 3))
    assert whole.float().var() > 0
    for part in ([0], [4, 1], [2, 0, 3]):
        drawn = model.sample(image[part], 3, sample_generators(0, [names[i] for i in part], 3))
        torch.testing.assert_close(drawn, whole[part], rtol=0, atol=0)
    assert (model.sample(image, 2, sample_generators(0, names, 2)) == whole[:, :2]).all()
    assert kind == "unet" or (whole[:, 0] != whole[:, 1]).any()


@pytest.mark.parametrize("kind", ["gaussian", "unet"])
def test_round_trip(kind, tmp_path):
    model = real(kind, channels=2)
    save(model, tmp_path / "model", {"data": "made"})
    again = load(tmp_path / "model")
    assert again.config() == model.config()
    assert again.about == {"data": "made"}
    image = torch.rand(2, 2, 16, 16)
    one, two = (m.sample(image, 3, sample_generators(0, ["a", "b"], 3)) for m in (model, again))
    torch.testing.assert_close(one, two, rtol=0, atol=0)


def test_what_belongs_to_the_other_kernel_is_refused():
    with pytest.raises(ValueError, match="target: expected one of noise, mask for Gaussian diffusion, found 'prior'"):
        GaussianDiff(TenLines(), linear(10), target="prior")  # type: ignore[arg-type]
    model, image = GaussianDiff(TenLines(), linear(10)), torch.rand(1, 1, 8, 8)
    with pytest.raises(ValueError, match="posterior: expected 'soft' for Gaussian diffusion, found 'marginal'"):
        model.sample(image, 1, generator(), Sampler(steps=2, posterior="marginal"))
    with pytest.raises(ValueError, match="last_step: expected 'threshold' for Gaussian diffusion, found 'sample'"):
        model.sample(image, 1, generator(), Sampler(steps=2, last_step="sample"))
    with pytest.raises(ValueError, match="latent: expected 'pixel' for Gaussian diffusion, found 'shared'"):
        model.sample(image, 1, generator(), Sampler(steps=2, latent="shared"))


@pytest.mark.parametrize("kind", ["gaussian", "unet"])
def test_export_describes_bernoulli_steps_only(kind, tmp_path):
    with pytest.raises(InputError, match=f"the model: expected the method berdiff, found {kind}"):
        export_onnx(real(kind), (16, 16), tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()


def test_a_method_without_steps_has_no_sampler_to_search(tmp_path):
    with pytest.raises(InputError, match="the model: expected a diffusion method"):
        search(real("unet"), None, tmp_path, Settings(), [2])  # type: ignore[arg-type]


@pytest.mark.parametrize("model", [GaussianDiff(TenLines(), linear(10)), PlainUNet(TenLines())])
def test_bad_tensors_are_named(model):
    image, masks = torch.rand(2, 1, 8, 8), torch.zeros(2, 4, 1, 8, 8)
    with pytest.raises(ValueError, match=r"masks: expected .* found \(2, 1, 8, 8\)"):
        model.loss(image, masks[:, 0], generator())
    with pytest.raises(ValueError, match=r"masks: expected only the values 0 and 1"):
        model.loss(image, masks + 3, generator())
    with pytest.raises(ValueError, match="n: expected at least 1 sample, found 0"):
        model.sample(image, 0, generator())
    with pytest.raises(ValueError, match="for each of 2 x 3 samples, found 5"):
        model.sample(image, 3, sample_generators(0, ["a"], 5))
