"""Recipes of the methods with latent variables: Probabilistic U-Net and Hierarchical Probabilistic U-Net.

`-cpu` is for two cores, `-paper` the BerDiff paper's statement about all methods it compares (AdamW, batch 32, 5e-5),
`-own` the method's authors' optimiser as far as our settings express it.
"""

from dataclasses import replace

from berdiff.experiments.recipes.shared import TWO_CORES
from berdiff.methods.config import M
from berdiff.methods.hprobunet import HierarchicalProbUNet
from berdiff.methods.probunet import ProbUNet
from berdiff.training.config import DataConfig, LoopConfig, OptimConfig, TrainConfig, ValidationConfig


def probunet_cpu() -> TrainConfig[ProbUNet]:
    """Probabilistic U-Net on two CPU cores: the centre 64x64, four raters share the encoding of a slice.

    command: berdiff train probunet-cpu --data lidc.zarr --out runs/probunet-cpu
    cost: at most 60 minutes of CPU time, half of that on two cores; 1 GB of memory per core
    expected: not yet trained by us
    """
    return _cpu("probunet-cpu", ProbUNet("small", beta_warmup=150, masks_per_image=4), steps=1500)


def probunet_paper() -> TrainConfig[ProbUNet]:
    """Probabilistic U-Net as the BerDiff paper states for all methods: 128x128, AdamW at 5e-5, batch 32; 9.3 M weights.

    command: berdiff train probunet-paper --data lidc.zarr --out runs/probunet-paper
    cost: made for a GPU; `--dry-run` measures memory and time on the machine at hand
    expected: the paper quotes GED16 .320, HM-IoU16 .500 from its authors; not yet trained by us
    """
    return _paper("probunet-paper", ProbUNet("paper"))


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
    follows is short, as the run is.

    command: berdiff train hprobunet-cpu --data lidc.zarr --out runs/hprobunet-cpu
    cost: at most 60 minutes of CPU time, half of that on two cores; 1 GB of memory per core
    expected: not yet trained by us
    """
    return _cpu("hprobunet-cpu", HierarchicalProbUNet("small", average_decay=0.95), steps=2500)


def hprobunet_paper() -> TrainConfig[HierarchicalProbUNet]:
    """Hierarchical Probabilistic U-Net as the BerDiff paper states for all methods: 128x128, AdamW at 5e-5, batch 32.

    command: berdiff train hprobunet-paper --data lidc.zarr --out runs/hprobunet-paper
    cost: made for a GPU; `--dry-run` measures memory and time on the machine at hand
    expected: the paper quotes GED16 .270, HM-IoU16 .530 from its authors; not yet trained by us
    """
    return _paper("hprobunet-paper", HierarchicalProbUNet("paper"))


def hprobunet_own() -> TrainConfig[HierarchicalProbUNet]:
    """Hierarchical Probabilistic U-Net with its authors' settings: rate 1e-4, 240,000 steps of 32, no average.

    What cannot be said here: Adam with an L2 term (AdamW's decay of the same size is weaker), a rate that falls in
    stairs to 5e-6 (here half a cosine), elastic deformations (here flips, turns and shifts).

    command: berdiff train hprobunet-own --data lidc.zarr --out runs/hprobunet-own
    cost: three times hprobunet-paper
    expected: its authors have GED16 .270, HM-IoU16 .530; not yet trained by us
    """
    return _own("hprobunet-own", HierarchicalProbUNet("paper"))


def _cpu(name: str, model: M, steps: int) -> TrainConfig[M]:
    """As lidc-cpu, so that rows differ by method only; `steps` is what 60 minutes of CPU time are good for."""
    return TrainConfig(
        recipe=name,
        model=model,
        # nodules are in the middle of their crops, and that is informative
        data=DataConfig(crop=64, augment=True, shift=0),
        optim=OptimConfig(lr=1e-3, warmup_steps=100, decay="cosine", decay_steps=steps, clip_norm=1.0, ema_decay=0.998),
        loop=LoopConfig(batch_size=16, max_steps=steps, max_cpu_minutes=60, checkpoint_every=100, log_every=50),
        validation=ValidationConfig(every=500, cases=64),
        engine=TWO_CORES,
    )


def _paper(name: str, model: M) -> TrainConfig[M]:
    """The paper does not say for how long; 86,500 iterations are the longest it names."""
    return TrainConfig(
        recipe=name,
        model=model,
        optim=OptimConfig(lr=5e-5),
        loop=LoopConfig(batch_size=32, max_steps=86_500, checkpoint_every=1000),
        validation=ValidationConfig(every=1000, cases=100),
    )


def _own(name: str, model: M) -> TrainConfig[M]:
    steps = 240_000
    config = _paper(name, model)
    optim = OptimConfig(lr=1e-4, weight_decay=1e-5, decay="cosine", decay_steps=steps, ema_decay=0.0)
    data, loop = DataConfig(augment=True), replace(config.loop, max_steps=steps)
    return replace(config, data=data, optim=optim, loop=loop)


RECIPES = (probunet_cpu, probunet_paper, probunet_own, hprobunet_cpu, hprobunet_paper, hprobunet_own)
