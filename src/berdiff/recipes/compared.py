"""Recipes of the compared methods: METHOD-cpu for two cores, METHOD-paper as the BerDiff paper states for all methods,
METHOD-own with its authors' settings as far as ours express them (docs/methods says what they do not)."""

from dataclasses import replace

from berdiff.diffusion.sampler import FlowSampler, GaussianSampler, Sampler
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.car import CAR
from berdiff.methods.config import MethodConfig
from berdiff.methods.families.deterministic_config import DeterministicConfig
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


def _cpu(
    name: str,
    what: str,
    model: MethodConfig,
    lr: float = 1e-3,
    notes: str = "",
    on: Dataset = "lidc",
    **changes: object,
) -> Recipe:
    """The centre 64x64 of LIDC-IDRI for 60 CPU minutes, or BraTS slices of 128x128 for 40."""
    config: TrainConfig = (lidc_hour if on == "lidc" else brats_minutes)(model, lr)
    where = "on two CPU cores: the centre 64x64" if on == "lidc" else "on two CPU cores: BraTS slices of 128x128"
    row = "table-3-lidc" if on == "lidc" else "table-4-brats"
    cost, expected = HOUR if on == "lidc" else MINUTES, f"its row of docs/results/{row}.md"
    title, _, rest = what.partition(": ")
    summary = f"{title} {where}{', ' if rest else ''}{rest}."
    return Recipe(f"{name}-cpu", summary, cost, expected, replace(config, **changes), f"{on}.zarr", notes)


def _paper(name: str, what: str, model: MethodConfig, figures: str, on: Dataset = "lidc") -> Recipe:
    """`figures` of the paper: GED 16 and HM-IoU 16, or Dice; or a sentence."""
    size = "128x128, AdamW at 5e-5, batch 32" if on == "lidc" else "224x224, AdamW at 1e-4, batch 32"
    expected = f"the paper has {figures}" if figures[0] in "GD" else figures
    config = as_the_paper(model, on)
    notes = "The paper does not say for how long; 86,500 iterations are the longest it names."
    summary = f"{what} as the BerDiff paper states for all methods: {size}."
    return Recipe(f"{name}-paper", summary, GPU, expected, config, f"{on}.zarr", notes, trained=False)


def _own(
    name: str, what: str, config: TrainConfig, cost: str, expected: str, missing: str = "", on: Dataset = "lidc"
) -> Recipe:
    """`missing`: what of the authors' settings cannot be said here."""
    notes = f"Not reproduced: {missing}." if missing else ""
    title, _, rest = what.partition(": ")
    summary = f"{title} with its authors' settings: {rest}."
    return Recipe(f"{name}-own", summary, cost, expected, config, f"{on}.zarr", notes, trained=False)


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
_LATENT = (
    _cpu(
        "probunet",
        "Probabilistic U-Net: four raters share the encoding of a slice",
        ProbUNet("small", beta_warmup=150, masks_per_image=4),
    ),
    _paper("probunet", "Probabilistic U-Net (9.3 M weights)", ProbUNet("paper"), _ged(0.320, 0.500) + ", quoted"),
    _own(
        "probunet",
        "Probabilistic U-Net: rate 1e-4, 240,000 steps of 32, no average of the weights",
        as_its_authors(ProbUNet("paper"), _cosine(1e-4, 1e-5, 240_000), 240_000, data=SHIFTED),
        "three times probunet-paper",
        f"its authors have {_ged(0.320, 0.500)} (their later paper)",
        _ELASTIC,
    ),
    # 8 % of a 64x64 crop are as many pixels, and as hard a constraint, as the authors' 2 % of 128x128
    _cpu(
        "hprobunet",
        "Hierarchical Probabilistic U-Net: a random rater per slice",
        HierarchicalProbUNet("small", top_k=0.08, nu=0.002, average_decay=0.95),
        notes="All raters at once would share little: both the posterior and the way up run for each mask. The average "
        "that lambda follows is short, as the run is, and lambda is slow, or it would be at its bound after 460 steps.",
    ),
    _paper(
        "hprobunet",
        "Hierarchical Probabilistic U-Net",
        HierarchicalProbUNet("paper"),
        _ged(0.270, 0.530) + ", quoted",
    ),
    _own(
        "hprobunet",
        "Hierarchical Probabilistic U-Net: rate 1e-4, 240,000 steps of 32, no average",
        as_its_authors(HierarchicalProbUNet("paper"), _cosine(1e-4, 1e-5, 240_000), 240_000, data=SHIFTED),
        "three times hprobunet-paper",
        f"its authors have {_ged(0.270, 0.530)}",
        _ELASTIC,
    ),
    # beta is the number of levels: then the loss is the ELBO
    _cpu(
        "jprounet",
        "JPro. U-net: two raters of a slice at once",
        JProUNet("small", beta=5.0, beta_warmup=110, masks_per_image=2),
        notes="More than two raters would share little more: latents enter at every level of both decoders, which run "
        "for each mask.",
    ),
    _paper("jprounet", "JPro. U-net (5.5 M weights)", JProUNet("paper"), _ged(0.260, 0.585)),
    _own(
        "jprounet",
        "JPro. U-net: rate 1e-4, batch 12, 200 epochs, no decay, no average of the weights",
        as_its_authors(JProUNet("paper"), _adam(1e-4), 200 * 805, batch=12),
        "the slices of two thirds of jprounet-paper",
        f"the BerDiff paper has {_ged(0.260, 0.585)} of it",
        "the sum of the norms of all weights, times 1e-5, in the loss; the other set of slices that its authors used "
        "(an epoch of 9,661), shuffled without regard to patients",
    ),
)

