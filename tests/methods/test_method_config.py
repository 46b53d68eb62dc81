"""Configurations: checked, adopted by another method, joined by other packages; and the sampler a user means."""

from dataclasses import dataclass, fields, replace
from typing import ClassVar

import pytest
import torch

import fakes
from berdiff.diffusion.sampler import GaussianSampler, Sampler
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.car import CAR
from berdiff.methods.config import METHODS, adopt, dropped, from_plain, method_class, to_plain
from berdiff.methods.flow import FlowMatching
from berdiff.methods.gaussian import GaussianDiffusion
from berdiff.methods.jprounet import JProUNet
from berdiff.methods.mednext import MedNeXt
from berdiff.methods.medsegdiff import MedSegDiff
from berdiff.methods.nnunet import NNUNet
from berdiff.methods.probunet import ProbUNet
from berdiff.methods.sampling import SamplerOptions, choose_sampler, describe
from berdiff.methods.segdiff import SegDiff
from berdiff.methods.unet import UNet
from fakes import TenLines, diffusion, make_spec
from refusals import refused


def flag(place: str) -> str:
    return f"--model.{place}"


BAD = [  # (a configuration, wrong values; the last setting is the one that is named)
    *((BerDiff(), {name: value}) for name, value in {"prediction": "edges", "posterior": "hard", "pace": 3}.items()),
    *((BerDiff(), {name: value}) for name, value in {"time_sampling": "late", "method": "magic", "T": 5}.items()),
    *((BerDiff(), {name: value}) for name, value in {"lambda_kl": float("nan"), "masks_per_image": 0}.items()),
    (BerDiff(), {"lambda_kl": 0.0, "lambda_bce": 0.0}),
    (NNUNet(), {"lambda_bce": 0.0, "lambda_dice": 0.0}),
    *(
        (NNUNet(), {name: value})
        for name, value in {"answer": "samples", "preset": "fast", "lambda_dice": -1.0}.items()
    ),
    *((JProUNet(), {name: value}) for name, value in {"dims": 3, "beta": -1.0, "preset": "huge"}.items()),
    *((CAR(), {name: value}) for name, value in {"samples": 0, "preset": "huge", "betas": [0.5, 1.0]}.items()),
    (CAR(), {"d_period": 5, "d_steps": 6}),
    (SegDiff(), {"preset": "fast"}),
    (MedSegDiff(), {"lambda_guess": 0.0}),
    *((FlowMatching(), {name: value}) for name, value in {"schedule": "linear", "prediction": "noise"}.items()),
]


@pytest.mark.parametrize(("config", "change"), BAD, ids=str)
def test_bad_settings_are_named(config, change: dict):
    with refused("--model", [*change][-1], *change.values() if isinstance([*change.values()][-1], str) else ()):
        from_plain({**to_plain(config), **change}, flag)


def test_bad_settings_of_the_sampler_are_named():
    for name, value in {"sigma": 2.0, "rule": "euler", "steps": "five", "latent": "shared"}.items():
        plain = to_plain(BerDiff())
        with refused("--model.sampler", name):
            from_plain({**plain, "sampler": {**plain["sampler"], name: value}}, flag)
    for config, sampler in ((FlowMatching(), {"sigma": 1.0}), (SegDiff(), {"noise": "shared"})):
        with refused(f"--model.sampler.{next(iter(sampler))}:"):
            from_plain({**to_plain(config), "sampler": sampler}, flag)
    with refused("--model.sampler.noise:"):
        from_plain({**to_plain(GaussianDiffusion()), "sampler": {"noise": "shared"}}, flag)


def test_another_method_adopts_what_fits_it():
    few = Sampler(steps=3)
    ours = BerDiff("fast-tiny", "cosine", 5, "stratified", 4, few, prediction="mask", lambda_kl=0.0)
    own = GaussianSampler(steps=3, sigma=0.0)  # in no more steps than T has
    assert adopt(GaussianDiffusion, ours) == GaussianDiffusion("fast-tiny", "cosine", 5, "stratified", 4, own, "mask")
    assert adopt(UNet, ours) == UNet("fast-tiny")
    assert adopt(BerDiff, ours) == ours
    unfit = replace(ours, T=50, prediction="prior", sampler=Sampler(steps=3, noise="shared"))
    adopted = adopt(GaussianDiffusion, unfit)
    assert adopted == GaussianDiffusion("fast-tiny", "cosine", 50, "stratified", 4), "defaults for what does not fit"
    far = GaussianDiffusion(T=2000, sampler=GaussianSampler(steps=(1500, 500)))
    assert adopt(SegDiff, far).sampler.steps == (1500, 500), "checked together, not one by one"
    assert adopt(BerDiff, UNet("tiny")) == BerDiff("tiny")


