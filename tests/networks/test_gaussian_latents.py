"""Diagonal Gaussians of latents: their divergence and draws against torch.distributions, heads, couplings, joining."""

import pytest
import torch
import torch.nn.functional as F
from torch.distributions import Normal, kl_divergence

from berdiff.networks.inject import FiLM, TileConv, tile
from berdiff.networks.latent import LOG_SIGMA, Couplings, Gaussian, MapHead, VectorHead, beside, bounded, kl
from refusals import refused


def gaussian(*shape: int) -> Gaussian:
    return Gaussian(torch.randn(shape, dtype=torch.float64), torch.randn(shape, dtype=torch.float64))


def test_kl_is_that_of_torch_and_0_for_the_same_distribution():
    q, p = gaussian(3, 4, 5), gaussian(3, 1, 5)
    theirs = kl_divergence(Normal(q.mean, q.log_sigma.exp()), Normal(p.mean, p.log_sigma.exp()))
    torch.testing.assert_close(kl(q, p), theirs)
    assert not kl(q, q).any(), "exactly 0"
    assert (kl(q, p) > 0).all()


def test_a_draw_is_the_noise_on_the_scale_of_the_gaussian():
    q, noise = gaussian(2, 3), torch.randn(2, 3, dtype=torch.float64)
    z = q.draw(noise)
    torch.testing.assert_close(Normal(q.mean, q.log_sigma.exp()).cdf(z), Normal(0.0, 1.0).cdf(noise))


def test_log_sigma_is_bounded_smooth_and_unchanged_near_0():
    raw = torch.tensor([-1e30, -100, -0.01, 0, 0.01, 100, 1e30], requires_grad=True)
    mean, log_sigma = bounded(torch.zeros(7), raw)
    assert (log_sigma.min(), log_sigma.max()) == LOG_SIGMA
    torch.testing.assert_close(log_sigma[2:5], raw[2:5], atol=1e-6, rtol=0)
    kl(Gaussian(mean, log_sigma), Gaussian(mean + 100, -log_sigma)).sum().backward()
    assert torch.isfinite(raw.grad).all()
    assert raw.grad[3] != 0, "the two halves meet with slope 1"
    half = bounded(torch.zeros(1, dtype=torch.bfloat16), torch.ones(1, dtype=torch.bfloat16))
    assert half.mean.dtype == half.log_sigma.dtype == torch.float32


def test_heads():
    x = torch.randn(2, 6, 4, 4)
    vector, of_map = VectorHead(6, 3), MapHead(6, 2)
    shifted = x.roll((1, 2), (2, 3))
    assert vector(x).mean.shape == (2, 3)
    torch.testing.assert_close(vector(x), vector(shifted)), "of the whole image"
    assert of_map(x).log_sigma.shape == (2, 2, 4, 4)
    torch.testing.assert_close(of_map(x).mean.roll((1, 2), (2, 3)), of_map(shifted).mean)


def test_couplings_are_inverted_and_know_their_determinant():
    torch.manual_seed(0)
    flow, z = Couplings(6, hidden=5), torch.randn(4, 6)
    out, log_det = flow(z)
    assert torch.equal(out, z), "the identity at first"
    assert log_det == 0
    for p in flow.parameters():
        torch.nn.init.normal_(p, std=0.5)
    out, log_det = flow(z)
    assert (out - z).abs().min() > 1e-4
    back, inverse_det = flow.inverse(out)
    torch.testing.assert_close(back, z, atol=1e-4, rtol=1e-4)
    assert inverse_det == -log_det
    jacobian = torch.autograd.functional.jacobian(lambda one: flow(one)[0], z[0])
    assert torch.linalg.slogdet(jacobian).logabsdet.item() == pytest.approx(log_det.item(), abs=1e-4)
    with refused("dims:", error=ValueError):
        Couplings(5)


# --- joining latents and features ------------------------------------------------------------------------------------


def test_z_is_at_every_pixel_beside_the_features_of_its_image():
    features, z = torch.randn(2, 4, 3, 5), torch.randn(2, 3, 2)
    tiled = tile(features, z)
    assert tiled.shape == (6, 6, 3, 5)
    for b in range(2):
        for n in range(3):
            assert torch.equal(tiled[3 * b + n, :4], features[b])
            assert (tiled[3 * b + n, 4:] == z[b, n, :, None, None]).all()


def test_a_convolution_of_tiles_without_tiling():
    features, z = torch.randn(2, 4, 3, 5), torch.randn(2, 3, 2)
    layer = TileConv(4, 2, 7)
    expected = F.conv2d(tile(features, z), layer.conv.weight, layer.conv.bias)
    torch.testing.assert_close(layer(features, z), expected)


def test_film_scales_and_shifts_channels():
    features, z = torch.randn(2, 4, 3, 5), torch.randn(2, 3, 2)
    layer = FiLM(2, 4)
    found = layer(features, z)
    assert found.shape == (6, 4, 3, 5)
    gain, shift = layer.linear(z[1, 2]).chunk(2)
    torch.testing.assert_close(found[5], features[1] * (1 + gain[:, None, None]) + shift[:, None, None])


def test_a_posterior_sees_each_mask_beside_its_image():
    image, y = torch.rand(2, 1, 4, 4), torch.randint(2, (2, 3, 2, 4, 4))
    seen = beside(image, y)
    assert seen.shape == (6, 3, 4, 4)
    assert torch.equal(seen[4], torch.cat([image[1], y[1, 1].float()]))
