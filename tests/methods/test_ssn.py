"""SSN: the Gaussian of the logits, the likelihood of a mask, and the steps in which the mean learns alone."""

import math
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch.distributions import Bernoulli, LowRankMultivariateNormal

from berdiff.diffusion.random import sample_generators
from berdiff.methods.ssn import SSN
from berdiff.methods.ssn.network import LowRank
from berdiff.methods.ssn.segmenter import LowRankSegmenter, log_likelihood
from fakes import generator, make_spec


def low_rank(K=2, H=1, W=3, rank=2) -> LowRank:
    g = generator()
    mean, log_sigma = torch.randn(1, K, H, W, generator=g), 0.5 * torch.randn(1, K, H, W, generator=g)
    return LowRank(mean, log_sigma, torch.randn(1, rank, K, H, W, generator=g))


def test_many_draws_have_the_covariance_of_factor_and_diagonal():
    """27 figures, each within 5.5 standard errors: a false alarm in a million seeds. Targets move together too."""
    gaussian, N, g = low_rank(), 20_000, generator(1)
    x = gaussian.draw(torch.randn(1, N, 2, generator=g), torch.randn(1, N, 2, 1, 3, generator=g))
    assert x.shape == (1, N, 2, 1, 3)
    x = x.reshape(N, 6)
    factor, sigma = gaussian.factor.reshape(2, 6).T, gaussian.log_sigma.exp().flatten()
    exact = LowRankMultivariateNormal(gaussian.mean.flatten(), factor, sigma**2)
    covariance = exact.covariance_matrix
    torch.testing.assert_close(covariance, factor @ factor.T + torch.diag(sigma**2))
    spread = torch.sqrt((covariance.diagonal().outer(covariance.diagonal()) + covariance**2) / N)
    assert bool(((x.T.cov() - covariance).abs() < 5.5 * spread).all())
    assert bool(((x.mean(0) - exact.mean).abs() < 5.5 * (covariance.diagonal() / N).sqrt()).all())
    assert float(covariance.triu(1).abs().max()) > 1, "and there is something to see"


def test_without_a_factor_pixels_are_independent():
    """Each logit then depends on its own number alone, to the bit."""
    gaussian = low_rank()
    gaussian = gaussian._replace(factor=torch.zeros_like(gaussian.factor))
    own = torch.randn(1, 4, 2, 1, 3, generator=generator(1))
    drawn = gaussian.draw(torch.randn(1, 4, 2, generator=generator(2)), own)
    assert torch.equal(drawn, gaussian.mean.unsqueeze(1) + gaussian.log_sigma.exp().unsqueeze(1) * own)


def test_the_likelihood_against_brute_force():
    """The mean over draws of the product over pixels, mask by mask; over all masks it sums to 1."""
    D, S = 4, 7
    logits = 2 * torch.randn(2, S, D, generator=generator(), dtype=torch.float64)
    masks = torch.tensor(list(product((0.0, 1.0), repeat=D))).expand(2, -1, -1)
    found = log_likelihood(logits, masks)
    assert found.shape == (2, 16)
    for b in range(2):
        for r in range(16):
            p = [Bernoulli(logits=logits[b, s]).log_prob(masks[b, r].double()).sum().exp() for s in range(S)]
            assert float(found[b, r]) == pytest.approx(math.log(sum(p) / S), abs=1e-5)
    torch.testing.assert_close(found.exp().sum(1), torch.ones(2))


def test_many_draws_approach_the_integral():
    """P(y = 1) of one pixel: the mean of the sigmoid under the Gaussian, by quadrature; within 5 standard errors."""
    gaussian, N, g = low_rank(1, 1, 1, 3), 40_000, generator(1)
    logits = gaussian.draw(torch.randn(1, N, 3, generator=g), torch.randn(1, N, 1, 1, 1, generator=g)).flatten(2)
    scale = float((gaussian.factor.square().sum() + gaussian.log_sigma.mul(2).exp()).sqrt())
    e = torch.linspace(-8, 8, 4001, dtype=torch.float64)
    weight = torch.exp(-(e**2) / 2) / math.sqrt(2 * math.pi) * (e[1] - e[0])
    p = (float(gaussian.mean) + scale * e).sigmoid()
    exact, variance = float((weight * p).sum()), float((weight * p**2).sum()) - float((weight * p).sum()) ** 2
    found = float(log_likelihood(logits, torch.ones(1, 1, 1)).exp())
    assert abs(found - exact) < 5 * math.sqrt(variance / N)


