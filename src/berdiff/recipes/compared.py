"""Recipes of the compared methods: METHOD-cpu for two cores, METHOD-paper as the BerDiff paper states for all methods,
METHOD-own with its authors' settings as far as ours express them (docs/methods says what they do not)."""

from dataclasses import replace
from typing import Any, NamedTuple

from berdiff.diffusion.sampler import FlowSampler, GaussianSampler, Sampler
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.car import CAR
from berdiff.methods.config import MethodConfig
from berdiff.methods.flow import FlowMatching
from berdiff.methods.gaussian import GaussianDiffusion
from berdiff.methods.hprobunet import HierarchicalProbUNet
from berdiff.methods.jprounet import JProUNet
from berdiff.methods.mednext import MedNeXt
from berdiff.methods.medsegdiff import MedSegDiff
from berdiff.methods.mose import MoSE
from berdiff.methods.nnunet import NNUNet
from berdiff.methods.pixelseg import PixelSeg
from berdiff.methods.probunet import ProbUNet
from berdiff.methods.segdiff import SegDiff
from berdiff.methods.ssn import SSN
from berdiff.methods.swinunetr import SwinUNETR
from berdiff.methods.transunet import TransUNet
from berdiff.methods.unet import UNet
from berdiff.recipes.recipe import (
    CENTRED,
    FRESH_NOISE,
    GPU,
    HOUR,
    Dataset,
    Recipe,
    as_its_authors,
    as_the_paper,
    brats_minutes,
    lidc_hour,
)
from berdiff.training.config import DataConfig, OptimConfig, TrainConfig, ValidationConfig

MINUTES = "40 CPU minutes, so 20 minutes on two cores"
SHIFTED = DataConfig(augment=True)  # by up to 4 pixels
NOISE = "It predicts the noise, as its authors' does, which learns masks slowly; `--model.prediction mask` is faster."
NOT_IN_PAPER = "the paper does not have it"
STAIRS = (
    "Adam with an L2 term (AdamW's decay of the same size is weaker), a rate that falls in stairs (here half a cosine)"
)


class _Method(NamedTuple):
    """The recipes of one compared method, whose names and sentences begin alike."""

    name: str
    title: str
    on: Dataset = "lidc"

    def cpu(self, rest: str, model: MethodConfig, lr: float = 1e-3, notes: str = "", **changes: object) -> Recipe:
        """The centre 64x64 of LIDC-IDRI for 60 CPU minutes, or BraTS slices of 128x128 for 40."""
        lidc = self.on == "lidc"
        config: TrainConfig = (lidc_hour if lidc else brats_minutes)(model, lr)
        where = f"on two CPU cores: {'the centre 64x64' if lidc else 'BraTS slices of 128x128'}"
        summary = f"{self.title} {where}, {rest}."
        expected = f"its row of docs/results/{'table-3-lidc' if lidc else 'table-4-brats'}.md"
        config = replace(config, **changes)
        return Recipe(f"{self.name}-cpu", summary, HOUR if lidc else MINUTES, expected, config, self._store, notes)

    def paper(self, network: str, model: MethodConfig, figures: str) -> Recipe:
        """As the paper states for all methods. `figures` of the paper: GED 16 and HM-IoU 16, or Dice; or a sentence."""
        size = "128x128, AdamW at 5e-5" if self.on == "lidc" else "224x224, AdamW at 1e-4"
        what = f"{self.title} ({network})" if network else self.title
        summary = f"{what} as the BerDiff paper states for all methods: {size}, batch 32."
        expected = f"the paper has {figures}" if figures[0] in "GD" else figures
        notes = "The paper does not say for how long; 86,500 iterations are the longest it names."
        config = as_the_paper(model, self.on)
        return Recipe(f"{self.name}-paper", summary, GPU, expected, config, self._store, notes, trained=False)

    def own(
        self,
        rest: str,
        model: MethodConfig,
        optim: OptimConfig,
        steps: int,
        cost: str,
        expected: str,
        missing: str = "",
        batch: int = 32,
        data: DataConfig | None = None,
    ) -> Recipe:
        """Its authors' settings; `missing`: what of them cannot be said here."""
        config = as_its_authors(model, optim, steps, batch, data, self.on)
        notes = f"Not reproduced: {missing}." if missing else ""
        summary = f"{self.title} with its authors' settings: {rest}."
        return Recipe(f"{self.name}-own", summary, cost, expected, config, self._store, notes, trained=False)

    @property
    def _store(self) -> str:
        return f"{self.on}.zarr"


