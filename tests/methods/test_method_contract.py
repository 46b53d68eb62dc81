"""Every method keeps the contract of `berdiff.testing`, and the contract sees what a broken method does."""

from dataclasses import replace
from itertools import count

import pytest
import torch
from torch import nn

import fakes
from berdiff.diffusion.sampler import FlowSampler, GaussianSampler, Sampler
from berdiff.methods.base import ParameterGroup
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.car import CAR
from berdiff.methods.config import METHODS
from berdiff.methods.flow import FlowMatching
from berdiff.methods.gaussian import GaussianDiffusion
from berdiff.methods.hprobunet import HierarchicalProbUNet
from berdiff.methods.jprounet import JProUNet
from berdiff.methods.mednext import MedNeXt
from berdiff.methods.medsegdiff import MedSegDiff
from berdiff.methods.mose import MoSE
from berdiff.methods.mose import network as mose
from berdiff.methods.nnunet import NNUNet
from berdiff.methods.pixelseg import PixelSeg
from berdiff.methods.probunet import ProbUNet
from berdiff.methods.segdiff import SegDiff
from berdiff.methods.ssn import SSN
from berdiff.methods.ssn import network as ssn
from berdiff.methods.swinunetr import SwinUNETR
from berdiff.methods.transunet import TransUNet
from berdiff.methods.unet import UNet
from berdiff.recipes import RECIPES
from berdiff.testing import ContractError, check_method
from berdiff.testing.examples import awaken
from berdiff.testing.methods import contract
from berdiff.testing.methods import loss as loss_of
from refusals import refused

FEW, ODE, EULER = Sampler(3), GaussianSampler(steps=(50, 20, 5), sigma=0.0), FlowSampler(steps=(50, 20, 5))
# every setting that makes it CCDM, but for its 250 steps and for times spread over a batch, which mix images on purpose
CCDM = replace(RECIPES["ccdm-cpu"].config.model, preset="fast-tiny", time_sampling="uniform")
MASK = BerDiff("fast-tiny", T=50, schedule="power2.5", prediction="mask", sampler=Sampler(2, last_step="sample"))
CONFIGS = {
    "berdiff": BerDiff("tiny", sampler=FEW),
    "berdiff, encode once": BerDiff("fast-tiny", prediction="prior", masks_per_image=4, sampler=FEW),
    "berdiff, mask": MASK,
    "berdiff, hurdle": replace(MASK, hurdle=0.05, sampler=Sampler(2, noise="shared", last_step="sample")),
    "ccdm": replace(CCDM, sampler=replace(CCDM.sampler, steps=3)),
    "gaussian": GaussianDiffusion("fast-tiny", T=50, sampler=ODE),
    "segdiff": SegDiff("tiny", T=50, sampler=ODE),
    "medsegdiff": MedSegDiff("tiny", T=50, sampler=ODE),
    "flow": FlowMatching("fast-tiny", T=50, sampler=EULER),
    "flow, mask": FlowMatching("tiny", T=50, schedule="power2.5", prediction="mask", sampler=EULER),
    "unet": UNet("fast-tiny", lambda_dice=1.0),
    "unet, level sets": UNet("fast-tiny", lambda_dice=1.0, answer="level-sets"),
    "nnunet": NNUNet("tiny"),
    "transunet": TransUNet("tiny"),
    "swinunetr": SwinUNETR("tiny"),
    "mednext": MedNeXt("tiny"),
    "probunet": ProbUNet("tiny", beta_warmup=3),
    "hprobunet": HierarchicalProbUNet("tiny", masks_per_image=3),
    "jprounet": JProUNet("tiny", dims=4, masks_per_image=2, beta_warmup=4),
    "car": CAR("tiny", samples=2, masks_per_image=2, d_steps=2, d_period=3),
    "ssn": SSN("tiny", draws=4, masks_per_image=3, mean_steps=3),
    "mose": MoSE("tiny", samples_per_expert=2, cap_steps=3),
    "pixelseg": PixelSeg("tiny", smooth=False),  # masks of random weights are noise, which closing fills
}


