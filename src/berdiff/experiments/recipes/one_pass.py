"""Recipes of SSN and MoSE, whose 16 masks cost one pass of a U-Net.

`-cpu` is for two cores, `-paper` the BerDiff paper's statement about all methods it compares (AdamW, batch 32, 5e-5),
`-own` the method's authors' settings as far as ours express them.
"""

from dataclasses import replace

from berdiff.experiments.recipes.shared import compared_cpu, compared_paper
from berdiff.methods.config import M
from berdiff.methods.mose import MoSE
from berdiff.methods.ssn import SSN
from berdiff.training.config import DataConfig, OptimConfig, TrainConfig


def ssn_cpu() -> TrainConfig[SSN]:
    """SSN on two CPU cores: the centre 64x64, four raters share the draws of a slice; the mean learns first.

    command: berdiff train ssn-cpu --data lidc.zarr --out runs/ssn-cpu
    cost: at most 60 minutes of CPU time, half of that on two cores; 1 GB of memory per core
    expected: its row of docs/results/table-3-lidc.md
    """
    return compared_cpu("ssn-cpu", SSN("small", mean_steps=200, masks_per_image=4))


def ssn_paper() -> TrainConfig[SSN]:
    """SSN as the BerDiff paper states for all methods: 128x128, AdamW at 5e-5, batch 32; 9.2 M weights.

    command: berdiff train ssn-paper --data lidc.zarr --out runs/ssn-paper
    cost: made for a GPU; `--dry-run` measures memory and time on the machine at hand
    expected: the paper does not have it; not yet trained by us
    """
    return compared_paper("ssn-paper", SSN("paper"))


def ssn_own() -> TrainConfig[SSN]:
    """SSN with its authors' settings: rate 1e-3, 500,000 steps of 12, no decay and no average of the weights.

    What cannot be said here: rotations by any angle and changes of scale (here flips and quarter turns).

    command: berdiff train ssn-own --data lidc.zarr --out runs/ssn-own
    cost: twice ssn-paper
    expected: its authors report another LIDC set; not yet trained by us
    """
    return _own("ssn-own", SSN("paper"), OptimConfig(lr=1e-3, weight_decay=0.0, ema_decay=0.0), 500_000, batch=12)


def mose_cpu() -> TrainConfig[MoSE]:
    """MoSE on two CPU cores: the centre 64x64, all raters of a slice, two masks of each expert.

    command: berdiff train mose-cpu --data lidc.zarr --out runs/mose-cpu
    cost: at most 60 minutes of CPU time, half of that on two cores; 1 GB of memory per core
    expected: its row of docs/results/table-3-lidc.md
    """
    return compared_cpu("mose-cpu", MoSE("small", samples_per_expert=2, cap_steps=400))


def mose_paper() -> TrainConfig[MoSE]:
    """MoSE as the BerDiff paper states for all methods: 128x128, AdamW at 5e-5, batch 32; 9.3 M weights.

    command: berdiff train mose-paper --data lidc.zarr --out runs/mose-paper
    cost: made for a GPU; `--dry-run` measures memory and time on the machine at hand
    expected: the paper does not have it; not yet trained by us
    """
    return compared_paper("mose-paper", MoSE("paper", cap_steps=30_000))


def mose_own() -> TrainConfig[MoSE]:
    """MoSE with its authors' settings: rate 1e-3, 200 epochs of LIDC's 8,843 slices in batches of 16, no average.

    What cannot be said here: Adam with an L2 term of 1e-5 (AdamW's decay of the same size is weaker), a rate that
    halves and a cap that ends when the loss stands still (here half a cosine, and a third of the steps), rotations by
    up to 10 degrees (here quarter turns).

    command: berdiff train mose-own --data lidc.zarr --out runs/mose-own
    cost: about as much as mose-paper
    expected: its authors have GED16 .213, HM-IoU16 .622 on another LIDC set; not yet trained by us
    """
    steps = 110_000
    optim = OptimConfig(lr=1e-3, weight_decay=1e-5, decay="cosine", decay_steps=steps, ema_decay=0.0)
    return _own("mose-own", MoSE("paper", cap_steps=steps // 3), optim, steps, batch=16)


def _own(name: str, model: M, optim: OptimConfig, steps: int, batch: int) -> TrainConfig[M]:
    config = compared_paper(name, model)
    loop = replace(config.loop, max_steps=steps, batch_size=batch)
    return replace(config, data=DataConfig(augment=True, shift=0), optim=optim, loop=loop)


RECIPES = (ssn_cpu, ssn_paper, ssn_own, mose_cpu, mose_paper, mose_own)
