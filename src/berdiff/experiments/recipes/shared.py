"""What recipes have in common: the machine, and the settings under which methods are compared."""

from berdiff.diffusion.sampler import Sampler
from berdiff.methods.config import M
from berdiff.training.config import DataConfig, EngineConfig, LoopConfig, OptimConfig, TrainConfig, ValidationConfig

# two processes of one thread: on two cores faster than two threads, which wait for each other in every layer
TWO_CORES = EngineConfig(accelerator="cpu", devices="2", threads=1)
MAX_STEPS = 100_000  # of runs that end by their CPU minutes, long before
# of Gaussian diffusions: DDPM's variance. Fresh noise at every step mends errors of the first, which eta = 0 keeps:
# all four are better by it on the validation split (docs/results/table-3-lidc.md, table-4-brats.md)
FRESH_NOISE = Sampler(steps=10, sigma=1.0)


def compared_cpu(name: str, model: M, lr: float = 1e-3) -> TrainConfig[M]:
    """LIDC on two cores, alike for all, so that rows differ by method only: 60 minutes of CPU time, over which the
    learning rate falls to 0, however many steps of a method they are enough for."""
    return TrainConfig(
        recipe=name,
        model=model,
        # nodules are in the middle of their crops, and that is informative
        data=DataConfig(crop=64, augment=True, shift=0),
        optim=OptimConfig(lr=lr, warmup_steps=100, decay="cosine", clip_norm=1.0, ema_decay=0.998),
        loop=LoopConfig(batch_size=16, max_steps=MAX_STEPS, max_cpu_minutes=60, checkpoint_every=100, log_every=50),
        validation=ValidationConfig(every=600, cases=64),
        engine=TWO_CORES,
    )


def compared_paper(name: str, model: M) -> TrainConfig[M]:
    """The BerDiff paper's statement for all methods on LIDC: 128x128, AdamW at 5e-5, batch 32.

    It does not say for how long; 86,500 iterations are the longest it names.
    """
    return TrainConfig(
        recipe=name,
        model=model,
        optim=OptimConfig(lr=5e-5),
        loop=LoopConfig(batch_size=32, max_steps=86_500, checkpoint_every=1000),
        validation=ValidationConfig(every=1000, cases=100),
    )
