"""MoSE: experts are drawn as the gate says, the loss carries every rater to the samples, the cap ends in time."""

import math

import pytest
import torch

from berdiff import schema
from berdiff.diffusion.random import sample_generators
from berdiff.methods.mose import MoSE
from berdiff.methods.mose.network import PRESETS
from berdiff.methods.mose.segmenter import MixtureSegmenter
from berdiff.methods.mose.transport import greedy_coupling, soft_iou_cost
from berdiff.networks.pyramid import Norm, Sizes
from fakes import generator, make_spec
from refusals import refused


def build(**settings) -> MixtureSegmenter:
    torch.manual_seed(0)
    model = MoSE("tiny", **settings).build(make_spec((8, 8)))
    torch.nn.init.normal_(model.network.gate[-1].weight, std=8)
    return model


def batch(B=2, R=4):
    image = torch.rand(B, 1, 8, 8, generator=generator())
    return image, (torch.rand(B, R, 1, 8, 8, generator=generator(1)) > 0.6).to(torch.uint8)


def test_experts_are_drawn_as_often_as_the_gate_says():
    """2,000 masks, each expert within 5 standard errors; an expert is known by a mean far from all others."""
    model, seen = build(), []
    model.network.mean.data.copy_(torch.tensor([0.0, 100, 200, 300]).unsqueeze(1))
    decode = model.network.decode
    model.network.decode = lambda maps, z: seen.append(z) or decode(maps, z)  # type: ignore[method-assign]
    image, n = torch.rand(1, 1, 8, 8, generator=generator()), 2000
    gate = model.network.encode(image)[1].exp()[0].tolist()
    assert max(gate) - min(gate) > 0.1
    model.masks_per_pass = 500
    model.sample(image, n, generator(3))
    z = torch.cat(seen, 1).flatten() / 100
    assert bool(((z - z.round()).abs() < 0.02).all()), "within its Gaussian, whose sigma is 1/8"
    for expert, p in enumerate(gate):
        share = float((z.round() == expert).float().mean())
        assert abs(share - p) < 5 * math.sqrt(p * (1 - p) / n)


def test_the_loss_written_out():
    model, (image, masks) = build(samples_per_expert=2, beta=0.5), batch()
    terms = model.loss(image, masks, sample_generators(0, ["a", "b"], 1))
    transport = kl = 0.0
    for i, g in enumerate(sample_generators(0, ["a", "b"], 1)):
        maps, log_gate = model.network.encode(image[i : i + 1])
        noise = torch.randn(8, generator=g)
        mass = [0.0] * 4
        costs = []
        for number in range(8):
            expert = number // 2
            z = model.network.mean[expert] + model.network.log_sigma[expert].exp() * noise[number]
            p = model.network.decode(maps, z.reshape(1, 1, 1)).sigmoid()
            costs.append(soft_iou_cost(p, masks[i : i + 1])[0, 0])
        cost = torch.stack(costs)  # (samples, raters); with cap 1 each rater goes to its nearest sample
        for rater in range(4):
            nearest = int(cost[:, rater].argmin())
            transport += cost[nearest, rater] / 4 / 2
            mass[nearest // 2] += 0.25
        kl += sum(m * (math.log(m) - log_gate[0, e]) for e, m in enumerate(mass) if m) / 2
    torch.testing.assert_close(terms["transport"], transport)
    torch.testing.assert_close(terms["kl"], kl)
    torch.testing.assert_close(terms["loss"], transport + 0.5 * kl)


def test_the_cap_ends_after_its_steps_and_a_resumed_run_knows():
    model, (image, masks) = build(samples_per_expert=1, cap=0.25, cap_steps=1), batch()
    capped = model.loss(image, masks, generator(5))
    model.after_step(capped)
    free = model.loss(image, masks, generator(5))
    features, _ = model.network.encode(image)
    z = model.network.latents(torch.arange(4).expand(2, -1), torch.randn(2, 4, 1, generator=generator(5)))
    cost = soft_iou_cost(model.network.decode(features, z).sigmoid(), masks)
    for terms, cap in ((capped, 0.25), (free, 1.0)):
        torch.testing.assert_close(terms["transport"], (greedy_coupling(cost, cap) * cost).sum((1, 2)).mean())
    assert capped["transport"].item() > free["transport"].item() + 1e-4
    twin = build(samples_per_expert=1, cap=0.25, cap_steps=1)
    twin.load_state_dict(model.state_dict())
    assert int(twin.steps) == 1


def test_every_parameter_learns_and_the_gate_from_its_divergence_alone():
    model, (image, masks) = build(), batch()
    terms = model.loss(image, masks, generator())
    terms["transport"].backward(retain_graph=True)
    assert all(p.grad is None for p in model.network.gate.parameters())
    terms["loss"].backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in model.network.gate.parameters())
    assert all(p.grad is not None for p in model.parameters())


def test_one_expert_and_a_cap_that_leaves_no_room():
    model = build(experts=1, samples_per_expert=3)
    image, masks = batch()
    assert model.loss(image, masks, generator())["kl"].item() == pytest.approx(0, abs=1e-6)
    assert model.sample(image, 2, generator()).shape == (2, 2, 1, 8, 8)
    with refused("--model.cap:"):
        schema.check(MoSE(experts=2, samples_per_expert=2, cap=0.2), MoSE, lambda place: f"--model.{place}")


@pytest.mark.parametrize(("norm", "apart"), [("batch", True), ("group", False)])
def test_the_coarse_features_tell_images_apart(monkeypatch, norm: Norm, apart: bool):
    """The gate sees nothing else. With GroupNorm the constants of the first steps drown what differs (why, in
    docs/methods/mose.md), so this also tells when BatchNorm is not needed any more."""
    assert PRESETS["small"].norm == PRESETS["paper"].norm == "batch"
    monkeypatch.setitem(PRESETS, "tiny", Sizes((8, 16, 16), convs=2, norm=norm))
    torch.manual_seed(0)
    model, g = MoSE("tiny", samples_per_expert=2).build(make_spec((32, 32))), generator()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    masks = torch.zeros(8, 4, 1, 32, 32, dtype=torch.uint8)
    masks[::2, :, :, 13:19, 13:19] = 1  # half of the images show something, which everyone marks

    def images() -> torch.Tensor:
        return 0.5 + 0.1 * torch.randn(8, 1, 32, 32, generator=g) + 0.3 * masks[:, 0]

    for _ in range(50):
        terms = model.loss(images(), masks, g)
        optimizer.zero_grad()
        terms["loss"].backward()
        optimizer.step()
        model.after_step(terms)
    with torch.no_grad():
        pooled = model.eval().network.unet(images() - 0.5)[0].mean((2, 3))
    assert (float(pooled.std(0).mean() / pooled.mean()) > 0.05) == apart