def _ged(ged: float, hm_iou: float) -> str:
    return f"GED16 {ged:.3f}, HM-IoU16 {hm_iou:.3f}".replace(" 0.", " .")


def _adam(lr: float, decay: float = 0.0) -> OptimConfig:
    """Without an average of the weights."""
    return OptimConfig(lr=lr, weight_decay=decay, ema_decay=0.0)


def _cosine(lr: float, decay: float, steps: int) -> OptimConfig:
    return OptimConfig(lr=lr, weight_decay=decay, decay="cosine", decay_steps=steps, ema_decay=0.0)


def _falling(steps: int) -> OptimConfig:
    """Adam at 1e-4, falling over all of the training."""
    return OptimConfig(lr=1e-4, weight_decay=0.0, decay="poly", decay_steps=steps, ema_warmup=False)


# --- latent variables -------------------------------------------------------------------------------------------------

_ELASTIC = f"{STAIRS}, elastic deformations (here flips, turns and shifts)"
_STEPS = 240_000
_PROBUNET = _Method("probunet", "Probabilistic U-Net")
_HPROBUNET = _Method("hprobunet", "Hierarchical Probabilistic U-Net")
_JPROUNET = _Method("jprounet", "JPro. U-net")
_LATENT = (
    _PROBUNET.cpu("four raters share the encoding of a slice", ProbUNet("small", beta_warmup=150, masks_per_image=4)),
    _PROBUNET.paper("9.3 M weights", ProbUNet("paper"), _ged(0.320, 0.500) + ", quoted"),
    _PROBUNET.own(
        "rate 1e-4, 240,000 steps of 32, no average of the weights",
        *(ProbUNet("paper"), _cosine(1e-4, 1e-5, _STEPS), _STEPS),
        "three times probunet-paper",
        f"its authors have {_ged(0.320, 0.500)} (their later paper)",
        _ELASTIC,
        data=SHIFTED,
    ),
    # 8 % of a 64x64 crop are as many pixels, and as hard a constraint, as the authors' 2 % of 128x128
    _HPROBUNET.cpu(
        "a random rater per slice",
        HierarchicalProbUNet("small", top_k=0.08, nu=0.002, average_decay=0.95),
        notes="All raters at once would share little: both the posterior and the way up run for each mask. The average "
        "that lambda follows is short, as the run is, and lambda is slow, or it would be at its bound after 460 steps.",
    ),
    _HPROBUNET.paper("", HierarchicalProbUNet("paper"), _ged(0.270, 0.530) + ", quoted"),
    _HPROBUNET.own(
        "rate 1e-4, 240,000 steps of 32, no average",
        *(HierarchicalProbUNet("paper"), _cosine(1e-4, 1e-5, _STEPS), _STEPS),
        "three times hprobunet-paper",
        f"its authors have {_ged(0.270, 0.530)}",
        _ELASTIC,
        data=SHIFTED,
    ),
    # beta is the number of levels: then the loss is the ELBO
    _JPROUNET.cpu(
        "two raters of a slice at once",
        JProUNet("small", beta=5.0, beta_warmup=110, masks_per_image=2),
        notes="More than two raters would share little more: latents enter at every level of both decoders, which run "
        "for each mask.",
    ),
    _JPROUNET.paper("5.5 M weights", JProUNet("paper"), _ged(0.260, 0.585)),
    _JPROUNET.own(
        "rate 1e-4, batch 12, 200 epochs, no decay, no average of the weights",
        *(JProUNet("paper"), _adam(1e-4), 200 * 805),
        "the slices of two thirds of jprounet-paper",
        f"the BerDiff paper has {_ged(0.260, 0.585)} of it",
        "the sum of the norms of all weights, times 1e-5, in the loss; the other set of slices that its authors used "
        "(an epoch of 9,661), shuffled without regard to patients",
        batch=12,
    ),
)

# --- an adversary, pixel by pixel, one pass ---------------------------------------------------------------------------

