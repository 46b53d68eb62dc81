"""Recipes of the other diffusions: SegDiff, MedSegDiff, flow matching, and CCDM, which is BerDiff with other settings.

`-cpu` is for two cores, `-paper` the BerDiff paper's statement about all methods it compares (AdamW, batch 32, 5e-5),
`-own` what the method's authors say, as far as our settings express it.
"""

from dataclasses import replace

from berdiff.diffusion.sampler import Sampler
from berdiff.experiments.recipes.shared import FRESH_NOISE, compared_cpu, compared_paper
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.config import M
from berdiff.methods.flow import FlowMatching
from berdiff.methods.gaussian import GaussianDiffusion
from berdiff.methods.medsegdiff import MedSegDiff
from berdiff.methods.segdiff import SegDiff
from berdiff.training.config import DataConfig, OptimConfig, TrainConfig

# --- for two cores ---------------------------------------------------------------------------------------------------


def gaussian_small_cpu() -> TrainConfig[GaussianDiffusion]:
    """Gaussian diffusion on the network and data of berdiff-small-cpu.

    command: berdiff train gaussian-small-cpu --data lidc.zarr --out runs/gaussian-small-cpu
    cost: at most 60 minutes of CPU time, half of that on two cores; 1 GB of memory per core
    expected: its row of docs/results/table-3-lidc.md
    """
    return compared_cpu(
        "gaussian-small-cpu", GaussianDiffusion("small", time_sampling="stratified", sampler=FRESH_NOISE)
    )


def segdiff_cpu() -> TrainConfig[SegDiff]:
    """SegDiff on two CPU cores: the centre 64x64, a small U-Net behind a small RRDB net.

    It predicts the noise, as its authors' does, which learns masks slowly; `--model.prediction mask` is faster.

    command: berdiff train segdiff-cpu --data lidc.zarr --out runs/segdiff-cpu
    cost: at most 60 minutes of CPU time, half of that on two cores; 1 GB of memory per core
    expected: its row of docs/results/table-3-lidc.md
    """
    return compared_cpu("segdiff-cpu", SegDiff(time_sampling="stratified", sampler=FRESH_NOISE))


def medsegdiff_cpu() -> TrainConfig[MedSegDiff]:
    """MedSegDiff on two CPU cores: the centre 64x64, a small U-Net and a small condition net.

    It predicts the noise, as its authors' does, which learns masks slowly; `--model.prediction mask` is faster.

    command: berdiff train medsegdiff-cpu --data lidc.zarr --out runs/medsegdiff-cpu
    cost: at most 60 minutes of CPU time, half of that on two cores; 1 GB of memory per core
    expected: its row of docs/results/table-3-lidc.md
    """
    return compared_cpu("medsegdiff-cpu", MedSegDiff(time_sampling="stratified", sampler=FRESH_NOISE))


def flow_cpu() -> TrainConfig[FlowMatching]:
    """Flow matching on two CPU cores: lidc-cpu's network, raters, schedule and cross-entropy, but Gaussian noise.

    Ten steps of Euler's rule: in five, it draws too few of the rarer masks (docs/methods/flow.md).

    command: berdiff train flow-cpu --data lidc.zarr --out runs/flow-cpu
    cost: at most 60 minutes of CPU time, half of that on two cores; 1 GB of memory per core
    expected: its row of docs/results/table-3-lidc.md
    """
    model = FlowMatching(
        preset="fast", schedule="power2.5", prediction="mask", time_sampling="stratified", masks_per_image=8
    )
    return compared_cpu("flow-cpu", model)


def ccdm_cpu() -> TrainConfig[BerDiff]:
    """CCDM on two CPU cores: lidc-cpu's network and raters with CCDM's schedule, loss and 250 steps.

    command: berdiff train ccdm-cpu --data lidc.zarr --out runs/ccdm-cpu
    cost: at most 60 minutes of CPU time, half of that on two cores; 1 GB of memory per core
    expected: its row of docs/results/table-3-lidc.md
    """
    model = replace(_ccdm("fast", 64), time_sampling="stratified", masks_per_image=8)
    config = compared_cpu("ccdm-cpu", model)
    # as its authors: clipped to norm 1, the sum's gradients keep their size while the estimate runs past all masks
    return replace(config, optim=replace(config.optim, clip_norm=None))


# --- as the BerDiff paper says of all methods ------------------------------------------------------------------------


def segdiff_paper() -> TrainConfig[SegDiff]:
    """SegDiff as the BerDiff paper states for all methods: the paper's U-Net behind 10 RRDB, AdamW at 5e-5; 93 M.

    command: berdiff train segdiff-paper --data lidc.zarr --out runs/segdiff-paper
    cost: made for a GPU; `--dry-run` measures memory and time on the machine at hand
    expected: the paper has GED16 .248, HM-IoU16 .585 (its test set); not yet trained by us
    """
    return compared_paper("segdiff-paper", SegDiff("paper-128"))


def medsegdiff_paper() -> TrainConfig[MedSegDiff]:
    """MedSegDiff as the BerDiff paper states for all methods: the paper's U-Net and a condition net; 94 M.

    command: berdiff train medsegdiff-paper --data lidc.zarr --out runs/medsegdiff-paper
    cost: made for a GPU; `--dry-run` measures memory and time on the machine at hand
    expected: the paper has GED16 .420, HM-IoU16 .413 (its test set); not yet trained by us
    """
    return compared_paper("medsegdiff-paper", MedSegDiff("paper-128"))