def test_every_method_is_here():
    ours = {name for name, place in METHODS.ours.items() if place.startswith("berdiff.")}
    assert {config.method for config in CONFIGS.values()} == ours


@pytest.mark.parametrize("name", CONFIGS)
def test_every_method_keeps_the_contract(name: str):
    config = CONFIGS[name]
    side = 64 if config.method == "swinunetr" else 16
    check_method(config, (side, side), random=getattr(config, "answer", "") != "mask")


@pytest.mark.parametrize("name", CONFIGS)
def test_raters_and_wrong_tensors(name: str):
    """Ours say which masks they learn from, and name a tensor that does not fit."""
    config = CONFIGS[name]
    side = 64 if config.method == "swinunetr" else 16
    model = fakes.real(config, fakes.make_spec((side, side), targets=("a", "b")))
    every = config.method == "mose" or getattr(config, "masks_per_image", 1) > 1 or getattr(config, "hurdle", 0)
    assert model.raters == ("all" if every else "one")
    image, masks = torch.rand(2, 1, side, side), torch.zeros(2, 4, 2, side, side)
    wrong = [masks[:, 0], masks[:1], masks[:, :0], masks[..., :4], masks[:, :, :1], masks + 255]
    for bad_image, bad_masks in [(image[0, 0], masks), *((image, bad) for bad in wrong)]:
        with refused("masks: " if bad_image is image else "image: ", error=ValueError):
            model.loss(bad_image, bad_masks, fakes.generator())
    if model.stride > 1:
        with refused("image:", error=ValueError):
            model.sample(image[..., : side - 1], 1, fakes.generator())


@pytest.mark.parametrize("networks", [ssn, mose], ids=["ssn", "mose"])
def test_with_batch_norm_images_mix_in_training_and_never_after_it(networks, monkeypatch):
    """SSN's and MoSE's own norm: in training a loss does depend on the batch, as their pages say; samples never do."""
    monkeypatch.setitem(networks.PRESETS, "tiny", replace(networks.PRESETS["tiny"], norm="batch"))
    apart: list[float] = []

    def train(model):
        """Five times, since averages begin as 0 and 1."""
        awaken(model)
        for name, p in model.named_parameters():
            if "factor" in name or name.endswith("mean.bias"):  # SSN's mean begins far below 0
                nn.init.normal_(p, std=0.5)
        model.train()
        for _ in range(5):
            together, *alone = (loss_of(model, which)["loss"] for which in ([0, 1, 2], [0], [1], [2]))
            apart.append(float((together - sum(alone) / 3).detach()))

    check_method(CONFIGS["ssn" if networks is ssn else "mose"], awaken=train)
    assert abs(apart[4]) > 1e-4, "far above rounding"


# --- the contract can fail -------------------------------------------------------------------------------------------


def broken(promise: str, **attributes):
    """A segmenter that breaks a promise; `build` and `kind_of` are its configuration's."""
    own = {name: attributes.pop(name) for name in ("build", "kind_of", "__eq__") if name in attributes}
    segmenter = type("Segmenter", (fakes.StandInSegmenter,), attributes)
    return promise, {"build": lambda config, spec: segmenter(config, spec), **own}


def loss(change):
    """A loss that `change` gets as (segmenter, terms, image)."""

    def changed(self, image, masks, generators):
        terms = fakes.StandInSegmenter.loss(self, image, masks, generators)
        return change(self, terms, image) or terms

    return changed


def sample(change):
    """Masks that `change` gets as (segmenter, masks)."""

    def changed(self, image, *more):
        return change(self, fakes.StandInSegmenter._sample(self, image, *more), image)

    return changed


def started(change):
    """A segmenter that `change` gets when it is made."""

    def init(self, config, spec):
        fakes.StandInSegmenter.__init__(self, config, spec)
        change(self)

    return init


def of_image(self, terms, image):
    return {"loss": terms["loss"] * image.mean()}


