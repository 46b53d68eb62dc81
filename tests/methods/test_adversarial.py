"""Adversarial training in one backward pass: frozen calls, losses, R1, the gate; and CAR, which is made of them."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Bernoulli, kl_divergence

import training.test_processes as processes
from berdiff.diffusion.random import normal, sample_generators
from berdiff.methods.base import pick_raters
from berdiff.methods.car import CAR
from berdiff.methods.car import segmenter as adversarial
from berdiff.methods.car.segmenter import (
    CarSegmenter,
    accuracy,
    calibration,
    discriminator_loss,
    frozen,
    generator_loss,
    learns,
    score_and_slope,
)
from berdiff.training.config import OptimConfig
from berdiff.training.engine import clip, make_optimizer, set_rates
from berdiff.training.loop import Trainer
from berdiff.training.run_folder import read_rows
from berdiff.training.session import open_trainer, train
from fakes import make_spec, make_store
from refusals import refused
from training.small import small_config, without_validation

TINY = CAR("tiny", samples=3, masks_per_image=2, rate_d=0.5, d_steps=2, d_period=5)
NETS = ("f", "g", "d")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("store"))


def build(config: CAR = TINY, targets=("nodule",), channels=("ct",)) -> CarSegmenter:
    torch.manual_seed(0)
    return config.build(make_spec((16, 16), channels, targets))


def batch(targets=1, channels=1) -> tuple[Tensor, Tensor, list[torch.Generator]]:
    generator = torch.Generator().manual_seed(1)
    image = torch.rand(4, channels, 16, 16, generator=generator)
    masks = (torch.rand(4, 3, targets, 16, 16, generator=generator) > 0.5).to(torch.uint8)
    return image, masks, sample_generators(0, list("abcd"), 1)


# --- the parts -------------------------------------------------------------------------------------------------------


def test_a_frozen_module_passes_gradients_on_and_keeps_none():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    x = torch.rand(5, 3, requires_grad=True)
    (expected,) = torch.autograd.grad(net(x).sum(), x)
    y = frozen(net)(x)
    torch.testing.assert_close(y, net(x), rtol=0, atol=0)
    y.sum().backward()
    assert torch.equal(x.grad, expected)
    assert all(p.grad is None for p in net.parameters())


def test_losses_are_the_cross_entropies_of_sigmoids():
    real, fake = torch.linspace(-3, 3, 7), torch.linspace(-1, 2, 7)
    ones, zeros = torch.ones(7), torch.zeros(7)
    torch.testing.assert_close(generator_loss(fake), F.binary_cross_entropy(fake.sigmoid(), ones))
    expected = F.binary_cross_entropy(real.sigmoid(), ones) + F.binary_cross_entropy(fake.sigmoid(), zeros)
    torch.testing.assert_close(discriminator_loss(real, fake), expected)
    assert accuracy(torch.tensor([1.0, -1.0]), torch.tensor([-1.0, -2.0])) == 0.75


def test_calibration_is_the_divergence_of_bernoullis_and_finite_at_the_ends():
    p, q = torch.rand(2, 1, 8, 8) * 0.9 + 0.05, torch.rand(2, 1, 8, 8) * 0.9 + 0.05
    torch.testing.assert_close(calibration(p, q), kl_divergence(Bernoulli(p), Bernoulli(q)).mean())
    hard = torch.tensor([0.0, 1.0], requires_grad=True)
    value = calibration(hard, 1 - hard.detach())
    value.backward()
    assert 5 < value < 8
    assert torch.isfinite(hard.grad).all()


def test_r1_and_its_own_gradient_are_those_of_a_quadratic():
    """D(a, b) = sum of w a^2 + v b: the slope is (2 w a, v), R1 = sum of 4 w^2 a^2 + v^2, its slope in w 8 w a^2."""
    w, v = (torch.rand(1, 1, 3, 3, requires_grad=True) for _ in range(2))
    a, b = torch.rand(4, 1, 3, 3), torch.rand(4, 1, 3, 3)

    def d(a, b):
        return (w * a**2 + v * b).sum((1, 2, 3))

    score, r1 = score_and_slope(d, a, b)
    torch.testing.assert_close(score, d(a, b))
    torch.testing.assert_close(r1, (4 * w**2 * a**2).sum() / 4 + (v**2).sum())
    r1.backward()
    torch.testing.assert_close(w.grad, (8 * w.detach() * a**2).sum(0, keepdim=True) / 4)
    torch.testing.assert_close(v.grad, 2 * v.detach())


def test_r1_is_taken_in_float32_whatever_surrounds_it():
    net, x = nn.Sequential(nn.Conv2d(1, 8, 3), nn.LeakyReLU(), nn.Flatten(), nn.Linear(288, 1)), torch.rand(2, 1, 8, 8)
    expected = score_and_slope(net, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert net(x).dtype == torch.bfloat16
        found = score_and_slope(net, x)
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


def test_the_gate_opens_at_the_beginning_of_each_period():
    assert [learns(step, 2, 5) for step in range(1, 13)] == [True, True, *[False] * 3] * 2 + [True, True]
    assert all(learns(step, 1, 1) for step in range(1, 5))


# --- one loss for three nets -----------------------------------------------------------------------------------------


def test_the_gradient_of_each_loss_is_exactly_zero_in_the_other_two_nets():
    model = build()
    terms = model.loss(*batch())
    own = {"ce": "f", "adv": "g", "cal": "g", "d": "d", "r1": "d"}
    for term, net in own.items():
        for other in NETS:
            parameters = list(getattr(model, other).parameters())
            grads = torch.autograd.grad(terms[term], parameters, retain_graph=True, allow_unused=True)
            assert any(g is not None and g.any() for g in grads) == (net == other), (term, other)


def test_one_backward_pass_gives_the_gradients_of_three_to_the_bit():
    """The three written out, each in a graph of its own, through a discriminator that is not frozen."""
    model, config = build(), TINY
    image, masks, generators = batch()
    model.loss(image, masks, generators)["loss"].backward()

    *_, generators = batch()
    y = pick_raters(masks, 2, generators).float()
    z = normal((4, 3, 8), generators, image)

    def gradients(net: str, loss: Tensor) -> None:
        parameters = dict(getattr(model, net).named_parameters())
        for (name, p), expected in zip(parameters.items(), torch.autograd.grad(loss, parameters.values()), strict=True):
            assert torch.equal(p.grad, expected), f"{net}.{name}"

    logits = model.f(image)
    gradients("f", F.binary_cross_entropy_with_logits(logits.unsqueeze(1).expand_as(y), y))
    p = logits.detach().sigmoid()
    masks_of_g = model.g.decode(model.g.encode(image, p), z).sigmoid()
    score = model.d(image.repeat_interleave(3, 0), masks_of_g.flatten(0, 1))
    gradients("g", config.lambda_adv * generator_loss(score) + config.lambda_cal * calibration(masks_of_g.mean(1), p))
    real, r1 = score_and_slope(model.d, image, y[:, 0])
    fake = model.d(image, masks_of_g[:, 0].detach())
    gradients("d", discriminator_loss(real, fake) + config.lambda_r1 * r1)


def test_terms_add_up():
    config = replace(TINY, lambda_adv=2.0, lambda_cal=3.0, lambda_r1=4.0)
    terms = build(config).loss(*batch())
    expected = terms["ce"] + 2 * terms["adv"] + 3 * terms["cal"] + terms["d"] + 4 * terms["r1"]
    torch.testing.assert_close(terms["loss"], expected)
    assert set(terms) == {"loss", "ce", "adv", "cal", "d", "r1", "d_accuracy"}


def test_all_raters_teach_the_calibrator():
    """The cross-entropy to all of them has its minimum at their mean."""
    model = build(replace(TINY, masks_per_image=3))
    assert model.raters == "all"
    assert build(replace(TINY, masks_per_image=1)).raters == "one"
    image, masks, generators = batch()
    ce = model.loss(image, masks, generators)["ce"]
    torch.testing.assert_close(ce, F.binary_cross_entropy_with_logits(model.f(image), masks.float().mean(1)))


# --- in the trainer --------------------------------------------------------------------------------------------------


def opened(store: Path, model: CAR = TINY) -> tuple[Trainer, object]:
    trainer = open_trainer(without_validation(small_config(store, model)), Path())
    return trainer, trainer.batches.after(0)


def state(trainer, net: str) -> list[Tensor]:
    parameters = [p for name, p in trainer.segmenter.named_parameters() if name.startswith(f"{net}.")]
    moments = [value for p in parameters for value in trainer.optimizer.optimizer.state.get(p, {}).values()]
    return [value.detach().clone() for value in (*parameters, *moments)]


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return len(a) == len(b) and all(map(torch.equal, a, b))


def test_the_discriminator_does_not_move_while_it_rests(store: Path):
    trainer, batches = opened(store)
    for step in range(1, 7):
        before = {net: state(trainer, net) for net in NETS}
        trainer.step(step, next(batches))
        moved = {net for net in NETS if not same(before[net], state(trainer, net))}
        assert moved == ({"f", "g", "d"} if step in (1, 2, 6) else {"f", "g"})
    rates = [group["lr"] / 1e-2 for group in trainer.optimizer.param_groups]
    assert rates == [1, 1, 0.5]
    assert {group["betas"] for group in trainer.optimizer.param_groups} == {(0.5, 0.99)}


def test_each_net_is_clipped_by_itself(store: Path):
    """A thousand times the loss of one changes nothing in the others."""
    states = []
    for config in (TINY, replace(TINY, lambda_adv=1e4), replace(TINY, lambda_r1=1e4)):
        trainer, batches = opened(store, config)
        _, norm, _, _ = trainer.step(1, next(batches))
        states.append({net: state(trainer, net) for net in NETS})
        assert norm > 1
    for other, changed in zip(states[1:], ("g", "d"), strict=True):
        assert {net for net in NETS if not same(states[0][net], other[net])} == {changed}


def test_fsdp_is_refused(monkeypatch):
    model = build()
    monkeypatch.setattr(adversarial, "DTensor", nn.Parameter)
    with refused("--engine.strategy:"):
        model.parameter_groups()


def _short(store: Path):
    """Five steps; the discriminator rests in the third."""
    model = replace(TINY, d_period=3)
    return without_validation(small_config(store, model, max_steps=5, checkpoint_every=2, log_every=1))


@pytest.mark.slow
def test_two_processes_train_the_model_of_one_with_the_double_batch(store: Path, tmp_path: Path, monkeypatch):
    """Every parameter has a gradient at every step, also of nets that rest: DDP waits for all."""
    monkeypatch.setattr(processes, "small_config", lambda store, max_steps: _short(store))
    processes._two_processes(store, tmp_path / "two", "ddp")
    train(_short(store), tmp_path / "one")
    two, one = (read_rows(tmp_path / name / "stats.jsonl") for name in ("two", "one"))
    assert len(one) == len(two) == 6  # the steps and the end
    for a, b in zip(two[:5], one[:5], strict=True):
        for name in ("loss", "ce", "adv", "cal", "d", "r1", "grad_norm"):
            assert a[name] == pytest.approx(b[name], rel=1e-3), name


# --- does it learn? --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_equally_likely_masks_are_both_drawn_and_their_mean_is_the_calibrators():
    """A large and a small square: no mask in between, and the mean of the samples approaches F."""
    torch.manual_seed(0)
    square = torch.zeros(2, 1, 16, 16)
    square[0, :, 4:12, 4:12] = square[1, :, 6:10, 6:10] = 1
    image, masks = torch.full((8, 1, 16, 16), 0.3), square.expand(8, 2, 1, 16, 16)
    model = build(replace(TINY, samples=4, rate_d=0.2, d_steps=1, d_period=1))
    optim = OptimConfig(lr=2e-3, clip_norm=1.0, warmup_steps=20)
    optimizer = make_optimizer(model, optim, fused=True)
    distances = []
    for step in range(401):
        if step % 400 == 0:
            samples = model.eval().sample(image[:1], 256, torch.Generator().manual_seed(0))[0].float()
            with torch.no_grad():
                distances.append(float((samples.mean(0) - model.f(image[:1])[0].sigmoid()).abs()[:, 4:12, 4:12].mean()))
            model.train()
        model.loss(image, masks, sample_generators(step, list("abcdefgh"), 1))["loss"].backward()
        set_rates(optimizer, optim, step + 1)
        clip(optimizer)
        optimizer.step()
        optimizer.zero_grad()
    assert distances[1] < 0.15 < distances[0]
    wrong = torch.stack([(samples - mask).abs().sum((1, 2, 3)) for mask in square])  # pixels of 48 between the two
    shares = (wrong <= 6).float().mean(1)
    assert shares.min() > 0.25
    assert shares.sum() > 0.7
