"""Recipes of BerDiff itself."""

from dataclasses import replace
from typing import Any

from berdiff.diffusion.sampler import Sampler
from berdiff.experiments.recipes.shared import TWO_CORES, compared_cpu
from berdiff.methods.berdiff import BerDiff
from berdiff.training.config import DataConfig, LoopConfig, OptimConfig, TrainConfig, ValidationConfig


def lidc_paper() -> TrainConfig[BerDiff]:
    """The paper's LIDC-IDRI model: 128x128, 85.6 M weights, batch 32, AdamW at 5e-5, 21,000 iterations.

    command: berdiff train lidc-paper --data lidc.zarr --out runs/lidc-paper
    cost: made for a GPU (--engine.precision bf16-mixed); `--dry-run` measures memory and time on the machine at hand
    expected: the paper has GED16 .249, HM-IoU16 .575 (its test set); not yet trained by us
    """
    return TrainConfig(
        recipe="lidc-paper",
        model=BerDiff(preset="paper-128"),
        optim=OptimConfig(lr=5e-5),
        loop=LoopConfig(batch_size=32, max_steps=21_000, checkpoint_every=1000),
        validation=ValidationConfig(every=1000, cases=100),
    )


def lidc_paper_long() -> TrainConfig[BerDiff]:
    """The same for 86,500 iterations, the paper's long run.

    command: berdiff train lidc-paper-long --data lidc.zarr --out runs/lidc-paper-long
    cost: four times lidc-paper
    expected: the paper has GED16 .238, HM-IoU16 .596 (its test set); not yet trained by us
    """
    config = lidc_paper()
    return replace(config, recipe="lidc-paper-long", loop=replace(config.loop, max_steps=86_500))


def brats_paper() -> TrainConfig[BerDiff]:
    """The paper's BraTS 2021 model: 224x224, four sequences, batch 32, AdamW at 1e-4.

    command: berdiff train brats-paper --data brats.zarr --out runs/brats-paper
    cost: made for a GPU; where it does not fit, --loop.accumulate 2 or 4 gives the same result in less memory
    expected: the paper has Dice 89.7 %, without its iterations (86,500 is the longest it names); not yet trained by us
    """
    return TrainConfig(
        recipe="brats-paper",
        model=BerDiff(preset="paper-224"),
        optim=OptimConfig(lr=1e-4),
        loop=LoopConfig(batch_size=32, max_steps=86_500, checkpoint_every=1000),
        validation=ValidationConfig(every=2000, cases=64, samples=4),
    )


def lidc_cpu() -> TrainConfig[BerDiff]:
    """LIDC-IDRI on two CPU cores: the centre 64x64, the encode-once network with a hurdle, all raters of a slice.

    command: berdiff train lidc-cpu --data lidc.zarr --out runs/lidc-cpu
    cost: 75 minutes on two quiet cores, 1 GB of memory per core
    expected: see docs/results.md, which also holds the searches behind these settings
    """
    return TrainConfig(
        recipe="lidc-cpu",
        model=_with_hurdle(),
        # nodules are in the middle of their crops, and that is informative
        data=DataConfig(crop=64, augment=True, shift=0),
        optim=OptimConfig(
            lr=1.5e-3, warmup_steps=200, decay="cosine", decay_steps=10_000, clip_norm=1.0, ema_decay=0.999
        ),
        loop=LoopConfig(batch_size=16, max_steps=10_000, checkpoint_every=500, log_every=50),
        validation=ValidationConfig(every=2000, cases=128),
        engine=TWO_CORES,
    )


def lidc_cpu_energy() -> TrainConfig[BerDiff]:
    """`lidc-cpu`, trained on with the energy score: the bundled model `lidc`. Without --init it trains lidc-cpu first.

    command: berdiff train lidc-cpu-energy --seed 1 --data lidc.zarr --out runs/lidc
    cost: 95 minutes on two quiet cores, 1 GB of memory per core; from a finished lidc-cpu (--init RUN) 20
    expected: see docs/results.md
    """
    return replace(
        lidc_cpu(),
        recipe="lidc-cpu-energy",
        model=replace(_with_hurdle(), energy=0.05),
        optim=replace(lidc_cpu().optim, lr=5e-4, decay_steps=2500),
        loop=replace(lidc_cpu().loop, max_steps=2500),
        validation=ValidationConfig(every=2500, cases=128),
    )


