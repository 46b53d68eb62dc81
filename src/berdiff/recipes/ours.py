"""Recipes of BerDiff itself: for anyone's data, for two cores, and the paper's."""

from dataclasses import replace
from typing import Any

from berdiff.diffusion.sampler import Sampler
from berdiff.methods.berdiff import BerDiff
from berdiff.recipes.recipe import (
    BRATS_MINUTES,
    CENTRE,
    GPU,
    HOUR,
    MAX_STEPS,
    TWO_CORES,
    Recipe,
    as_the_paper,
    lidc_hour,
)
from berdiff.training.config import DataConfig, LoopConfig, OptimConfig, TrainConfig, ValidationConfig

# What the searches on the validation split chose (docs/results.md); of the samplers, `berdiff search`: better than the
# paper's ten steps, in half the time.
FAST = BerDiff(
    preset="fast",
    schedule="power2.5",
    prediction="mask",
    lambda_kl=0.0,
    time_sampling="stratified",
    masks_per_image=8,
    sampler=Sampler(steps=5, noise="shared"),
)
# Three steps are better with a hurdle than five (docs/results/better-masks.md).
HURDLE = replace(FAST, hurdle=0.05, masks_per_image=4, sampler=Sampler(steps=3, noise="shared", views=4, smallest=4))
FOUR_VIEWS = replace(FAST, masks_per_image=4, sampler=Sampler(steps=5, noise="shared", views=4))
# core and enhancing part are thousandths of a slice; by 1 they are not learnt in that time
INNER_WEIGHT = 4
LEFT_OPEN = ("data.patch", "loop.batch_size", "optim.warmup_steps", "validation.cases")
LEFT_OPEN += ("model.masks_per_image", "model.hurdle", "model.inner_weight")
LEFT_OPEN += ("engine.accelerator", "engine.devices", "engine.threads")

OWN = TrainConfig(
    left_open=LEFT_OPEN,  # planned from the store when a training begins
    model=FOUR_VIEWS,
    data=DataConfig(augment=True),
    optim=OptimConfig(lr=1.5e-3, warmup_steps=100, decay="cosine", clip_norm=1.0, ema_decay=0.998),
    loop=LoopConfig(batch_size=8, max_steps=MAX_STEPS, max_minutes=30, checkpoint_every=100, log_every=50),
    validation=ValidationConfig(every=500),
)
DEMO = TrainConfig(
    model=replace(FAST, preset="fast-tiny"),
    data=CENTRE,
    optim=OptimConfig(lr=2e-3, warmup_steps=50, clip_norm=1.0, ema_decay=0.99),
    loop=LoopConfig(batch_size=16, max_steps=20_000, max_minutes=5, checkpoint_every=200, log_every=20),
    validation=ValidationConfig(every=200, cases=16),
    engine=TWO_CORES,
)
LIDC_CPU = TrainConfig(
    model=HURDLE,
    data=CENTRE,
    optim=OptimConfig(lr=1.5e-3, warmup_steps=200, decay="cosine", decay_steps=10_000, clip_norm=1.0, ema_decay=0.999),
    loop=LoopConfig(batch_size=16, max_steps=10_000, checkpoint_every=500, log_every=50),
    validation=ValidationConfig(every=2000, cases=128),
    engine=TWO_CORES,
)
LIDC_CPU_ENERGY = replace(
    LIDC_CPU,
    model=replace(HURDLE, energy=0.05),
    optim=replace(LIDC_CPU.optim, lr=5e-4, decay_steps=2500),
    loop=replace(LIDC_CPU.loop, max_steps=2500),
    validation=ValidationConfig(every=2500, cases=128),
)
LIDC_CPU_PAPER = TrainConfig(
    model=BerDiff(preset="small", time_sampling="stratified"),
    data=DataConfig(crop=64, augment=True),
    optim=OptimConfig(lr=5e-4, warmup_steps=200, clip_norm=1.0, ema_decay=0.999),
    # in a fixed time, many small steps teach more than few large ones
    loop=LoopConfig(batch_size=8, max_steps=100_000, max_minutes=30, checkpoint_every=500, log_every=50),
    validation=ValidationConfig(every=1000, cases=32),
)


def _brats_cpu(minutes: float = 90.0, inner_weight: float = 1.0) -> TrainConfig[BerDiff]:
    """There is one rater, so an encoding teaches one mask at four noise levels."""
    return TrainConfig(
        model=replace(FOUR_VIEWS, hurdle=0.05, inner_weight=inner_weight),
        data=DataConfig(augment=True, shift=4),
        optim=OptimConfig(lr=1.5e-3, warmup_steps=100, decay="cosine", clip_norm=1.0, ema_decay=0.998),
        loop=LoopConfig(
            batch_size=16, max_steps=MAX_STEPS, max_cpu_minutes=minutes, checkpoint_every=100, log_every=50
        ),
        validation=ValidationConfig(every=500, cases=64),
        engine=TWO_CORES,
    )


