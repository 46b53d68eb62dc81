"""The hurdle: its masks are a mixture, pi(x) empty ones and the rest not; its loss teaches both parts apart."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from berdiff.diffusion.kernels.bernoulli import Bernoulli
from berdiff.diffusion.losses import PREDICTIONS
from berdiff.diffusion.random import sample_generators
from berdiff.diffusion.sampler import Sampler
from berdiff.diffusion.sampling import Step
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.berdiff.hurdle import DROPOUT, Encoded, GatedDenoiser, HurdleSegmenter, at_level, pick_marked
from berdiff.methods.families.diffusion import DiffusionSegmenter
from berdiff.methods.families.encoded import EncodedSegmenter
from diffusion.brute_force import assert_fits, assert_proportion
from fakes import generator, make_spec, volume_generators
from refusals import refused

CONFIG = BerDiff("fast-tiny", T=50, schedule="power2.5", prediction="mask", hurdle=0.05, sampler=Sampler(steps=2))
LAST = (Sampler(2), Sampler(2, noise="shared", last_step="sample"))


def built(config: BerDiff = CONFIG, pi: float = 0.3) -> HurdleSegmenter:
    """Weights that do something, and a pi of about this much that differs between images."""
    torch.manual_seed(0)
    model = config.build(make_spec())
    assert isinstance(model, HurdleSegmenter)
    for p in model.parameters():
        if not p.any():
            nn.init.normal_(p, std=0.2)
    nn.init.constant_(gate(model).head[-1].bias, math.log(pi / (1 - pi)))
    return model.eval()


def gate(model: HurdleSegmenter) -> GatedDenoiser:
    assert isinstance(model.network, GatedDenoiser)
    return model.network


def images(count: int, width: int = 16) -> Tensor:
    return torch.rand(count, 1, 16, width, generator=generator())


def is_empty(masks: Tensor) -> Tensor:
    return masks.flatten(2).any(2).logical_not()


# --- the mixture -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prediction", PREDICTIONS)
def test_the_share_of_empty_masks_is_pi_and_no_other_mask_is_empty(prediction) -> None:
    model, image, n = built(replace(CONFIG, prediction=prediction)), images(2), 400
    model.masks_per_pass = 2 * n
    with torch.no_grad():
        pi = gate(model).encode(image).empty.sigmoid()
    assert float((pi[0] - pi[1]).abs()) > 1e-3
    for sampler in LAST:
        generators = sample_generators(0, ["a", "b"], n)
        empty = is_empty(model.sample(image, n, generators, sampler))
        for found, share in zip(empty, pi, strict=True):
            assert_proportion(int(found.sum()), n, float(share))
        level = torch.cat([torch.rand(1, generator=g) for g in sample_generators(0, ["a", "b"], n)]).reshape(2, n)
        assert torch.equal(empty, level < pi[:, None]), "a mask's first random number decides it"


@pytest.mark.parametrize("prediction", PREDICTIONS)
def test_a_sure_head_is_obeyed(prediction) -> None:
    model = built(replace(CONFIG, prediction=prediction))
    nn.init.zeros_(gate(model).head[-1].weight)
    for bias, share in ((200.0, 1.0), (-200.0, 0.0)):
        nn.init.constant_(gate(model).head[-1].bias, bias)
        for sampler in LAST:
            assert float(is_empty(model.sample(images(2), 40, generator(), sampler)).float().mean()) == share


def test_the_gate_leaves_the_other_masks_alone() -> None:
    """What is not empty is what the inner network says: the hurdle changes no estimate."""
    model, image = built(), images(2)
    y_t = torch.randint(2, (2, 6, 1, 16, 16), generator=generator()).float()
    t, level = torch.full((2, 6), 30), torch.linspace(0, 0.99, 6).expand(2, -1)
    with torch.no_grad():
        encoded = gate(model).encode(image)
        inner = gate(model).network.denoise_mask(y_t, t, gate(model).network.encode(image))
        assert torch.equal(gate(model).denoise(y_t, t, encoded), inner), "in training there is no level"
        gated = gate(model).denoise(y_t, t, at_level(encoded, level))
    empty = level < encoded.empty.sigmoid()[:, None]
    assert 0 < int(empty.sum()) < 12
    assert torch.equal(gated[~empty], inner[~empty])
    assert bool((gated[empty] == -torch.inf).all())


@pytest.mark.parametrize("rho", [None, 0.5])
def test_empty_masks_take_no_pass_through_the_network_and_change_no_other(rho: float | None) -> None:
    """In a volume they do: the next slice follows their random numbers."""
    model, image, passes = built(pi=0.6), images(3), []
    model.masks_per_pass, denoise = 4, gate(model).denoise
    gate(model).denoise = lambda *inputs: passes.append(len(inputs[0])) or denoise(*inputs)  # type: ignore[method-assign]

    def drawn(sample, callback=None) -> Tensor:
        keys = list("abc")
        own = sample_generators(0, keys, 10) if rho is None else volume_generators(0, keys, 10, rho)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(HurdleSegmenter, "_sample", sample)
            return model.sample(image, 10, own, Sampler(2, noise="shared", views=4), callback)

    plain = drawn(EncodedSegmenter._sample)
    assert passes == [4] * 2 * 3 * 3, "two steps of three passes for each image"
    passes.clear()
    assert torch.equal(drawn(HurdleSegmenter._sample), plain)
    marked = [10 - int(of) for of in is_empty(plain).sum(1)]
    assert 0 < max(marked) <= 8
    needed = (
        [-(-count // 4) for count in marked] if rho is None else [3, 3, -(-marked[2] // 4)]
    )  # none follows the last
    assert passes == [4] * 2 * sum(needed)
    steps: list[Step] = []
    assert torch.equal(drawn(HurdleSegmenter._sample, steps.append), plain), "a callback is shown all masks"
    assert len(steps) == 2 * 3 * 3


# --- tiles -----------------------------------------------------------------------------------------------------------


class TwoSides(GatedDenoiser):
    """The head says one pi of the first tile and another one of the second; all pixels are as likely as not."""

    def __init__(self, model: HurdleSegmenter, pis: tuple[float, float]) -> None:
        super().__init__(gate(model).network, model.kernel)  # type: ignore[arg-type]
        self.pis, self.turn = pis, 0
        self.network.denoise = lambda y_t, t, features: torch.zeros_like(y_t)  # type: ignore[method-assign]

    def empty_logit(self, summary: Tensor, keep: Tensor | None = None) -> Tensor:
        self.turn += 1
        return torch.full((len(summary),), self.pis[(self.turn - 1) % 2]).logit()


def two_sides(prediction: str, pis: tuple[float, float], overlap: float = 0.0) -> HurdleSegmenter:
    model = built(replace(CONFIG, prediction=prediction))  # type: ignore[arg-type]
    model = HurdleSegmenter(model.config, model.input_spec, TwoSides(model, pis), model.kernel)  # type: ignore[arg-type]
    model.masks_per_pass = 1000
    tiles = model.tiled((16, 16), overlap)
    assert isinstance(tiles, HurdleSegmenter)
    return tiles


@pytest.mark.parametrize("prediction", PREDICTIONS)
def test_each_tile_keeps_its_own_pi(prediction: str) -> None:
    tiles = two_sides(prediction, (1.0, 0.0))
    for sampler in LAST:
        left, right = tiles.sample(images(1, 32), 60, generator(), sampler).split(16, -1)
        assert not bool(left.any())
        assert not bool(is_empty(right).any())
    half_way = two_sides(prediction, (1.0, 0.0), overlap=0.5)  # 16 and 16 of 24 columns: eight of them belong to both
    left, _ = half_way.sample(images(1, 24), 60, generator(), LAST[1]).split([8, 16], -1)
    assert not bool(left.any())


def test_one_level_is_for_all_tiles_of_a_mask() -> None:
    n, pis = 1000, (0.7, 0.2)
    masks = two_sides("mask", pis).sample(images(1, 32), n, generator(), LAST[1])
    left, right = (is_empty(side)[0] for side in masks.split(16, -1))
    assert_proportion(int(left.sum()), n, pis[0])
    assert_proportion(int(right.sum()), n, pis[1])
    assert not bool((right & ~left).any()), "whoever sees nothing in the clearer tile sees nothing in the other"


def test_levels_reach_every_tile_and_only_tiles_are_opened() -> None:
    one = Encoded((torch.zeros(1), torch.ones(1)), torch.zeros(1), torch.zeros(1, 3))
    level = torch.rand(1, 4)
    assert at_level(one, level) == one._replace(level=level)
    assert at_level((one, one), level) == (one._replace(level=level),) * 2


# --- the raters that marked something --------------------------------------------------------------------------------


def test_every_rater_who_marked_is_picked_equally_often_and_no_other() -> None:
    """Of the raters 1, 2 and 4, of rater 0 alone, of all, of none; each mask shows whose it is by its brightness."""
    marked = torch.tensor([[0, 1, 1, 0, 1], [1, 0, 0, 0, 0], [1] * 5, [0] * 5]).bool()
    masks = (marked * (1 + torch.arange(5)))[..., None, None, None].expand(-1, -1, 2, 3, 4)
    n = 3000
    expected = np.array([[0, 0, 1, 1, 0, 1], [0, 1, 0, 0, 0, 0], [0, 1, 1, 1, 1, 1], [1, 0, 0, 0, 0, 0]], float)
    for count in (1, 4):
        picked = pick_marked(masks.repeat(n, 1, 1, 1, 1), marked.repeat(n, 1), count, generator())
        assert picked.shape == (4 * n, count, 2, 3, 4)
        numbers = picked[..., 0, 0, 0].reshape(n, 4, count)
        for image, place in product(range(4), range(count)):
            counts = np.bincount(numbers[:, image, place].numpy(), minlength=6)
            if (law := expected[image] / expected[image].sum()).max() == 1:
                assert counts[law == 1] == n
            else:
                assert_fits(counts, law)
    assert all(len(set(row.tolist())) == 3 for row in numbers[:, 0, :3]), "in turn: three masks are three raters'"
    assert bool((numbers[:, 0, 3] == numbers[:, 0, 0]).all()), "and the fourth is the first one's again"


# --- the loss --------------------------------------------------------------------------------------------------------


def discs(*areas: tuple[int, ...]) -> Tensor:
    """Masks of 16x16 with so many marked pixels, of one row of raters per image."""
    return (torch.arange(256) < torch.tensor(areas)[..., None]).reshape(len(areas), -1, 1, 16, 16).to(torch.uint8)


def test_the_loss_is_that_of_marked_masks_and_the_cross_entropy_of_pi() -> None:
    """With constant outputs it can be written down: -log of what is said of each pixel, and of each rater's mask."""
    masks = discs((64, 0, 64, 0), (0, 0, 0, 0), (128, 128, 128, 128))
    for N, weight in product((1, 4), (0.05, 2.0)):
        model = built(replace(CONFIG, lambda_kl=0.0, hurdle=weight, masks_per_image=N))
        assert model.raters == "all"
        gate(model).network.denoise = lambda y_t, t, features: torch.full_like(y_t, 1.5)  # type: ignore[method-assign]
        nn.init.zeros_(gate(model).head[-1].weight)
        nn.init.constant_(gate(model).head[-1].bias, -0.7)
        with torch.no_grad():
            terms = model.loss(images(3), masks, generator())
        one, zero = (-math.log(1 / (1 + math.exp(-s * 1.5))) for s in (1, -1))
        bce = ((64 * one + 192 * zero) / 256 + 0 + (one + zero) / 2) / 3
        pi = 1 / (1 + math.exp(0.7))
        empty = -sum(q * math.log(pi) + (1 - q) * math.log(1 - pi) for q in (0.5, 1.0, 0.0)) / 3
        assert float(terms["bce"]) == pytest.approx(bce, rel=1e-5)
        assert float(terms["empty"]) == pytest.approx(empty, rel=1e-5)
        assert float(terms["loss"]) == pytest.approx(bce + weight * empty, rel=1e-5)