_CAR_STEPS = 500 * 276  # epochs of 8,843 slices
_CAR = _Method("car", "CAR")
_PIXELSEG, _SSN, _MOSE = _Method("pixelseg", "PixelSeg"), _Method("ssn", "SSN"), _Method("mose", "MoSE")
_OTHERS = (
    # a short run has no time for a discriminator that rests and learns at 1e-5
    _CAR.cpu(
        "F learns from four raters at once, D in every step",
        CAR("small", samples=4, masks_per_image=4, rate_d=0.2, d_steps=1, d_period=1),
        lr=5e-4,
    ),
    _CAR.paper("8.6 M weights, D at a twentieth of the rate", CAR("paper"), _ged(0.264, 0.592)),
    _CAR.own(
        "F and G at 2e-4, D at 1e-5 in 50 of 250 steps, batch 32, no moving average",
        *(CAR("paper"), _cosine(2e-4, 5e-4, _CAR_STEPS), _CAR_STEPS),
        "twice car-paper; its authors trained for up to 5 days on a V100",
        f"its authors have {_ged(0.264, 0.592)}",
        "F with weights of ImageNet, Adam with an L2 term (AdamW's decay of the same size is weaker), rates that "
        "halve, each net's at its own epochs until the 500th (here half a cosine until then), a rest of D while its "
        "accuracy is above .85, flips alone (here also turns and mild intensity changes)",
        data=CENTRED,
    ),
    # validated rarely: of all methods this one takes longest to sample
    _PIXELSEG.cpu(
        "four raters share the U-Net's pass over a slice",
        PixelSeg("small", masks_per_image=4),
        validation=ValidationConfig(every=875, cases=32),
    ),
    _PIXELSEG.paper("3.4 M weights", PixelSeg("paper"), _ged(0.260, 0.587)),
    _PIXELSEG.own(
        "rate 1e-4, 100 epochs of LIDC's 8,843 slices in batches of 12, no average",
        *(PixelSeg("paper", foreground_weight=3.0), _adam(1e-4), 73_700),
        "a third of pixelseg-paper",
        "its authors report another LIDC set",
        "the 20 % of samples that their test replaces by empty masks; their weight of 3 for marked pixels is kept",
        batch=12,
    ),
    _SSN.cpu(
        "four raters share the draws of a slice; the mean learns first",
        SSN("small", mean_steps=200, masks_per_image=4),
    ),
    _SSN.paper("9.2 M weights", SSN("paper"), NOT_IN_PAPER),
    _SSN.own(
        "rate 1e-3, 500,000 steps of 12, no decay and no average of the weights",
        *(SSN("paper"), _adam(1e-3), 500_000),
        "twice ssn-paper",
        "its authors report another LIDC set",
        "rotations by any angle and changes of scale (here flips and quarter turns)",
        batch=12,
        data=CENTRED,
    ),
    _MOSE.cpu("all raters of a slice, two masks of each expert", MoSE("small", samples_per_expert=2, cap_steps=400)),
    _MOSE.paper("9.3 M weights", MoSE("paper", cap_steps=30_000), NOT_IN_PAPER),
    _MOSE.own(
        "rate 1e-3, 200 epochs of LIDC's 8,843 slices in batches of 16, no average",
        *(MoSE("paper", cap_steps=110_000 // 3), _cosine(1e-3, 1e-5, 110_000), 110_000),
        "about as much as mose-paper",
        f"its authors have {_ged(0.213, 0.622)} on another LIDC set",
        "Adam with an L2 term of 1e-5 (AdamW's decay of the same size is weaker), a rate that halves and a cap that "
        "ends when the loss stands still (here half a cosine, and a third of the steps), rotations by up to 10 degrees "
        "(here quarter turns)",
        batch=16,
        data=CENTRED,
    ),
)

# --- other diffusions -------------------------------------------------------------------------------------------------


def _ccdm(preset: str, side: int) -> BerDiff:
    """Categorical diffusion with two classes IS Bernoulli diffusion: the mask as prediction, the KL divergence alone
    with the exact posterior, and all steps of a short cosine chain, the last one thresholded.

    KL is summed over the pixels of the square: gradients of its mean would be smaller than Adam's epsilon.
    """
    return BerDiff(
        preset=preset,
        schedule="cosine",
        T=250,
        prediction="mask",
        posterior="marginal",
        lambda_bce=0.0,
        lambda_kl=float(side**2),
        sampler=Sampler(steps=250, rule="ddpm", posterior="marginal"),
    )


_CCDM_CPU = replace(_ccdm("fast", 64), time_sampling="stratified", masks_per_image=8)
_DDPM = OptimConfig(lr=1e-4, weight_decay=0.0, ema_warmup=False)
_FRESH: Any = {"time_sampling": "stratified", "sampler": FRESH_NOISE}
_SEGDIFF, _MEDSEGDIFF = _Method("segdiff", "SegDiff"), _Method("medsegdiff", "MedSegDiff")
_FLOW, _CCDM = _Method("flow", "Flow matching"), _Method("ccdm", "CCDM")
_DIFFUSIONS = (
    _Method("gaussian-small", "Gaussian diffusion").cpu(
        "network and data of berdiff-small-cpu", GaussianDiffusion("small", **_FRESH)
    ),
    _SEGDIFF.cpu("a small U-Net behind a small RRDB net", SegDiff(**_FRESH), notes=NOISE),
    _SEGDIFF.paper("93 M weights: the paper's U-Net behind 10 RRDB", SegDiff("paper-128"), _ged(0.248, 0.585)),
    _SEGDIFF.own(
        "their U-Net (122 M), 100 steps of DDPM, AdamW at 1e-4 without decay",
        *(SegDiff("own", T=100, sampler=GaussianSampler(100, "ddpm")), _DDPM, 300_000),
        "made for a GPU",
        "its authors do not have LIDC-IDRI",
        "the larger of the two variances of DDPM, and estimates beyond -1 and 1. The rounded mean of nine runs is no "
        "sample",
        batch=4,
        data=SHIFTED,
    ),
    _MEDSEGDIFF.cpu("a small U-Net and a small condition net", MedSegDiff(**_FRESH), notes=NOISE),
    _MEDSEGDIFF.paper(
        "94 M weights: the paper's U-Net and a condition net", MedSegDiff("paper-128"), _ged(0.420, 0.413)
    ),
    _MEDSEGDIFF.own(
        "their U-Net (133 M in all), batch 8, AdamW at 1e-4 without decay",
        *(MedSegDiff("own", sampler=GaussianSampler(50, sigma=0.0)), _DDPM, 100_000),
        "made for a GPU",
        "its authors do not have LIDC-IDRI",
        "a learned variance with its bound, masks as 0 and 1, DPM-Solver (here 50 steps of DDIM); and the joining of "
        "several runs by STAPLE is no sample",
        batch=8,
        data=SHIFTED,
    ),
    _FLOW.cpu(
        "lidc-cpu's network, raters, schedule and cross-entropy, but Gaussian noise",
        FlowMatching("fast", "power2.5", prediction="mask", time_sampling="stratified", masks_per_image=8),
        notes="Ten steps of Euler's rule: in five, it draws too few of the rarer masks (docs/methods/flow.md).",
    ),
    _FLOW.paper("the paper's U-Net of 85.6 M weights", FlowMatching("paper-128"), NOT_IN_PAPER),
    _FLOW.own(
        "MedFM's U-Net of 9 M, the velocity, 250 steps of Euler's rule, 1e-4 falling to 0",
        *(FlowMatching("medfm", sampler=FlowSampler(steps=250)), _falling(280_000), 280_000),
        "made for a GPU, a tenth of flow-paper's per image",
        f"MedFM has {_ged(0.202, 0.610)} (another preparation of LIDC-IDRI)",
        "t as a real number (here one of 1000), dropout of .1, a straight fall to 1e-6 (here the power .9 to 0); 500 "
        "epochs of its split are about 280,000 steps of 16",
        batch=16,
        data=SHIFTED,
    ),
    # not clipped, as its authors: with norm 1 the sum's gradients keep their size while the estimate runs past all
    # masks
    _CCDM.cpu(
        "lidc-cpu's network and raters with CCDM's schedule, loss and 250 steps",
        _CCDM_CPU,
        optim=replace(lidc_hour(_CCDM_CPU).optim, clip_norm=None),
    ),
    _CCDM.paper("the paper's U-Net of 85.6 M weights", _ccdm("paper-128", 128), NOT_IN_PAPER),
    _CCDM.own(
        "their U-Net of 5.7 M, all 250 steps, 1e-4 falling to 0",
        *(_ccdm("ccdm", 128), _falling(1_000_000), 1_000_000),
        "made for a GPU",
        f"its authors have {_ged(0.239, 0.598)} on the HPU-Net's crops",
        "a straight fall to 1e-6 (here the power .9 to 0), one output per class (here one per pixel, which is the same "
        "law). 2,000 epochs of their split are about a million steps of 16",
        batch=16,
        data=CENTRED,
    ),
)

# --- BraTS: one answer per image, the whole slice, but for SegDiff ----------------------------------------------------


def _sgd(decay: float, momentum: float, steps: int) -> OptimConfig:
    return OptimConfig(
        kind="sgd", lr=1e-2, weight_decay=decay, momentum=momentum, ema_decay=0.0, decay="poly", decay_steps=steps
    )


_THREE_D, _THOUSAND, _EPOCHS = "its authors train in 3D", 1000 * 250, 150 * 55_174 // 24
_TEST_SET = "Dice {} % (its test set)"
_UNET, _NNUNET = _Method("unet", "The U-net of the diffusion", "brats"), _Method("nnunet", "nnU-Net's network", "brats")
_TRANSUNET, _SWIN = _Method("transunet", "TransU-Net", "brats"), _Method("swinunetr", "Swin UNETR", "brats")
_MEDNEXT, _SEGDIFF_BRATS = _Method("mednext", "MedNeXt", "brats"), _Method("segdiff-brats", "SegDiff", "brats")
_BRATS = (
    _UNET.cpu("the `small` network", UNet("small")),
    _UNET.paper("the 224x224 network", UNet("paper-224"), _TEST_SET.format(89.2)),
    _NNUNET.cpu("3.3 M weights", NNUNet("small")),
    _NNUNET.paper("20.6 M weights", NNUNet("paper"), _TEST_SET.format(88.2)),
    _NNUNET.own(
        "SGD with Nesterov's momentum, poly decay over 1000 x 250 steps",
        *(NNUNet("paper"), replace(_sgd(3e-5, 0.99, _THOUSAND), nesterov=True, clip_norm=12.0), _THOUSAND),
        f"{GPU}; three times nnunet-paper",
        "its augmentation, oversampling and test-time mirroring are not here",
        data=CENTRED,
    ),
    _TRANSUNET.cpu("6.0 M fresh weights", TransUNet("small"), lr=3e-4),
    _TRANSUNET.paper(
        "105.3 M fresh weights; the paper does not say from which", TransUNet("paper"), _TEST_SET.format(88.6)
    ),
    _TRANSUNET.own(
        "SGD, poly decay over 150 epochs of the paper's 55,174 slices",
        *(TransUNet("paper", lambda_bce=0.5, lambda_dice=0.5), _sgd(1e-4, 0.9, _EPOCHS), _EPOCHS),
        f"{GPU}; three times transunet-paper",
        "its authors begin from ImageNet's weights, this from fresh ones",
        batch=24,
        data=CENTRED,
    ),
    _SWIN.cpu("6.3 M weights", SwinUNETR("small"), lr=5e-4),
    _SWIN.paper("25.1 M weights", SwinUNETR("paper"), _TEST_SET.format(89.0)),
    _SWIN.own(
        "the soft Dice loss alone, a sixth of the steps as warm-up, then a cosine",
        SwinUNETR("paper", lambda_bce=0.0),
        replace(_cosine(1e-4, 1e-5, 86_500), warmup_steps=86_500 // 6),
        86_500,
        f"{GPU}; as swinunetr-paper",
        _THREE_D,
        data=CENTRED,
    ),
    _MEDNEXT.cpu("3.1 M weights", MedNeXt("small")),
    _MEDNEXT.paper("5.5 M weights, S", MedNeXt("paper"), NOT_IN_PAPER),
    _MEDNEXT.own(
        "AdamW at 1e-3 and nnU-Net's poly decay over 1000 x 250 steps",
        MedNeXt("paper"),
        replace(_falling(_THOUSAND), lr=1e-3, weight_decay=3e-5, clip_norm=12.0, ema_decay=0.0, ema_warmup=True),
        _THOUSAND,
        f"{GPU}; three times mednext-paper",
        _THREE_D,
        data=CENTRED,
    ),
    _SEGDIFF_BRATS.cpu(
        "the data, batch and rate of unet-cpu, whose U-Net it has",
        SegDiff(**_FRESH),
        validation=ValidationConfig(every=500, cases=64),
    ),
    _SEGDIFF_BRATS.paper(
        "121 M weights: the U-Net of brats-paper behind 10 RRDB", SegDiff("paper-224"), _TEST_SET.format(89.3)
    ),
)

RECIPES = (*_LATENT, *_OTHERS, *_DIFFUSIONS, *_BRATS)
