"""JPro. U-net: flows, the divergence of one sample, teacher forcing, ancestral sampling."""

import torch
from torch import nn
from torch.autograd.functional import jacobian
from torch.distributions import Independent, Normal

from berdiff.methods.jprounet.network import Chain, JProUNet
from berdiff.networks.latent import Gaussian, kl

B, N, Z = 2, 3, 4


def network(channels=1, targets=1, couplings=2, random=True) -> JProUNet:
    """`random`: flows that are not the identity, as after training."""
    torch.manual_seed(0)
    net = JProUNet("tiny", channels, targets, Z, couplings)
    if random:
        for chain in (net.prior, net.posterior):
            for p in chain.flows.parameters():
                nn.init.normal_(p, std=0.5)
    return net.eval()


def data(channels=1, targets=1, masks=N):
    generator = torch.Generator().manual_seed(1)
    image = torch.rand(B, channels, 16, 16, generator=generator)
    return image, (torch.rand(B, masks, targets, 16, 16, generator=generator) > 0.5).float()


class Given:
    """Noise that was drawn before, so that some of it can be changed."""

    def __init__(self, seed=0, masks=N):
        generator = torch.Generator().manual_seed(seed)
        self.parts = [torch.randn(B, masks, Z, generator=generator) for _ in range(3)]

    def noise(self):
        left = iter(self.parts)

        def draw(shape):
            part = next(left)
            assert part.shape == shape
            return part

        return draw


def watched(net: JProUNet, monkeypatch):
    """(what conditioned the prior, what conditioned the posterior, what was decoded), each level by level."""
    seen: tuple[list, list, list] = ([], [], [])
    for chain, into in ((net.prior, seen[0]), (net.posterior, seen[1])):
        at = chain.at

        def watch(level, features, z, at=at, into=into):
            into.append(z)
            return at(level, features, z)

        monkeypatch.setattr(chain, "at", watch)
    decode = net.decode
    monkeypatch.setattr(net, "decode", lambda features, zs: seen[2].extend(zs) or decode(features, zs))
    return seen


# --- the flow --------------------------------------------------------------------------------------------------------