@pytest.mark.parametrize("prediction", PREDICTIONS)
def test_an_image_that_nobody_marked_teaches_pi_alone(prediction) -> None:
    model = built(replace(CONFIG, prediction=prediction, masks_per_image=2))
    network = gate(model)
    model.loss(images(3), discs((0, 0), (0, 0), (0, 0)), generator())["loss"].backward()
    inner = network.network
    drawing = [*inner.step.parameters(), *inner.maps.parameters()]  # type: ignore[union-attr]
    assert not any(bool(p.grad.any()) for p in drawing if p.grad is not None)
    assert all(bool(p.grad.any()) for p in network.head.parameters())
    assert bool(inner.encoder.stem.weight.grad.any()), "the head reads what the encoder learns"  # type: ignore[union-attr]
    before = [p.grad.clone() for p in network.head.parameters()]
    model.zero_grad()
    model.loss(images(3), discs((0, 0), (30, 0), (0, 0)), generator())["loss"].backward()
    assert any(bool(p.grad.any()) for p in drawing)
    assert any(not torch.equal(p.grad, old) for p, old in zip(network.head.parameters(), before, strict=True))


@torch.no_grad()
def test_dropout_leaves_the_mean_of_the_inputs_and_is_of_training_alone() -> None:
    network, summary = gate(built()), torch.randn(5, 240, generator=generator())
    plain = network.empty_logit(summary)
    torch.testing.assert_close(network.empty_logit(summary, torch.full_like(summary, 1 - DROPOUT)), plain)
    assert float((network.empty_logit(summary, (summary > 0).float()) - plain).abs().max()) > 1e-3
    model = built()
    first, second = (float(model.loss(images(3), discs((9, 0), (0, 7), (8, 8)), generator(s))["empty"]) for s in (0, 1))
    assert first != second
    assert torch.equal(*(gate(model).encode(images(2)).empty for _ in range(2)))