@pytest.mark.parametrize("preset", ["paper-128", "paper-224"])
def test_a_published_size_stays_one_whatever_the_method_calls_it(preset: str):
    for name in (name for name, place in METHODS.ours.items() if place.startswith("berdiff.")):
        adopted = adopt(method_class(name), BerDiff(preset))
        assert getattr(adopted, "preset", "none").startswith("paper"), name
        assert from_plain(to_plain(adopted), flag) == adopted
    assert adopt(SegDiff, MedNeXt("paper")).preset == "paper-128"
    assert adopt(MedNeXt, BerDiff("fast")).preset == "small", "there is no fast one"


def test_a_sampler_goes_with_its_kernel():
    """A recipe's own settings stay within a family, and mean nothing to another noise."""
    fresh, ours = GaussianSampler(steps=20, sigma=1.0), Sampler(steps=20, sigma=1.0)
    assert adopt(SegDiff, GaussianDiffusion(sampler=fresh)).sampler == fresh
    assert adopt(BerDiff, BerDiff(sampler=ours)).sampler == ours
    assert adopt(GaussianDiffusion, BerDiff(sampler=ours)).sampler == GaussianSampler(sigma=0.0)
    assert adopt(BerDiff, GaussianDiffusion()).sampler == Sampler(sigma=1.0)


def test_what_is_not_kept_is_named():
    """Settings that the recipe has of its own, not those that are its method's defaults."""
    ours = BerDiff("fast", "power2.5", masks_per_image=8, prediction="prior", hurdle=0.05, sampler=Sampler(3))
    assert dropped(ours, ours) == dropped(adopt(BerDiff, ours), ours) == []
    assert dropped(adopt(GaussianDiffusion, ours), ours) == ["sampler", "prediction", "hurdle"]
    assert dropped(adopt(UNet, ours), ours) == ["schedule", "masks_per_image", "sampler", "prediction", "hurdle"]
    assert dropped(adopt(MedNeXt, BerDiff("fast")), BerDiff("fast")) == ["preset"]
    assert dropped(adopt(SegDiff, MedNeXt("paper")), MedNeXt("paper")) == [], "paper-128 is its name for it"


def test_settings_of_one_name_and_another_meaning_are_not_carried_over():
    """The weight of a KL divergence per pixel is none of one per mask."""
    ours = ProbUNet(beta=5.0, dims=12, masks_per_image=2)
    assert adopt(JProUNet, ours) == JProUNet(masks_per_image=2)
    assert dropped(adopt(JProUNet, ours), ours) == ["dims", "beta"]


@dataclass(frozen=True)
class Misnamed(UNet):
    method: ClassVar[str] = "other"


def test_a_plug_in_must_be_a_configuration_of_its_name(monkeypatch):
    monkeypatch.setitem(METHODS.ours, "mine", f"{__name__}:Misnamed")
    monkeypatch.setitem(METHODS.ours, "no-class", f"{__name__}:flag")
    for name in ("mine", "no-class"):
        with refused(f"method {name}:"):
            method_class(name)
    assert method_class("stand-in") is fakes.StandIn


# --- the sampler a user means ----------------------------------------------------------------------------------------


def test_options_are_the_fields_of_the_sampler():
    assert [field.name for field in fields(SamplerOptions)] == [field.name for field in fields(Sampler)]
    assert all(value is None for value in vars(SamplerOptions()).values())


def test_options_replace_what_they_name_and_nothing_else():
    own = Sampler(steps=(40, 20, 5), noise="shared")
    model = diffusion(TenLines(), BerDiff(T=50, sampler=own))
    assert choose_sampler(model) == choose_sampler(model, SamplerOptions()) == choose_sampler(model, {}) == own
    assert choose_sampler(model, SamplerOptions(sigma=0.5)) == replace(own, sigma=0.5)
    assert choose_sampler(model, SamplerOptions(steps=(7,))).steps == 7, "one number is how many"
    assert choose_sampler(model, {"steps": [30, 10]}).steps == (30, 10)
    assert choose_sampler(model, {"spacing": "quadratic"}) == replace(own, steps=3, spacing="quadratic")
    for name, value in (("steps", 51), ("steps", (5, 9)), ("last_step", "mean"), ("sigma", 2.0)):
        with refused(f"--{name.replace('_', '-')}:"):
            choose_sampler(model, {name: value})
    with refused("--noise:"):
        choose_sampler(diffusion(TenLines(), GaussianDiffusion()), {"noise": "shared"})


def test_a_method_without_steps_takes_no_options():
    model = UNet("fast-tiny").build(make_spec())
    assert choose_sampler(model) is None
    assert choose_sampler(model, SamplerOptions()) is None
    with refused("--last-step:"):
        choose_sampler(model, SamplerOptions(last_step="sample"))
    with refused("sampler:", error=ValueError):
        model.check_sampler(Sampler())
    assert torch.is_tensor(model.sample(torch.rand(1, 1, 16, 16), 1, torch.Generator()))


def test_captions():
    assert describe(None) == "one pass"
    assert describe(Sampler()) == "ddim in 10 steps"
    assert describe(Sampler(steps=1, rule="ddpm")) == "ddpm in 1 step"
    assert describe(Sampler(steps=(900, 40), noise="shared")) == "ddim in 2 steps (900, 40), shared noise"