def before_energy(config: TrainConfig[Any]) -> TrainConfig[Any]:
    """`lidc-cpu` as `lidc-cpu-energy` with this configuration begins from it: same data, seed, network and machine."""
    # --model.method may have put another in its place, which has no energy score
    model = replace(config.model, energy=0.0) if isinstance(config.model, BerDiff) else config.model
    first = replace(LIDC_CPU, recipe="lidc-cpu")
    return replace(first, seed=config.seed, model=model, data=config.data, engine=config.engine)


SEE = "see docs/results.md"
BRATS_COST = "{} CPU minutes, so {} minutes on two cores, 1 GB of memory per core"
PLANNED = """\
planned: --data.patch (whole images up to 160 pixels wide, larger ones by random patches of 128)

planned: --loop.batch-size (by the number of pixels), --optim.warmup-steps, --validation.cases

planned: --model.masks-per-image (by the raters), --model.hurdle (where some raters' masks are empty)

planned: --model.inner-weight (of nested targets), --engine.accelerator, --engine.devices, --engine.threads

A planned setting that is given as a flag is taken as given. The plan is printed, and a resumed run keeps it."""

RECIPES = (
    Recipe(
        "own",
        "Your own images and masks: BerDiff on the encode-once network, planned from the store when training begins.",
        "30 minutes (--max-minutes) on two cores, 1 GB of memory per core, or on a GPU",
        "the same Dice by `berdiff evaluate` and by `berdiff segment`; how high depends on the data",
        OWN,
        store="mine.zarr",
        notes=PLANNED,
    ),
    Recipe(
        "demo",
        "A few minutes on the data that comes with the package (real readers, simulated CT): a narrow network.",
        "5 minutes on two cores, 1 GB of memory per core",
        "loss and GED fall; samples that look like nodules",
        DEMO,
        store=None,
    ),
    Recipe(
        "lidc-cpu",
        "LIDC-IDRI on two CPU cores: the centre 64x64, the encode-once network with a hurdle, all raters of a slice.",
        "75 minutes on two quiet cores, 1 GB of memory per core",
        "see docs/results.md, which also holds the searches behind these settings",
        LIDC_CPU,
    ),
    Recipe(
        "lidc-cpu-energy",
        "`lidc-cpu`, trained on with the energy score; with --seed 1 the bundled model `lidc`.",
        "95 minutes on two quiet cores, 1 GB of memory per core; from a finished lidc-cpu (--init RUN) 20",
        SEE,
        LIDC_CPU_ENERGY,
        notes="Without --init it trains lidc-cpu first.",
    ),
    Recipe(
        "lidc-cpu-paper",
        "The data and cores of lidc-cpu with the paper's method: a small U-Net of its shape, its schedule and losses.",
        "30 minutes on two cores, 1 GB of memory",
        SEE,
        LIDC_CPU_PAPER,
    ),
    Recipe(
        "lidc-paper",
        "The paper's LIDC-IDRI model: 128x128, 85.6 M weights, batch 32, AdamW at 5e-5, 21,000 iterations.",
        f"{GPU}; --engine.precision bf16-mixed",
        "the paper has GED16 .249, HM-IoU16 .575 (its test set)",
        as_the_paper(BerDiff(preset="paper-128"), steps=21_000),
        trained=False,
    ),
    Recipe(
        "lidc-paper-long",
        "`lidc-paper` for 86,500 iterations, the paper's long run.",
        "four times lidc-paper",
        "the paper has GED16 .238, HM-IoU16 .596 (its test set)",
        as_the_paper(BerDiff(preset="paper-128")),
        trained=False,
    ),
    Recipe(
        "brats-cpu",
        "The whole tumour in BraTS slices of 128x128, four sequences: the encode-once network with a hurdle.",
        BRATS_COST.format(90, 45),
        SEE,
        _brats_cpu(),
        store="brats.zarr",
    ),
    Recipe(
        "brats-regions-cpu",
        "Whole tumour, core and enhancing tumour, each inside the one before it: a store with `--targets regions`.",
        BRATS_COST.format(90, 45),
        SEE,
        _brats_cpu(inner_weight=INNER_WEIGHT),
        store="brats-regions.zarr",
    ),
    Recipe(
        "brats-paper",
        "The paper's BraTS 2021 model: 224x224, four sequences, batch 32, AdamW at 1e-4.",
        "made for a GPU; where it does not fit, --loop.accumulate 2 or 4 gives the same result in less memory",
        "the paper has Dice 89.7 %, without its iterations (86,500 is the longest it names)",
        as_the_paper(BerDiff(preset="paper-224"), on="brats"),
        store="brats.zarr",
        trained=False,
    ),
    # with the budgets of the compared methods
    Recipe(
        "berdiff-cpu", "`lidc-cpu` with the budget of the compared methods.", HOUR, SEE, lidc_hour(HURDLE, lr=1.5e-3)
    ),
    Recipe(
        "berdiff-small-cpu",
        "The paper's method on a small U-Net of its shape, with the budget of the compared methods.",
        HOUR,
        SEE,
        lidc_hour(BerDiff("small", time_sampling="stratified")),
    ),
    Recipe(
        "berdiff-brats-cpu",
        "`brats-cpu` with the budget of the compared methods.",
        BRATS_COST.format(40, 20),
        SEE,
        _brats_cpu(BRATS_MINUTES),
        store="brats.zarr",
    ),
)