def test_pi_learns_the_share_of_raters_who_marked_nothing() -> None:
    model, masks = built(), discs((0, 0, 8, 0), (0, 8, 0, 0), (8, 0, 0, 0))
    nn.init.zeros_(gate(model).head[-1].weight)
    with torch.no_grad():
        losses = []
        for pi in (0.05, 0.5, 0.7, 0.75, 0.8, 0.9, 0.99):
            nn.init.constant_(gate(model).head[-1].bias, math.log(pi / (1 - pi)))
            losses.append((float(model.loss(images(3), masks, generator())["loss"]), pi))
    assert min(losses)[1] == 0.75


# --- configuration ---------------------------------------------------------------------------------------------------


def test_a_network_that_keeps_no_features_of_the_image_is_refused_in_a_sentence() -> None:
    with refused("hurdle:", "tiny"):
        BerDiff("tiny", hurdle=0.05).build(make_spec())


def test_without_a_hurdle_nothing_is_added() -> None:
    plain, gated = (replace(CONFIG, hurdle=hurdle).build(make_spec()) for hurdle in (0.0, 0.05))
    assert type(plain) is DiffusionSegmenter
    assert isinstance(gated.kernel, Bernoulli)
    assert (plain.kernel.nonempty, gated.kernel.nonempty) == (False, True)  # type: ignore[attr-defined]
    inner = {f"network.{name}" for name in gate(gated).network.state_dict()}  # type: ignore[arg-type]
    assert set(plain.state_dict()) == inner
    assert {name.split(".")[1] for name in gated.state_dict()} == {"network", "head"}
