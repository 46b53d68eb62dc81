"""Recipes of the methods with latent variables: Probabilistic U-Net and Hierarchical Probabilistic U-Net.

`-cpu` is for two cores, `-paper` the BerDiff paper's statement about all methods it compares (AdamW, batch 32, 5e-5),
`-own` the method's authors' optimiser as far as our settings express it.
"""

from dataclasses import replace

from berdiff.experiments.recipes.shared import compared_cpu, compared_paper
from berdiff.methods.config import M
from berdiff.methods.hprobunet import HierarchicalProbUNet
from berdiff.methods.probunet import ProbUNet
from berdiff.training.config import DataConfig, OptimConfig, TrainConfig


def probunet_cpu() -> TrainConfig[ProbUNet]:
    """Probabilistic U-Net on two CPU cores: the centre 64x64, four raters share the encoding of a slice.

    command: berdiff train probunet-cpu --data lidc.zarr --out runs/probunet-cpu
    cost: at most 60 minutes of CPU time, half of that on two cores; 1 GB of memory per core
    expected: its row of docs/results/table-3-lidc.md
    """
    return compared_cpu("probunet-cpu", ProbUNet("small", beta_warmup=150, masks_per_image=4))


def probunet_paper() -> TrainConfig[ProbUNet]:
    """Probabilistic U-Net as the BerDiff paper states for all methods: 128x128, AdamW at 5e-5, batch 32; 9.3 M weights.

    command: berdiff train probunet-paper --data lidc.zarr --out runs/probunet-paper
    cost: made for a GPU; `--dry-run` measures memory and time on the machine at hand
    expected: the paper quotes GED16 .320, HM-IoU16 .500 from its authors; not yet trained by us
    """
    return compared_paper("probunet-paper", ProbUNet("paper"))


def probunet_own() -> TrainConfig[ProbUNet]:
    """Probabilistic U-Net with its authors' settings: rate 1e-4, 240,000 steps of 32, no average of the weights.

    What cannot be said here: Adam with an L2 term (AdamW's decay of the same size is weaker), a rate that falls in
    stairs to 1e-5 (here half a cosine), elastic deformations (here flips, turns and shifts).

    command: berdiff train probunet-own --data lidc.zarr --out runs/probunet-own
    cost: three times probunet-paper
    expected: its authors have GED16 .320, HM-IoU16 .500 (their later paper); not yet trained by us
    """
    return _own("probunet-own", ProbUNet("paper"))


def hprobunet_cpu() -> TrainConfig[HierarchicalProbUNet]:
    """Hierarchical Probabilistic U-Net on two CPU cores: the centre 64x64, a random rater per slice.

    All raters at once would share little: both the posterior and the way up run for each mask. The average that lambda
    follows is short, as the run is, and lambda is slow, or it would be at its bound after 460 steps. 8 % of a 64x64
    crop are as many pixels, and as hard a constraint, as the authors' 2 % of 128x128.

    command: berdiff train hprobunet-cpu --data lidc.zarr --out runs/hprobunet-cpu
    cost: at most 60 minutes of CPU time, half of that on two cores; 1 GB of memory per core
    expected: its row of docs/results/table-3-lidc.md
    """
    return compared_cpu("hprobunet-cpu", HierarchicalProbUNet("small", top_k=0.08, nu=0.002, average_decay=0.95))


def hprobunet_paper() -> TrainConfig[HierarchicalProbUNet]:
    """Hierarchical Probabilistic U-Net as the BerDiff paper states for all methods: 128x128, AdamW at 5e-5, batch 32.

    command: berdiff train hprobunet-paper --data lidc.zarr --out runs/hprobunet-paper
    cost: made for a GPU; `--dry-run` measures memory and time on the machine at hand
    expected: the paper quotes GED16 .270, HM-IoU16 .530 from its authors; not yet trained by us
    """
    return compared_paper("hprobunet-paper", HierarchicalProbUNet("paper"))


def hprobunet_own() -> TrainConfig[HierarchicalProbUNet]:
    """Hierarchical Probabilistic U-Net with its authors' settings: rate 1e-4, 240,000 steps of 32, no average.

    What cannot be said here: Adam with an L2 term (AdamW's decay of the same size is weaker), a rate that falls in
    stairs to 5e-6 (here half a cosine), elastic deformations (here flips, turns and shifts).

    command: berdiff train hprobunet-own --data lidc.zarr --out runs/hprobunet-own
    cost: three times hprobunet-paper
    expected: its authors have GED16 .270, HM-IoU16 .530; not yet trained by us
    """
    return _own("hprobunet-own", HierarchicalProbUNet("paper"))


def _own(name: str, model: M) -> TrainConfig[M]:
    steps = 240_000
    config = compared_paper(name, model)
    optim = OptimConfig(lr=1e-4, weight_decay=1e-5, decay="cosine", decay_steps=steps, ema_decay=0.0)
    data, loop = DataConfig(augment=True), replace(config.loop, max_steps=steps)
    return replace(config, data=data, optim=optim, loop=loop)


RECIPES = (probunet_cpu, probunet_paper, probunet_own, hprobunet_cpu, hprobunet_paper, hprobunet_own)
