"""Recipes of diffusions on BraTS: the whole tumour and its three nested regions for two cores, SegDiff at full size."""

from dataclasses import replace
from typing import Any

from berdiff.diffusion.sampler import Sampler
from berdiff.experiments.recipes.bernoulli import brats_paper, fast
from berdiff.experiments.recipes.deterministic import CPU_MINUTES, unet_cpu
from berdiff.experiments.recipes.shared import FRESH_NOISE, MAX_STEPS, TWO_CORES
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.segdiff import SegDiff
from berdiff.training.config import DataConfig, LoopConfig, OptimConfig, TrainConfig, ValidationConfig

INNER_WEIGHT = 4  # core and enhancing part are thousandths of a slice; by 1 they are not learnt in that time


def brats_cpu() -> TrainConfig[BerDiff]:
    """The whole tumour in BraTS slices of 128x128, four sequences: the encode-once network with a hurdle.

    command: berdiff train brats-cpu --data brats.zarr --out runs/brats-cpu
    cost: 90 CPU minutes, so 45 minutes on two cores, 1 GB of memory per core
    expected: see docs/results.md
    """
    return _cpu("brats-cpu")


def brats_regions_cpu() -> TrainConfig[BerDiff]:
    """Whole tumour, tumour core and enhancing tumour, each inside the one before it: a store with `--targets regions`.

    command: berdiff train brats-regions-cpu --data brats-regions.zarr --out runs/brats-regions-cpu
    cost: 90 CPU minutes, so 45 minutes on two cores, 1 GB of memory per core
    expected: see docs/results.md
    """
    config = _cpu("brats-regions-cpu")
    return replace(config, model=replace(config.model, inner_weight=INNER_WEIGHT))


def berdiff_brats_cpu() -> TrainConfig[BerDiff]:
    """`brats-cpu` with the budget of the compared methods.

    command: berdiff train berdiff-brats-cpu --data brats.zarr --out runs/berdiff-brats-cpu
    cost: 40 CPU minutes, so 20 minutes on two cores, 1 GB of memory per core
    expected: see docs/results.md
    """
    return _cpu("berdiff-brats-cpu", CPU_MINUTES)


def segdiff_brats_cpu() -> TrainConfig[SegDiff]:
    """SegDiff on BraTS slices of 128x128: the data, batch and rate of unet-cpu, whose U-Net it has.

    command: berdiff train segdiff-brats-cpu --data brats.zarr --out runs/segdiff-brats-cpu
    cost: 40 CPU minutes, so 20 minutes on two cores, 1 GB of memory per core
    expected: its row of docs/results/table-4-brats.md
    """
    unet: TrainConfig[Any] = unet_cpu()
    model, validation = SegDiff(time_sampling="stratified", sampler=FRESH_NOISE), ValidationConfig(every=500, cases=64)
    return replace(unet, recipe="segdiff-brats-cpu", model=model, validation=validation)


def segdiff_brats_paper() -> TrainConfig[SegDiff]:
    """SegDiff as the BerDiff paper states for all methods on BraTS: the U-Net of brats-paper behind 10 RRDB; 121 M.

    command: berdiff train segdiff-brats-paper --data brats.zarr --out runs/segdiff-brats-paper
    cost: made for a GPU; `--dry-run` measures memory and time on the machine at hand
    expected: the paper has Dice 89.3 % (its test set); not yet trained by us
    """
    berdiff: TrainConfig[Any] = brats_paper()
    return replace(berdiff, recipe="segdiff-brats-paper", model=SegDiff("paper-224"))


def _cpu(name: str, cpu_minutes: float = 90.0) -> TrainConfig[Any]:
    """There is one rater, so an encoding teaches one mask at four noise levels."""
    sampler = Sampler(steps=5, noise="shared", views=4)
    return TrainConfig(
        recipe=name,
        model=replace(fast("fast"), hurdle=0.05, masks_per_image=4, sampler=sampler),
        data=DataConfig(augment=True, shift=4),
        optim=OptimConfig(lr=1.5e-3, warmup_steps=100, decay="cosine", clip_norm=1.0, ema_decay=0.998),
        loop=LoopConfig(
            batch_size=16, max_steps=MAX_STEPS, max_cpu_minutes=cpu_minutes, checkpoint_every=100, log_every=50
        ),
        validation=ValidationConfig(every=500, cases=64),
        engine=TWO_CORES,
    )


RECIPES = (brats_cpu, brats_regions_cpu, berdiff_brats_cpu, segdiff_brats_cpu, segdiff_brats_paper)
