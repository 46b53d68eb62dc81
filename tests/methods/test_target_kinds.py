"""Kinds of targets: every mask of every method keeps its kind, and a method that cannot draw one says so."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from berdiff.data.input_spec import InputSpec, Kind
from berdiff.diffusion.kernels.bernoulli import Bernoulli
from berdiff.diffusion.kernels.categorical import Categorical
from berdiff.diffusion.links import LINKS
from berdiff.diffusion.nested import Nested
from berdiff.diffusion.random import sample_generators
from berdiff.diffusion.sampler import Sampler
from berdiff.methods import export, folder
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.families.deterministic import Deterministic, soft_dice_loss
from berdiff.methods.nnunet import NNUNet
from berdiff.methods.unet import UNet
from berdiff.testing.examples import masks as masks_of_kind
from diffusion.brute_force import assert_proportion
from fakes import Table, generator, make_spec, real
from refusals import refused

KINDS: tuple[Kind, ...] = ("nested", "exclusive")
BY_KIND = pytest.mark.parametrize("kind", KINDS)


def with_kinds(*names: str) -> pytest.MarkDecorator:
    """Each configuration with each kind of targets, but for a hurdle of exclusive ones, which there is not."""
    pairs = [(name, kind) for name in names for kind in KINDS if (name, kind) != ("hurdle", "exclusive")]
    return pytest.mark.parametrize(("name", "kind"), pairs)


ALL = {"berdiff", "unet", "nnunet", "transunet", "swinunetr", "mednext", "levels"}  # the last is a stand-in
CONFIG = BerDiff("fast-tiny", T=50, schedule="power2.5", prediction="mask", sampler=Sampler(2, last_step="sample"))
CONFIGS = {
    "berdiff": CONFIG,
    "hurdle": replace(CONFIG, hurdle=0.05, sampler=Sampler(2, noise="shared", last_step="sample")),
    "mask": UNet("fast-tiny", lambda_dice=1.0),
    "level-sets": UNet("fast-tiny", lambda_dice=1.0, answer="level-sets"),
}


def spec_of(kind: Kind, targets: int = 3, size=(16, 16)) -> InputSpec:
    return replace(make_spec(size, targets=tuple("abc"[:targets])), kind=kind)


def assert_kind(kind: Kind, masks: Tensor) -> None:
    """And that there was something to keep: more than one target is marked, not all alike."""
    if kind == "nested":
        assert bool((masks[:, :, 1:] <= masks[:, :, :-1]).all())
    else:
        assert int(masks.sum(2).max()) == 1
    areas = masks.sum((0, 1, 3, 4)).tolist()
    assert sorted(areas)[-2] > 0
    assert len(set(areas)) > 1


# --- which method draws which ----------------------------------------------------------------------------------------


@BY_KIND
@pytest.mark.parametrize("prediction", ["noise", "prior"])
def test_links_are_of_the_mask(kind, prediction) -> None:
    config = replace(CONFIG, prediction=prediction)
    with refused("prediction:"):
        config.build(spec_of(kind))
    assert config.build(spec_of(kind, 1)).kernel.prediction == prediction


@pytest.mark.parametrize("config", [CONFIG, UNet(preset="fast-tiny")])
def test_the_weight_of_inner_targets_is_of_nested_ones_alone(config) -> None:
    config = replace(config, inner_weight=4.0)
    config.build(spec_of("nested"))
    for kind in ("independent", "exclusive"):
        with refused("inner_weight:"):
            config.build(spec_of(kind))


def test_the_kernel_follows_the_kind() -> None:
    config = replace(CONFIG, lambda_kl=0.3, lambda_bce=0.2, posterior="marginal")
    for kind, expected in (("independent", Bernoulli), ("nested", Nested), ("exclusive", Categorical)):
        for targets, kernel in ((3, config.build(spec_of(kind)).kernel), (1, config.build(spec_of(kind, 1)).kernel)):
            assert type(kernel) is (expected if targets > 1 else Bernoulli)
            chosen = kernel.lambda_kl, kernel.lambda_bce, kernel.posterior
            assert (*chosen, kernel.schedule.T) == (0.3, 0.2, "marginal", 50)


def test_a_hurdle_is_not_of_exclusive_targets(tmp_path: Path) -> None:
    with refused("hurdle:"):
        CONFIGS["hurdle"].build(spec_of("exclusive"))
    assert CONFIGS["hurdle"].build(spec_of("exclusive", 1)).kernel.nonempty
    folder.save(real(CONFIGS["hurdle"], spec_of("nested")), tmp_path)
    file = tmp_path / "config.json"
    file.write_text(file.read_text().replace('"nested"', '"exclusive"'))  # as 0.2.0 could have written it
    with refused("hurdle:"):
        folder.load(tmp_path)


# --- masks keep their kind -------------------------------------------------------------------------------------------


@with_kinds(*CONFIGS)
def test_masks_keep_their_kind(name, kind) -> None:
    """By every rule, by views and by tiles."""
    model = real(CONFIGS[name], spec_of(kind))
    image = torch.rand(2, 1, 16, 16, generator=generator())
    samplers = [None]
    if model.sampler is not None:
        samplers += [Sampler(2, rule="ddpm"), Sampler(3, noise="shared", last_step="sample"), Sampler(2, views=2)]
    for sampler in samplers:
        assert_kind(kind, model.sample(image, 3, sample_generators(0, ["a", "b"], 3), sampler))
        large = torch.rand(1, 1, 16, 28, generator=generator(1))
        assert_kind(kind, model.tiled((16, 16), 0.25).sample(large, 4, sample_generators(0, ["a"], 4), sampler))


# --- one answer per image --------------------------------------------------------------------------------------------


def table(kind: Kind, logits: Tensor, **settings) -> Deterministic:
    return Deterministic(UNet(**settings), spec_of(kind, len(logits)), Table(logits))


def probabilities(kind: Kind, logits: Tensor) -> Tensor:
    """(K, H, W), by hand."""
    if kind == "nested":
        return torch.stack([logits[: k + 1].sigmoid().prod(0) for k in range(len(logits))])
    e = logits.exp()
    return e / (1 + e.sum(0))


@BY_KIND
def test_the_loss_of_one_answer_is_the_likelihood_of_all_targets_and_dice_of_each(kind) -> None:
    logits = torch.randn(3, 16, 16, generator=generator())
    model = table(kind, logits, lambda_bce=0.7, lambda_dice=0.3)
    masks = masks_of_kind((1, 1, 3, 16, 16), kind, 3)
    y, p = masks[0, 0].float(), probabilities(kind, logits)
    if kind == "nested":  # depths 0 to 3; a mean over targets, as with independent ones
        of_depth = torch.cat([1 - p[:1], p[:-1] - p[1:], p[-1:]])
        likelihood, per = of_depth.gather(0, y.sum(0, keepdim=True).long()), 3
    else:
        classes = torch.cat([1 - p.sum(0, keepdim=True), p])
        likelihood, per = classes.gather(0, (y * torch.arange(1, 4).reshape(3, 1, 1)).sum(0, keepdim=True).long()), 1
    found = model.loss(torch.zeros(1, 1, 16, 16), masks, generator())
    expected = {"bce": -likelihood.log().mean() / per, "dice": soft_dice_loss(p[None, None], y[None, None])}
    torch.testing.assert_close(dict(found), {"loss": 0.7 * expected["bce"] + 0.3 * expected["dice"], **expected})


@BY_KIND
def test_the_mask_is_what_is_most_likely(kind) -> None:
    logits = 2 * torch.randn(3, 16, 16, generator=generator())
    (mask,) = table(kind, logits).sample(torch.zeros(1, 1, 16, 16), 1, generator())[0]
    p = probabilities(kind, logits)
    expected = p > 0.5 if kind == "nested" else (p == p.amax(0)) & (p.amax(0) > 1 - p.sum(0))
    assert torch.equal(mask.bool(), expected)
    assert int(expected.sum()) > 50


def test_level_sets_mark_each_target_as_often_as_it_is_probable() -> None:
    n, logits = 4000, torch.tensor([1.2, 0.3, -0.2]).reshape(3, 1, 1) + torch.tensor([[-1.0, 0.0, 1.0]])
    for kind in KINDS:
        model = table(kind, logits, answer="level-sets")
        masks = model.sample(torch.zeros(1, 1, 1, 3), n, generator(4))[0]
        for k, x in np.ndindex(3, 3):
            p = float(probabilities(kind, logits)[k, 0, x])
            assert_proportion(int(masks[:, k, 0, x].sum()), n, p)
        if kind == "nested":  # and all pixels and targets by one level
            assert len(masks.flatten(1).unique(dim=0)) <= 3 * 3 + 1


@BY_KIND
def test_deep_supervision_sees_targets_of_their_kind_at_every_resolution(kind, monkeypatch) -> None:
    model, seen = real(NNUNet("tiny"), spec_of(kind)), []
    link = LINKS[kind]
    right = type(link).cross_entropy

    def watched(self, logits, y):
        seen.append(y)
        return right(self, logits, y)

    monkeypatch.setattr(type(link), "cross_entropy", watched)
    model.loss(torch.rand(1, 1, 16, 16), masks_of_kind((1, 1, 3, 16, 16), kind, 3), generator())
    assert len(seen) > 1
    for y in seen:
        assert_kind(kind, y)


def test_links_are_each_others_inverse_and_the_same_for_one_target() -> None:
    logits = 3 * torch.randn(2, 1, 3, 4, 4, generator=generator(), dtype=torch.float64)
    y = torch.ones(2, 1, 1, 4, 4, dtype=torch.float64)
    usual = LINKS["independent"]
    for link in LINKS.values():
        torch.testing.assert_close(link.logits(link.probs(logits)), logits)
        one = logits[:, :, :1]
        for name in ("probs", "likely"):
            torch.testing.assert_close(getattr(link, name)(one).double(), getattr(usual, name)(one).double())
        torch.testing.assert_close(link.logits(usual.probs(one)), one)
        torch.testing.assert_close(link.cross_entropy(one, y), usual.cross_entropy(one, y))
        ends = torch.tensor([[0.0, 0.0], [1.0, 0.0]]).reshape(1, 2, 2, 1, 1)  # float32, as from tiles
        torch.testing.assert_close(link.probs(link.logits(ends)), ends)


# --- model folders ---------------------------------------------------------------------------------------------------


def test_a_model_folder_without_a_kind_has_independent_targets(tmp_path: Path) -> None:
    folder.save(real(CONFIG, spec_of("independent")), tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    del content["input_spec"]["kind"]
    (tmp_path / "config.json").write_text(json.dumps(content))
    model = folder.load(tmp_path)
    assert (model.kind, type(model.kernel)) == ("independent", Bernoulli)


# --- export ----------------------------------------------------------------------------------------------------------


def by_words(kind: Kind, logits: np.ndarray) -> np.ndarray:
    """y0_hat as export.json words it."""
    if kind == "nested":
        return (1 / (1 + np.exp(-logits))).cumprod(2)
    every = np.exp(np.concatenate([logits, np.zeros_like(logits[:, :, :1])], 2))
    return (every / every.sum(2, keepdims=True))[:, :, :-1]


@BY_KIND
def test_export_says_what_the_logits_are_of(kind) -> None:
    for name in ("berdiff", "hurdle") if kind == "nested" else ("berdiff",):
        model = real(CONFIGS[name], spec_of(kind))
        about = export._describe(model, model.kernel)
        assert about["targets"] == about["input_spec"].kind == kind
        assert about["hurdle"] == (name == "hurdle")
        logits = torch.randn(1, 2, 3, 4, 4, generator=generator())
        _, y0_hat = model.kernel.step(Sampler(2), logits, torch.zeros_like(logits), 9, 4, generator())
        np.testing.assert_allclose(y0_hat, by_words(kind, logits.numpy()), rtol=1e-5)
    one = real(CONFIG, spec_of(kind, 1))
    assert export._describe(one, one.kernel)["targets"] == "independent"