def test_the_likelihood_is_not_rounded_by_autocast():
    logits = 5 * torch.randn(1, 3, 4096, generator=generator())
    y = (torch.rand(1, 2, 4096, generator=generator(1)) > 0.5).to(torch.uint8)
    exact = log_likelihood(logits, y)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(log_likelihood(logits, y), exact, rtol=0, atol=0)


def build(**settings) -> LowRankSegmenter:
    torch.manual_seed(0)
    return SSN("tiny", **settings).build(make_spec((8, 8)))


def test_the_mean_learns_alone_first_and_no_parameter_is_ever_unused():
    model = build(mean_steps=2, masks_per_image=4)
    image = torch.rand(2, 1, 8, 8, generator=generator())
    masks = (torch.rand(2, 4, 1, 8, 8, generator=generator(1)) > 0.7).to(torch.uint8)
    for step in range(4):
        model.zero_grad()
        terms = model.loss(image, masks, generator(step))
        terms["loss"].backward()
        assert all(p.grad is not None for p in model.parameters())
        factor, mean = model.network.factor.weight.grad, model.network.mean.weight.grad
        assert factor is not None
        assert bool(factor.any()) == (step >= 2)
        assert mean is not None
        assert bool(mean.any())
        if step < 2:
            logits = model.network.encode(image).mean.unsqueeze(1).expand(-1, 4, -1, -1, -1)
            plain = F.binary_cross_entropy_with_logits(logits, masks.float())
            torch.testing.assert_close(terms["loss"], plain)
        model.after_step(terms)
    twin = build(mean_steps=2, masks_per_image=4)
    twin.load_state_dict(model.state_dict())
    assert int(twin.steps) == 4, "a resumed training knows where it was"


def test_the_loss_is_the_likelihood_per_pixel_with_the_generators_own_numbers():
    model = build(draws=3)
    image = torch.rand(2, 1, 8, 8, generator=generator())
    masks = (torch.rand(2, 1, 1, 8, 8, generator=generator(1)) > 0.5).to(torch.uint8)
    terms = model.loss(image, masks, sample_generators(0, ["a", "b"], 1))
    total, distribution = 0.0, model.network.encode(image)
    for i, g in enumerate(sample_generators(0, ["a", "b"], 1)):
        torch.rand(1, generator=g)  # the rater: there is only one
        shared, own = torch.randn(3, 10, generator=g), torch.randn(3, 1, 8, 8, generator=g)
        p = []
        for e, noise in zip(shared, own, strict=True):
            logits = distribution.mean[i] + torch.einsum("r,rkhw->khw", e, distribution.factor[i])
            logits = logits + distribution.log_sigma[i].exp() * noise
            p.append(Bernoulli(logits=logits).log_prob(masks[i, 0].float()).sum())
        total += torch.stack(p).logsumexp(0) - math.log(3)
    torch.testing.assert_close(terms["loss"], -total / 2 / 64)


@pytest.mark.parametrize(("begin", "low", "high"), [(None, 0.0, 0.05), (0.0, 0.2, 1.0)])
def test_the_background_stays_empty_since_the_mean_begins_at_rare_marks(begin: float | None, low: float, high: float):
    """A square that two of four raters mark: over four seeds .003 to .013 of 400 masks were full; from a mean of 0,
    whose background the draws spread together, .25 to .37."""
    torch.manual_seed(0)
    model, g = SSN("tiny", masks_per_image=4).build(make_spec((32, 32))), generator()
    if begin is not None:
        torch.nn.init.constant_(model.network.mean.bias, begin)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    image = F.pad(torch.ones(1, 1, 4, 4), [14] * 4)
    masks = torch.stack([image, image, 0 * image, 0 * image], 1).to(torch.uint8)
    for _ in range(100):
        optimizer.zero_grad()
        model.loss((image + 0.1 * torch.rand(image.shape, generator=g)).clamp(0, 1), masks, g)["loss"].backward()
        optimizer.step()
    full = float((model.sample(image, 400, g).float().mean((2, 3, 4)) > 0.5).float().mean())
    assert low <= full <= high