def before_energy(config: TrainConfig[Any]) -> TrainConfig[Any]:
    """`lidc-cpu` as `lidc-cpu-energy` with this configuration begins from it: same data, seed, network and machine."""
    # --model.method may have put another in its place, which has no energy score
    model = replace(config.model, energy=0.0) if isinstance(config.model, BerDiff) else config.model
    return replace(lidc_cpu(), seed=config.seed, model=model, data=config.data, engine=config.engine)


def berdiff_cpu() -> TrainConfig[BerDiff]:
    """`lidc-cpu` with the budget of the compared methods.

    command: berdiff train berdiff-cpu --data lidc.zarr --out runs/berdiff-cpu
    cost: at most 60 minutes of CPU time, half of that on two cores; 1 GB of memory per core
    expected: see docs/results.md
    """
    return compared_cpu("berdiff-cpu", _with_hurdle(), lr=1.5e-3)


def berdiff_small_cpu() -> TrainConfig[BerDiff]:
    """The paper's method on a small U-Net of its shape, with the budget of the compared methods.

    command: berdiff train berdiff-small-cpu --data lidc.zarr --out runs/berdiff-small-cpu
    cost: at most 60 minutes of CPU time, half of that on two cores; 1 GB of memory per core
    expected: see docs/results.md
    """
    return compared_cpu("berdiff-small-cpu", BerDiff("small", time_sampling="stratified"))


def lidc_cpu_paper() -> TrainConfig[BerDiff]:
    """The same data and cores with the paper's method: a small U-Net of its shape, its schedule, prediction and losses.

    command: berdiff train lidc-cpu-paper --data lidc.zarr --out runs/lidc-cpu-paper
    cost: 30 minutes on two cores, 1 GB of memory
    expected: see docs/results.md
    """
    return TrainConfig(
        recipe="lidc-cpu-paper",
        model=BerDiff(preset="small", time_sampling="stratified"),
        data=DataConfig(crop=64, augment=True),
        optim=OptimConfig(lr=5e-4, warmup_steps=200, clip_norm=1.0, ema_decay=0.999),
        # in a fixed time, many small steps teach more than few large ones
        loop=LoopConfig(batch_size=8, max_steps=100_000, max_minutes=30, checkpoint_every=500, log_every=50),
        validation=ValidationConfig(every=1000, cases=32),
    )


def demo() -> TrainConfig[BerDiff]:
    """A few minutes on the data that comes with the package (real readers, simulated CT): a narrow encode-once network.

    command: berdiff train demo --out runs/demo
    cost: 5 minutes on two cores, 1 GB of memory per core
    expected: loss and GED fall; samples that look like nodules
    """
    return TrainConfig(
        recipe="demo",
        model=fast("fast-tiny"),
        data=DataConfig(crop=64, augment=True, shift=0),
        optim=OptimConfig(lr=2e-3, warmup_steps=50, clip_norm=1.0, ema_decay=0.99),
        loop=LoopConfig(batch_size=16, max_steps=20_000, max_minutes=5, checkpoint_every=200, log_every=20),
        validation=ValidationConfig(every=200, cases=16),
        engine=TWO_CORES,
    )


def fast(preset: str) -> BerDiff:
    """What the searches on the validation split chose (docs/results.md); of the samplers, `berdiff search`: better than
    the paper's ten steps, in half the time."""
    return BerDiff(
        preset=preset,
        schedule="power2.5",
        prediction="mask",
        lambda_kl=0.0,
        time_sampling="stratified",
        masks_per_image=8,
        sampler=Sampler(steps=5, noise="shared"),
    )


def _with_hurdle() -> BerDiff:
    """Three steps are better with a hurdle than five (docs/results/better-masks.md)."""
    sampler = Sampler(steps=3, noise="shared", views=4, smallest=4)
    return replace(fast("fast"), hurdle=0.05, masks_per_image=4, sampler=sampler)


RECIPES = (lidc_paper, lidc_paper_long, brats_paper, lidc_cpu, lidc_cpu_energy, lidc_cpu_paper, demo)
RECIPES += (berdiff_cpu, berdiff_small_cpu)
FIRST_STAGES = {"lidc-cpu-energy": before_energy}