# --- an adversary, pixel by pixel, one pass ---------------------------------------------------------------------------

_CAR_STEPS = 500 * 276  # epochs of 8,843 slices
_OTHERS = (
    # a short run has no time for a discriminator that rests and learns at 1e-5
    _cpu(
        "car",
        "CAR: F learns from four raters at once, D in every step",
        CAR("small", samples=4, masks_per_image=4, rate_d=0.2, d_steps=1, d_period=1),
        lr=5e-4,
    ),
    _paper("car", "CAR (8.6 M weights, D at a twentieth of the rate)", CAR("paper"), _ged(0.264, 0.592)),
    _own(
        "car",
        "CAR: F and G at 2e-4, D at 1e-5 in 50 of 250 steps, batch 32, no moving average",
        as_its_authors(CAR("paper"), _cosine(2e-4, 5e-4, _CAR_STEPS), _CAR_STEPS, data=CENTRED),
        "twice car-paper; its authors trained for up to 5 days on a V100",
        f"its authors have {_ged(0.264, 0.592)}",
        "F with weights of ImageNet, Adam with an L2 term (AdamW's decay of the same size is weaker), rates that "
        "halve, each net's at its own epochs until the 500th (here half a cosine until then), a rest of D while its "
        "accuracy is above .85, flips alone (here also turns and mild intensity changes)",
    ),
    # validated rarely: of all methods this one takes longest to sample
    _cpu(
        "pixelseg",
        "PixelSeg: four raters share the U-Net's pass over a slice",
        PixelSeg("small", masks_per_image=4),
        validation=ValidationConfig(every=875, cases=32),
    ),
    _paper("pixelseg", "PixelSeg (3.4 M weights)", PixelSeg("paper"), _ged(0.260, 0.587)),
    _own(
        "pixelseg",
        "PixelSeg: rate 1e-4, 100 epochs of LIDC's 8,843 slices in batches of 12, no average",
        as_its_authors(PixelSeg("paper", foreground_weight=3.0), _adam(1e-4), 73_700, batch=12),
        "a third of pixelseg-paper",
        "its authors report another LIDC set",
        "the 20 % of samples that their test replaces by empty masks; their weight of 3 for marked pixels is kept",
    ),
    _cpu(
        "ssn",
        "SSN: four raters share the draws of a slice; the mean learns first",
        SSN("small", mean_steps=200, masks_per_image=4),
    ),
    _paper("ssn", "SSN (9.2 M weights)", SSN("paper"), NOT_IN_PAPER),
    _own(
        "ssn",
        "SSN: rate 1e-3, 500,000 steps of 12, no decay and no average of the weights",
        as_its_authors(SSN("paper"), _adam(1e-3), 500_000, batch=12, data=CENTRED),
        "twice ssn-paper",
        "its authors report another LIDC set",
        "rotations by any angle and changes of scale (here flips and quarter turns)",
    ),
    _cpu(
        "mose",
        "MoSE: all raters of a slice, two masks of each expert",
        MoSE("small", samples_per_expert=2, cap_steps=400),
    ),
    _paper("mose", "MoSE (9.3 M weights)", MoSE("paper", cap_steps=30_000), NOT_IN_PAPER),
    _own(
        "mose",
        "MoSE: rate 1e-3, 200 epochs of LIDC's 8,843 slices in batches of 16, no average",
        as_its_authors(
            MoSE("paper", cap_steps=110_000 // 3), _cosine(1e-3, 1e-5, 110_000), 110_000, batch=16, data=CENTRED
        ),
        "about as much as mose-paper",
        f"its authors have {_ged(0.213, 0.622)} on another LIDC set",
        "Adam with an L2 term of 1e-5 (AdamW's decay of the same size is weaker), a rate that halves and a cap that "
        "ends when the loss stands still (here half a cosine, and a third of the steps), rotations by up to 10 degrees "
        "(here quarter turns)",
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
_DIFFUSIONS = (
    _cpu(
        "gaussian-small",
        "Gaussian diffusion: network and data of berdiff-small-cpu",
        GaussianDiffusion("small", time_sampling="stratified", sampler=FRESH_NOISE),
    ),
    _cpu(
        "segdiff",
        "SegDiff: a small U-Net behind a small RRDB net",
        SegDiff(time_sampling="stratified", sampler=FRESH_NOISE),
        notes=NOISE,
    ),
    _paper(
        "segdiff", "SegDiff (93 M weights: the paper's U-Net behind 10 RRDB)", SegDiff("paper-128"), _ged(0.248, 0.585)
    ),
    _own(
        "segdiff",
        "SegDiff: their U-Net (122 M), 100 steps of DDPM, AdamW at 1e-4 without decay",
        as_its_authors(
            SegDiff("own", T=100, sampler=GaussianSampler(100, "ddpm")),
            _DDPM,
            300_000,
            batch=4,
            data=SHIFTED,
        ),
        "made for a GPU",
        "its authors do not have LIDC-IDRI",
        "the larger of the two variances of DDPM, and estimates beyond -1 and 1. The rounded mean of nine runs is no "
        "sample",
    ),
    _cpu(
        "medsegdiff",
        "MedSegDiff: a small U-Net and a small condition net",
        MedSegDiff(time_sampling="stratified", sampler=FRESH_NOISE),
        notes=NOISE,
    ),
    _paper(
        "medsegdiff",
        "MedSegDiff (94 M weights: the paper's U-Net and a condition net)",
        MedSegDiff("paper-128"),
        _ged(0.420, 0.413),
    ),
    _own(
        "medsegdiff",
        "MedSegDiff: their U-Net (133 M in all), batch 8, AdamW at 1e-4 without decay",
        as_its_authors(
            MedSegDiff("own", sampler=GaussianSampler(50, sigma=0.0)), _DDPM, 100_000, batch=8, data=SHIFTED
        ),
        "made for a GPU",
        "its authors do not have LIDC-IDRI",
        "a learned variance with its bound, masks as 0 and 1, DPM-Solver (here 50 steps of DDIM); and the joining of "
        "several runs by STAPLE is no sample",
    ),
    _cpu(
        "flow",
        "Flow matching: lidc-cpu's network, raters, schedule and cross-entropy, but Gaussian noise",
        FlowMatching(
            preset="fast", schedule="power2.5", prediction="mask", time_sampling="stratified", masks_per_image=8
        ),
        notes="Ten steps of Euler's rule: in five, it draws too few of the rarer masks (docs/methods/flow.md).",
    ),
    _paper("flow", "Flow matching (the paper's U-Net of 85.6 M weights)", FlowMatching("paper-128"), NOT_IN_PAPER),
    _own(
        "flow",
        "Flow matching (MedFM): its U-Net of 9 M, the velocity, 250 steps of Euler's rule, 1e-4 falling to 0",
        as_its_authors(
            FlowMatching("medfm", sampler=FlowSampler(steps=250)),
            _falling(280_000),
            280_000,
            batch=16,
            data=SHIFTED,
        ),
        "made for a GPU, a tenth of flow-paper's per image",
        f"MedFM has {_ged(0.202, 0.610)} (another preparation of LIDC-IDRI)",
        "t as a real number (here one of 1000), dropout of .1, a straight fall to 1e-6 (here the power .9 to 0); 500 "
        "epochs of its split are about 280,000 steps of 16",
    ),
    # not clipped, as its authors: with norm 1 the sum's gradients keep their size while the estimate runs past all
    # masks
    _cpu(
        "ccdm",
        "CCDM: lidc-cpu's network and raters with CCDM's schedule, loss and 250 steps",
        _CCDM_CPU,
        optim=replace(lidc_hour(_CCDM_CPU).optim, clip_norm=None),
    ),
    _paper("ccdm", "CCDM's diffusion (the paper's U-Net of 85.6 M weights)", _ccdm("paper-128", 128), NOT_IN_PAPER),
    _own(
        "ccdm",
        "CCDM: their U-Net of 5.7 M, all 250 steps, 1e-4 falling to 0",
        as_its_authors(_ccdm("ccdm", 128), _falling(1_000_000), 1_000_000, batch=16, data=CENTRED),
        "made for a GPU",
        f"its authors have {_ged(0.239, 0.598)} on the HPU-Net's crops",
        "a straight fall to 1e-6 (here the power .9 to 0), one output per class (here one per pixel, which is the same "
        "law). 2,000 epochs of their split are about a million steps of 16",
    ),
)

# --- BraTS: one answer per image, the whole slice, but for SegDiff ----------------------------------------------------


def _brats(
    name: str,
    title: str,
    weights: tuple[str, str],
    small: DeterministicConfig,
    full: DeterministicConfig,
    dice: str | None,
    lr: float = 1e-3,
) -> tuple[Recipe, Recipe]:
    figures = NOT_IN_PAPER if dice is None else f"Dice {dice} % (its test set)"
    few, many = weights
    return (
        _cpu(name, f"{title} with {few}", small, lr, on="brats"),
        _paper(name, f"{title} with {many}", full, figures, on="brats"),
    )


def _brats_own(
    name: str, what: str, model: DeterministicConfig, optim: OptimConfig, expected: str, batch: int = 32
) -> Recipe:
    steps = optim.decay_steps or 0
    cost = f"{GPU}; as {name}-paper" if steps == 86_500 else f"{GPU}; three times {name}-paper"
    config = as_its_authors(model, optim, steps, batch, CENTRED, on="brats")
    return _own(name, what, config, cost, expected, on="brats")


def _sgd(decay: float, momentum: float, steps: int) -> OptimConfig:
    return OptimConfig(
        kind="sgd", lr=1e-2, weight_decay=decay, momentum=momentum, ema_decay=0.0, decay="poly", decay_steps=steps
    )


_THREE_D, _THOUSAND = "its authors train in 3D", 1000 * 250
_BRATS = (
    *_brats(
        "unet",
        "The U-net of the diffusion",
        ("the `small` network", "the 224x224 network"),
        UNet("small"),
        UNet("paper-224"),
        "89.2",
    ),
    *_brats(
        "nnunet", "nnU-Net's network", ("3.3 M weights", "20.6 M weights"), NNUNet("small"), NNUNet("paper"), "88.2"
    ),
    _brats_own(
        "nnunet",
        "nnU-Net: SGD with Nesterov's momentum, poly decay over 1000 x 250 steps",
        NNUNet("paper"),
        replace(_sgd(3e-5, 0.99, _THOUSAND), nesterov=True, clip_norm=12.0),
        "its augmentation, oversampling and test-time mirroring are not here",
    ),
    *_brats(
        "transunet",
        "TransU-Net",
        ("6.0 M fresh weights", "105.3 M fresh weights (the paper does not say from which)"),
        TransUNet("small"),
        TransUNet("paper"),
        "88.6",
        lr=3e-4,
    ),
    _brats_own(
        "transunet",
        "TransU-Net: SGD, poly decay over 150 epochs of the paper's 55,174 slices",
        TransUNet("paper", lambda_bce=0.5, lambda_dice=0.5),
        _sgd(1e-4, 0.9, 150 * 55_174 // 24),
        "its authors begin from ImageNet's weights, this from fresh ones",
        batch=24,
    ),
    *_brats(
        "swinunetr",
        "Swin UNETR",
        ("6.3 M weights", "25.1 M weights"),
        SwinUNETR("small"),
        SwinUNETR("paper"),
        "89.0",
        lr=5e-4,
    ),
    _brats_own(
        "swinunetr",
        "Swin UNETR: the soft Dice loss alone, a sixth of the steps as warm-up, then a cosine",
        SwinUNETR("paper", lambda_bce=0.0),
        replace(_cosine(1e-4, 1e-5, 86_500), warmup_steps=86_500 // 6),
        _THREE_D,
    ),
    *_brats("mednext", "MedNeXt", ("3.1 M weights", "5.5 M weights (S)"), MedNeXt("small"), MedNeXt("paper"), None),
    _brats_own(
        "mednext",
        "MedNeXt: AdamW at 1e-3 and nnU-Net's poly decay over 1000 x 250 steps",
        MedNeXt("paper"),
        replace(_falling(_THOUSAND), lr=1e-3, weight_decay=3e-5, clip_norm=12.0, ema_decay=0.0, ema_warmup=True),
        _THREE_D,
    ),
    # the data, batch and rate of unet-cpu, whose U-Net it has
    _cpu(
        "segdiff-brats",
        "SegDiff: the data, batch and rate of unet-cpu, whose U-Net it has",
        SegDiff(time_sampling="stratified", sampler=FRESH_NOISE),
        on="brats",
        validation=ValidationConfig(every=500, cases=64),
    ),
    _paper(
        "segdiff-brats",
        "SegDiff (121 M weights: the U-Net of brats-paper behind 10 RRDB)",
        SegDiff("paper-224"),
        "Dice 89.3 % (its test set)",
        on="brats",
    ),
)

RECIPES = (*_LATENT, *_OTHERS, *_DIFFUSIONS, *_BRATS)