def flow_paper() -> TrainConfig[FlowMatching]:
    """Flow matching as the BerDiff paper trains what it compares: its U-Net of 85.6 M, AdamW at 5e-5, batch 32.

    command: berdiff train flow-paper --data lidc.zarr --out runs/flow-paper
    cost: made for a GPU; `--dry-run` measures memory and time on the machine at hand
    expected: the paper does not have it; not yet trained by us
    """
    return compared_paper("flow-paper", FlowMatching("paper-128"))


def ccdm_paper() -> TrainConfig[BerDiff]:
    """CCDM's diffusion as the BerDiff paper trains what it compares: its U-Net of 85.6 M, AdamW at 5e-5, batch 32.

    command: berdiff train ccdm-paper --data lidc.zarr --out runs/ccdm-paper
    cost: made for a GPU; `--dry-run` measures memory and time on the machine at hand
    expected: the paper does not have it; not yet trained by us
    """
    return compared_paper("ccdm-paper", _ccdm("paper-128", 128))


# --- as their authors say --------------------------------------------------------------------------------------------


def segdiff_own() -> TrainConfig[SegDiff]:
    """SegDiff with its authors' settings: their U-Net (122 M), 100 steps of DDPM, AdamW at 1e-4 without decay.

    What cannot be said here: the larger of the two variances of DDPM, and estimates beyond -1 and 1. The rounded mean
    of nine runs is no sample.

    command: berdiff train segdiff-own --data lidc.zarr --out runs/segdiff-own
    cost: made for a GPU
    expected: its authors do not have LIDC-IDRI; not yet trained by us
    """
    model = SegDiff("own", T=100, sampler=Sampler(steps=100, rule="ddpm"))
    optim = OptimConfig(lr=1e-4, weight_decay=0.0, ema_warmup=False)
    return _own("segdiff-own", model, optim, batch_size=4, steps=300_000)


def medsegdiff_own() -> TrainConfig[MedSegDiff]:
    """MedSegDiff with its authors' settings: their U-Net (133 M in all), batch 8, AdamW at 1e-4 without decay.

    What cannot be said here: a learned variance with its bound, masks as 0 and 1, DPM-Solver (here 50 steps of DDIM);
    and the joining of several runs by STAPLE is no sample.

    command: berdiff train medsegdiff-own --data lidc.zarr --out runs/medsegdiff-own
    cost: made for a GPU
    expected: its authors do not have LIDC-IDRI; not yet trained by us
    """
    model = MedSegDiff("own", sampler=Sampler(steps=50, sigma=0.0))
    optim = OptimConfig(lr=1e-4, weight_decay=0.0, ema_warmup=False)
    return _own("medsegdiff-own", model, optim, batch_size=8, steps=100_000)


def flow_own() -> TrainConfig[FlowMatching]:
    """Flow matching as MedFM has it: its U-Net of 9 M, the velocity, 250 steps of Euler's rule, 1e-4 falling to 0.

    What cannot be said here: t as a real number (here one of 1000), dropout of .1, a straight fall to 1e-6 (here the
    power .9 to 0); 500 epochs of its split are about 280,000 steps of 16.

    command: berdiff train flow-own --data lidc.zarr --out runs/flow-own
    cost: made for a GPU, a tenth of flow-paper's per image
    expected: MedFM has GED16 .202, HM-IoU16 .610 (another preparation of LIDC-IDRI); not yet trained by us
    """
    model = FlowMatching("medfm", sampler=Sampler(steps=250, sigma=0.0))
    return _own("flow-own", model, _falling(280_000), batch_size=16, steps=280_000)


def ccdm_own() -> TrainConfig[BerDiff]:
    """CCDM with its authors' settings: their U-Net of 5.7 M, all 250 steps, 1e-4 falling to 0.

    What cannot be said here: a straight fall to 1e-6 (here the power .9 to 0), one output per class (here one per
    pixel, which is the same law). 2,000 epochs of their split are about a million steps of 16.

    command: berdiff train ccdm-own --data lidc.zarr --out runs/ccdm-own
    cost: made for a GPU
    expected: its authors have GED16 .239, HM-IoU16 .598 on the HPU-Net's crops; not yet trained by us
    """
    config = _own("ccdm-own", _ccdm("ccdm", 128), _falling(1_000_000), batch_size=16, steps=1_000_000)
    return replace(config, data=replace(config.data, shift=0))


# --- what they share -------------------------------------------------------------------------------------------------


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


def _own(name: str, model: M, optim: OptimConfig, batch_size: int, steps: int) -> TrainConfig[M]:
    config = compared_paper(name, model)
    loop = replace(config.loop, batch_size=batch_size, max_steps=steps)
    return replace(config, data=DataConfig(augment=True), optim=optim, loop=loop)


def _falling(steps: int) -> OptimConfig:
    """Adam at 1e-4, falling over all of the training."""
    return OptimConfig(lr=1e-4, weight_decay=0.0, decay="poly", decay_steps=steps, ema_warmup=False)


RECIPES = (
    *(gaussian_small_cpu, segdiff_cpu, medsegdiff_cpu, flow_cpu, ccdm_cpu),
    *(segdiff_paper, medsegdiff_paper, flow_paper, ccdm_paper),
    *(segdiff_own, medsegdiff_own, flow_own, ccdm_own),
)
