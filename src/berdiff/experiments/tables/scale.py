"""Two sizes of every table: the paper's, for a GPU, and one for two cores."""

from dataclasses import dataclass, replace

from berdiff.data.store import Store
from berdiff.diffusion.sampling import Sampler
from berdiff.errors import InputError
from berdiff.evaluation.evaluate import Settings
from berdiff.experiments.recipes import brats_paper, lidc_cpu_paper, lidc_paper, lidc_paper_long
from berdiff.training.config import EngineConfig, TrainConfig, ValidationConfig

MINUTES, MOST_MINUTES = 10.0, 15.0
POINTS = 10
# a pass through the network costs the same at every step, so samplers of many steps get fewer slices: (steps up to,
# slices). All are the first of one seeded order, so the few lie in the many.
SLICES = ((10, 300), (100, 100), (1000, 24))


@dataclass(frozen=True)
class Scale:
    """The trainings that rows are made of, and how much is judged."""

    name: str
    ablation: TrainConfig  # tables 1 and A1
    short: TrainConfig  # table 2
    long: TrainConfig  # tables 2 and 3
    brats: TrainConfig  # table 4
    curves: ValidationConfig  # of table 2's runs: the points of figure A1
    slices: tuple[tuple[int, int], ...] | None = None  # None: the whole split
    at_most: int | None = None  # slices of any row
    split: str = "test"
    samples: int = 16
    device: str = "cpu"

    def settings(self, config: TrainConfig, sampler: Sampler | None = None) -> Settings:
        """How a row is judged: by DDIM in ten steps, or by its own sampler."""
        if sampler is None:
            sampler = Sampler(sigma=0.0) if config.model.method == "gaussian" else Sampler()
        steps = sampler.steps if isinstance(sampler.steps, int) else len(sampler.steps)
        counts = [count for most, count in self.slices or () if steps <= most][:1]
        counts += [self.at_most] if self.at_most is not None else []
        return Settings(
            split=self.split,
            samples=self.samples,
            sampler=sampler,
            batch_size=max(1, min(16, 160 // steps)),  # what a kill may cost: a few minutes of passes
            crop=config.data.crop,
            limit=min(counts, default=None),
            device=self.device,
        )


def paper(store: Store, address: str | None, slices: int | None = None, device: str = "cpu") -> Scale:
    """The paper's networks, sizes and iterations."""
    configs = [_on(config, store, address) for config in (lidc_paper(), lidc_paper_long(), brats_paper())]
    ablation, long, brats = configs
    judged = splits(store)[1]
    return Scale("paper", ablation, ablation, long, brats, long.validation, at_most=slices, split=judged, device=device)


def cpu(
    store: Store,
    address: str | None,
    minutes: float | None = None,
    steps: int | None = None,
    slices: int | None = None,
    device: str = "cpu",
) -> Scale:
    """The centre 64x64, the `small` network and a fixed budget a run: minutes, or steps, which can be repeated."""
    if minutes is not None and steps is not None:
        raise InputError(f"--minutes and --steps: expected one of them, found {minutes:g} and {steps}")
    if minutes is not None and not 0 < minutes <= MOST_MINUTES:
        raise InputError(f"--minutes: expected more than 0 and at most {MOST_MINUTES:g}, found {minutes:g}")
    if steps is not None and steps < 2:
        raise InputError(f"--steps: expected at least 2, so that there is a half, found {steps}")
    # ten points a curve where the steps are known; few masks a point, for minutes spent on them are lost to training
    points = ValidationConfig(every=max(1, steps // POINTS) if steps else 200, cases=16, samples=8, sheet_cases=4)
    base = _on(replace(lidc_cpu_paper(), validation=points), store, address)
    curves = base.validation
    base = replace(base, validation=replace(points, every=0))  # elsewhere the whole budget goes into training
    base = replace(base, loop=replace(base.loop, checkpoint_every=100, log_every=20))
    whole, half = (_lasting(base, minutes, steps, part) for part in (1, 2))
    return Scale("cpu", whole, half, whole, whole, curves, SLICES, slices, splits(store)[1], device=device)


def splits(store: Store) -> tuple[str, str]:
    """(to train on, to judge on): train and test, or all cases for both where one of these is empty."""
    if all(len(store.indices(split)) for split in ("train", "test")):
        return "train", "test"
    return "all", "all"


def _on(config: TrainConfig, store: Store, address: str | None) -> TrainConfig:
    """On this store; one process, for a table's rows follow each other in it."""
    data = replace(config.data, store=address, split=splits(store)[0])
    validation = config.validation if len(store.indices("val")) else replace(config.validation, every=0)
    return replace(config, data=data, validation=validation, engine=EngineConfig(devices="1"))


def _lasting(config: TrainConfig, minutes: float | None, steps: int | None, part: int) -> TrainConfig:
    """1 / `part` of the budget."""
    if steps is not None:
        return replace(config, loop=replace(config.loop, max_steps=steps // part, max_minutes=None))
    return replace(config, loop=replace(config.loop, max_minutes=(minutes or MINUTES) / part))
