"""Recipes of CAR: `-cpu` for two cores, `-paper` as the BerDiff paper states for all methods (AdamW, batch 32, 5e-5),
`-own` its authors' settings as far as ours express them."""

from dataclasses import replace

from berdiff.experiments.recipes.shared import compared_cpu, compared_paper
from berdiff.methods.car import CAR
from berdiff.training.config import DataConfig, OptimConfig, TrainConfig


def car_cpu() -> TrainConfig[CAR]:
    """CAR on two CPU cores: the centre 64x64; F learns from four raters at once, D in every step.

    command: berdiff train car-cpu --data lidc.zarr --out runs/car-cpu
    cost: at most 60 minutes of CPU time, half of that on two cores; 1 GB of memory per core
    expected: its row of docs/results/table-3-lidc.md
    """
    # a short run has no time for a discriminator that rests and learns at 1e-5
    model = CAR("small", samples=4, masks_per_image=4, rate_d=0.2, d_steps=1, d_period=1)
    return compared_cpu("car-cpu", model, lr=5e-4)


def car_paper() -> TrainConfig[CAR]:
    """CAR as the BerDiff paper states for all methods: 128x128, AdamW at 5e-5 (D: a twentieth), batch 32.

    8.6 M weights. The paper does not say for how long; 86,500 iterations are the longest it names.

    command: berdiff train car-paper --data lidc.zarr --out runs/car-paper
    cost: made for a GPU; `--dry-run` measures memory and time on the machine at hand
    expected: the paper has GED16 .264, HM-IoU16 .592; not yet trained by us
    """
    return compared_paper("car-paper", CAR("paper"))


def car_own() -> TrainConfig[CAR]:
    """CAR with its authors' settings: F and G at 2e-4, D at 1e-5 in 50 of 250 steps, batch 32, no moving average.

    What cannot be said here: F with weights of ImageNet, Adam with an L2 term (AdamW's decay of the same size is
    weaker), rates that halve, each net's at its own epochs until the 500th (here half a cosine until then), a rest of D
    while its accuracy is above .85, flips alone (here also turns and mild intensity changes).

    command: berdiff train car-own --data lidc.zarr --out runs/car-own
    cost: twice car-paper; its authors trained for up to 5 days on a V100
    expected: its authors have GED16 .264, HM-IoU16 .592; not yet trained by us
    """
    base, steps = car_paper(), 500 * 276  # epochs of 8,843 slices
    return replace(
        base,
        recipe="car-own",
        data=DataConfig(augment=True, shift=0),
        optim=OptimConfig(lr=2e-4, weight_decay=5e-4, decay="cosine", decay_steps=steps, ema_decay=0.0),
        loop=replace(base.loop, max_steps=steps),
    )


RECIPES = (car_cpu, car_paper, car_own)