def test_density_through_the_flow_is_the_change_of_variables():
    """Against autograd's Jacobian and torch.distributions; what was drawn has the density that drawing it said."""
    chain, generator = network().prior, torch.Generator().manual_seed(0)
    base = Gaussian(torch.randn(1, 1, Z, generator=generator), torch.randn(1, 1, Z, generator=generator) / 2)
    normal = Independent(Normal(base.mean, base.log_sigma.exp()), 1)
    for level, flow in enumerate(chain.flows):
        noise = torch.randn(1, 1, Z, generator=generator)
        z, log_q = chain.draw(level, base, noise)
        e = base.draw(noise)
        det = jacobian(lambda e, flow=flow: flow(e)[0], e.flatten()).slogdet().logabsdet
        assert abs(float(det)) > 0.01, "a flow of volume 1 would not test it"
        torch.testing.assert_close(log_q, normal.log_prob(e) - det, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(flow.inverse(z)[0], e, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(chain.log_density(level, base, z), log_q, rtol=1e-4, atol=1e-4)


def test_the_density_integrates_to_one():
    """Importance sampling from a wide Gaussian: 40,000 draws, five standard errors."""
    torch.manual_seed(0)
    chain = Chain((8, 16), 2, couplings=2)
    for p in chain.flows.parameters():
        nn.init.normal_(p, std=0.3)
    base = Gaussian(torch.tensor([[[0.3, -0.2]]]), torch.tensor([[[0.1, -0.3]]]))
    wide = Independent(Normal(torch.zeros(2), 4 * torch.ones(2)), 1)
    z = wide.sample((1, 40_000))
    ratio = (chain.log_density(0, base, z).detach() - wide.log_prob(z)).exp()
    assert abs(float(ratio.mean()) - 1) < 5 * float(ratio.std()) / 200


def test_the_one_sample_divergence_has_the_closed_forms_mean(monkeypatch):
    """Without flows (they begin as the identity). 1,000 draws, 3 levels x 2 images: |t| > 5.2 once in 10^6 runs."""
    net, masks = network(random=False), 1000
    image, y = data(masks=1)
    y = y.expand(-1, masks, -1, -1, -1)
    zs: list[torch.Tensor] = []
    monkeypatch.setattr(net, "decode", lambda features, given: zs.extend(given) or (torch.zeros(0), torch.zeros(0)))
    with torch.no_grad():
        features, of_y = net.encode(image), net.mask_encoder(2 * torch.cat([image, y[:, 0]], 1) - 1)
        _, _, found = net.infer_jointly(features, image, y, Given(masks=masks).noise())
        for level in range(3):
            given = zs[level - 1] if level else None
            q, p = net.posterior.at(level, of_y, given), net.prior.at(level, features, given)
            error = found[level] - kl(q, p).sum(-1)
            assert float(kl(q, p).sum(-1).mean()) > 0.01
            t = error.mean(1) / (error.std(1) / masks**0.5)
            assert float(t.abs().max()) < 5.2


# --- training --------------------------------------------------------------------------------------------------------


def test_a_change_in_a_fine_z_leaves_coarser_divergences_bit_equal():
    net, (image, y) = network(), data()
    features = net.encode(image)
    reference = Given()
    _, _, before = net.infer_jointly(features, image, y, reference.noise())
    for level in range(3):
        other = Given()
        other.parts[level] = other.parts[level] + 1
        _, _, after = net.infer_jointly(features, image, y, other.noise())
        assert [torch.equal(a, b) for a, b in zip(before, after, strict=True)] == [i < level for i in range(3)]


def test_prior_and_posterior_are_given_the_posteriors_latents_and_these_are_decoded(monkeypatch):
    net, (image, y) = network(), data()
    of_prior, of_posterior, decoded = watched(net, monkeypatch)
    net.infer(net.encode(image), image, y, Given().noise())
    assert of_prior[0] is None
    assert of_posterior[0] is None
    for level in range(1, 3):
        assert torch.equal(of_prior[level], decoded[level - 1])
        assert torch.equal(of_posterior[level].reshape(B, N, Z), decoded[level - 1])


def test_with_equal_distributions_the_divergence_is_zero():
    """The posterior's chain is the prior's, on the same features."""
    net = network()
    net.posterior = net.prior
    image, y = data()
    features = net.encode(image)
    net.mask_encoder.forward = lambda x: tuple(level.repeat_interleave(N, 0) for level in features)
    _, _, found = net.infer_jointly(features, image, y, Given().noise())
    for part in found:
        torch.testing.assert_close(part, torch.zeros(B, N), rtol=0, atol=1e-4)


# --- sampling --------------------------------------------------------------------------------------------------------


def test_sampling_is_ancestral(monkeypatch):
    """The latents that condition are the latents decoded, sample by sample."""
    net, (image, _) = network(), data()
    of_prior, _, decoded = watched(net, monkeypatch)
    net.generate(net.encode(image), N, Given().noise())
    assert [z.shape for z in decoded] == [(B, N, Z)] * 3
    assert of_prior[0] is None
    assert all(torch.equal(of_prior[level], decoded[level - 1]) for level in (1, 2))
    assert not torch.equal(decoded[0][:, 0], decoded[0][:, 1]), "each sample has its own chain"


def test_a_swapped_z_of_any_level_changes_the_mask_and_the_image():
    net, (image, _) = network(), data()
    features = net.encode(image)
    zs = net.draw_prior(features, N, Given().noise())
    before = net.decode(features, zs)
    for level in range(3):
        swapped = [z.flip(1) if i == level else z for i, z in enumerate(zs)]
        after = net.decode(features, swapped)
        for a, b in zip(before, after, strict=True):
            assert (a[:, 0] - b[:, 0]).abs().max() > 1e-4
            torch.testing.assert_close(a[:, 1], b[:, 1], rtol=1e-5, atol=1e-6)  # the middle one stays
