"""The recipe for anyone's own data: what it leaves open is planned from the store when a training begins."""

from dataclasses import replace

from berdiff.diffusion.sampler import Sampler
from berdiff.experiments.recipes.bernoulli import fast
from berdiff.experiments.recipes.shared import MAX_STEPS
from berdiff.methods.berdiff import BerDiff
from berdiff.training.config import DataConfig, LoopConfig, OptimConfig, TrainConfig, ValidationConfig

LEFT_OPEN = ("data.patch", "loop.batch_size", "optim.warmup_steps", "validation.cases")
LEFT_OPEN += ("model.masks_per_image", "model.hurdle", "model.inner_weight")
LEFT_OPEN += ("engine.accelerator", "engine.devices", "engine.threads")


def own() -> TrainConfig[BerDiff]:
    """Your own images and masks: BerDiff on the encode-once network, planned from the store when the training begins.

    command: berdiff train own --data mine.zarr --out runs/mine
    cost: 30 minutes (--max-minutes) on two cores, 1 GB of memory per core, or on a GPU
    expected: the same Dice by `berdiff evaluate` and by `berdiff segment`; how high depends on the data
    planned: --data.patch (whole images up to 160 pixels wide, larger ones by random patches of 128)
    planned: --loop.batch-size (by the number of pixels), --optim.warmup-steps, --validation.cases
    planned: --model.masks-per-image (by the raters), --model.hurdle (where some raters' masks are empty)
    planned: --model.inner-weight (of nested targets), --engine.accelerator, --engine.devices, --engine.threads
    A planned setting that is given as a flag is taken as given. The plan is printed, and a resumed run keeps it.
    """
    return TrainConfig(
        recipe="own",
        left_open=LEFT_OPEN,
        model=replace(fast("fast"), masks_per_image=4, sampler=Sampler(steps=5, noise="shared", views=4)),
        data=DataConfig(augment=True),
        optim=OptimConfig(lr=1.5e-3, warmup_steps=100, decay="cosine", clip_norm=1.0, ema_decay=0.998),
        loop=LoopConfig(batch_size=8, max_steps=MAX_STEPS, max_minutes=30, checkpoint_every=100, log_every=50),
        validation=ValidationConfig(every=500),
    )


RECIPES = (own,)
