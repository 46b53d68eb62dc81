"""Recipes of PixelSeg: `-cpu` for two cores, `-paper` as the BerDiff paper states for all methods (AdamW, batch 32,
5e-5), `-own` its authors' settings as far as ours express them."""

from dataclasses import replace

from berdiff.experiments.recipes.shared import compared_cpu, compared_paper
from berdiff.methods.pixelseg import PixelSeg
from berdiff.training.config import OptimConfig, TrainConfig


def pixelseg_cpu() -> TrainConfig[PixelSeg]:
    """PixelSeg on two CPU cores: the centre 64x64, four raters share the U-Net's pass over a slice.

    Validation is rare: of all methods this one takes longest to sample.

    command: berdiff train pixelseg-cpu --data lidc.zarr --out runs/pixelseg-cpu
    cost: at most 60 minutes of CPU time, half of that on two cores; 1 GB of memory per core
    expected: its row of docs/results/table-3-lidc.md
    """
    config = compared_cpu("pixelseg-cpu", PixelSeg("small", masks_per_image=4))
    return replace(config, validation=replace(config.validation, every=875, cases=32))


def pixelseg_paper() -> TrainConfig[PixelSeg]:
    """PixelSeg as the BerDiff paper states for all methods: 128x128, AdamW at 5e-5, batch 32; 3.4 M weights.

    The paper does not say for how long; 86,500 iterations are the longest it names.

    command: berdiff train pixelseg-paper --data lidc.zarr --out runs/pixelseg-paper
    cost: made for a GPU; `--dry-run` measures memory and time on the machine at hand
    expected: the paper has GED16 .260, HM-IoU16 .587; not yet trained by us
    """
    return compared_paper("pixelseg-paper", PixelSeg("paper"))


def pixelseg_own() -> TrainConfig[PixelSeg]:
    """PixelSeg with its authors' settings: rate 1e-4, 100 epochs of LIDC's 8,843 slices in batches of 12, no average.

    Their weight of 3 for marked pixels is kept; the 20 % of samples that their test replaces by empty masks are not.

    command: berdiff train pixelseg-own --data lidc.zarr --out runs/pixelseg-own
    cost: a third of pixelseg-paper
    expected: its authors report another LIDC set; not yet trained by us
    """
    config = pixelseg_paper()
    return replace(
        config,
        recipe="pixelseg-own",
        model=PixelSeg("paper", foreground_weight=3.0),
        optim=OptimConfig(lr=1e-4, weight_decay=0.0, ema_decay=0.0),
        loop=replace(config.loop, max_steps=73_700, batch_size=12),
    )


RECIPES = (pixelseg_cpu, pixelseg_paper, pixelseg_own)
