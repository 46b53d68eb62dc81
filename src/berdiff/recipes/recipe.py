"""What a recipe is, and the settings that several of them share."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from berdiff.diffusion.sampler import GaussianSampler
from berdiff.methods.config import M
from berdiff.methods.families.deterministic_config import DeterministicConfig
from berdiff.training.config import DataConfig, EngineConfig, LoopConfig, OptimConfig, TrainConfig, ValidationConfig

# two processes of one thread: on two cores faster than two threads, which wait for each other in every layer
TWO_CORES = EngineConfig(accelerator="cpu", devices="2", threads=1)
MAX_STEPS = 100_000  # of runs that end by their CPU minutes, long before
BRATS_MINUTES = 40.0  # of CPU time, for each method that is compared on BraTS
# of Gaussian diffusions: DDPM's variance. Fresh noise at every step mends errors of the first, which eta = 0 keeps:
# all four are better by it on the validation split (docs/results/table-3-lidc.md, table-4-brats.md)
FRESH_NOISE = GaussianSampler(steps=10, sigma=1.0)
CENTRED = DataConfig(augment=True, shift=0)  # turns, flips, mild intensity changes, but no shifts
# nodules are in the middle of their crops, and that is informative
CENTRE = replace(CENTRED, crop=64)

HOUR = "at most 60 minutes of CPU time, half of that on two cores; 1 GB of memory per core"
GPU = "made for a GPU; `--dry-run` measures memory and time on the machine at hand"
Dataset = Literal["lidc", "brats"]


@dataclass(frozen=True)
class Recipe:
    """A training under a name. Every setting of `config` is also a flag of `berdiff train NAME`."""

    name: str
    summary: str  # one sentence
    cost: str
    expected: str  # figure
    config: TrainConfig[Any]
    store: str | None = "lidc.zarr"  # in its command; None: the embedded data
    notes: str = ""  # further paragraphs of its help
    trained: bool = True  # by us

    def __post_init__(self) -> None:
        object.__setattr__(self, "config", replace(self.config, recipe=self.name))

    @property
    def command(self) -> str:
        data = "" if self.store is None else f" --data {self.store}"
        return f"berdiff train {self.name}{data} --out runs/{self.name}"

    @property
    def about(self) -> str:
        """All that it says of itself, in paragraphs."""
        expected = self.expected if self.trained else f"{self.expected}; not yet trained by us"
        stated = [f"command: {self.command}", f"cost: {self.cost}", f"expected: {expected}"]
        return "\n\n".join([self.summary, *stated, *([self.notes] if self.notes else [])])


def lidc_hour(model: M, lr: float = 1e-3) -> TrainConfig[M]:
    """LIDC on two cores, alike for all, so that rows differ by method only: 60 minutes of CPU time, over which the
    learning rate falls to 0, however many steps of a method they are enough for."""
    return TrainConfig(
        model=model,
        data=CENTRE,
        optim=OptimConfig(lr=lr, warmup_steps=100, decay="cosine", clip_norm=1.0, ema_decay=0.998),
        loop=LoopConfig(batch_size=16, max_steps=MAX_STEPS, max_cpu_minutes=60, checkpoint_every=100, log_every=50),
        validation=ValidationConfig(every=600, cases=64),
        engine=TWO_CORES,
    )


def brats_minutes(model: M, lr: float = 1e-3) -> TrainConfig[M]:
    """BraTS on two cores, alike for all methods but ours: whole slices, and as `lidc_hour` for 40 CPU minutes."""
    config = lidc_hour(model, lr)
    return replace(
        config,
        data=CENTRED,
        loop=replace(config.loop, batch_size=8, max_cpu_minutes=BRATS_MINUTES, log_every=25),
        validation=ValidationConfig(every=200, cases=32, samples=1),
    )


def as_the_paper(model: M, on: Dataset = "lidc", steps: int = 86_500) -> TrainConfig[M]:
    """The BerDiff paper's statement for all methods: AdamW, batch 32; on LIDC 128x128 at 5e-5, on BraTS at 1e-4.

    It does not say for how long the others were trained; 86,500 iterations are the longest it names.
    """
    answers = 1 if isinstance(model, DeterministicConfig) else 4
    brats = ValidationConfig(every=2000, cases=64, samples=answers)
    return TrainConfig(
        model=model,
        optim=OptimConfig(lr=5e-5 if on == "lidc" else 1e-4),
        loop=LoopConfig(batch_size=32, max_steps=steps, checkpoint_every=1000),
        validation=ValidationConfig(every=1000, cases=100) if on == "lidc" else brats,
    )


def as_its_authors(
    model: M, optim: OptimConfig, steps: int, batch: int = 32, data: DataConfig | None = None, on: Dataset = "lidc"
) -> TrainConfig[M]:
    """The settings of a method's authors, as far as ours express them."""
    config = as_the_paper(model, on, steps)
    validation = config.validation if on == "lidc" else replace(config.validation, every=5000)
    loop = replace(config.loop, batch_size=batch)
    return replace(config, data=data or config.data, optim=optim, loop=loop, validation=validation)