number = count(1)
BROKEN = [
    broken("its configuration survives JSON", __eq__=lambda self, other: self is other),
    broken("it draws a kind of targets or refuses it", kind_of=lambda self, spec: "independent"),
    broken(
        "a segmenter is what its configuration and its spec say",
        __init__=started(lambda self: self.register_buffer(f"buffer_{next(number)}", torch.zeros(1))),
    ),
    broken(
        "a segmenter is what its configuration and its spec say",
        __init__=started(lambda self: setattr(self, "config", fakes.Blur())),
    ),
    broken(
        "a segmenter is what its configuration and its spec say",
        parameter_groups=lambda self: [ParameterGroup(("net.0.",), rate=float("nan"))],
    ),
    broken(
        "the loss and every gradient are finite for any channels targets and raters",
        loss=loss(lambda self, terms, image: {**terms, "odd": terms["loss"] / 0}),
    ),
    broken("the loss of an image does not depend on its batch", loss=loss(of_image)),
    broken(
        "the loss draws from its generators alone and moves no state",
        loss=loss(lambda self, terms, image: {"loss": terms["loss"] + torch.rand(())}),
    ),
    broken(
        "the loss draws from its generators alone and moves no state",
        __init__=started(lambda self: self.register_buffer("steps", torch.zeros(1))),
        loss=loss(lambda self, terms, image: self.steps.add_(1) and None),
    ),
    broken(
        "the loss and every gradient are finite for any channels targets and raters",
        __init__=started(lambda self: setattr(self, "unused", nn.Parameter(torch.ones(1)))),
    ),
    broken(
        "with half the bits the loss is about the same and in float32",
        loss=loss(lambda self, terms, image: {"loss": terms["loss"].bfloat16()}),
    ),
    broken(
        "a checkpoint has all state of a training",
        steps=1,
        after_step=lambda self, terms: setattr(self, "steps", self.steps + 1),
        loss=loss(lambda self, terms, image: {"loss": terms["loss"] * self.steps}),
    ),
    broken(
        "samples are masks of 0 and 1 of the kind of the targets", _sample=sample(lambda self, masks, image: 2 * masks)
    ),
    broken(
        "a sample does not depend on its batch or on how many are drawn",
        _sample=sample(lambda self, masks, image: masks.roll(1, 0)),
    ),
    broken(
        "a sample does not depend on its batch or on how many are drawn",
        _sample=sample(lambda self, masks, image: masks if len(image) > 1 else 1 - masks),
    ),
    broken(
        "samples are drawn from their generators alone",
        _sample=sample(lambda self, masks, image: (torch.rand(masks.shape) > 0.5).float()),
    ),
    broken("samples are drawn from their generators alone", _sample=sample(lambda self, masks, image: 0 * masks)),
    broken(
        "wrong calls of sample are refused",
        sample=lambda self, image, n, *more, **options: fakes.StandInSegmenter.sample(self, image, max(n, 1), *more),
    ),
    broken("larger images are sampled by tiles or refused", tiled=lambda self, *tile: fakes.real(fakes.Blur(spread=9))),
    broken(
        "a model folder is the same model",
        __init__=started(lambda self: setattr(self, "number", next(number))),
        _sample=sample(lambda self, masks, image: masks * (self.number % 2)),
    ),
]


def test_the_stand_in_keeps_it():
    check_method("stand-in")


@pytest.mark.parametrize(("promise", "own"), BROKEN, ids=lambda value: value if isinstance(value, str) else "")
def test_a_method_that_breaks_it_is_named(promise: str, own: dict, monkeypatch):
    config = type("Broken", (fakes.StandIn,), {"method": "broken", **own})
    monkeypatch.setitem(METHODS.ours, "broken", f"{__name__}:BrokenConfig")
    monkeypatch.setitem(globals(), "BrokenConfig", config)
    with pytest.raises(ContractError) as caught:
        check_method("broken")
    assert f"\n- {promise}: " in str(caught.value)


def test_every_promise_has_a_method_that_breaks_it():
    assert {promise for promise, _ in BROKEN} == set(contract.checks)
