"""The sizes of a table: the paper's, for a GPU; one for two cores; and every method's own recipe for two cores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from berdiff.data.store import Store
from berdiff.diffusion.sampler import Sampler
from berdiff.errors import InputError
from berdiff.evaluation.settings import EvaluationSettings
from berdiff.methods.config import MethodConfig, adopt, method_class
from berdiff.recipes import RECIPES
from berdiff.training.config import AnyConfig, EngineConfig, LoopConfig, TrainConfig, ValidationConfig
from reproduce.tables.spec import TableRow, Training

Recipe = TrainConfig[Any]
MINUTES, MAX_MINUTES = 10.0, 15.0
POINTS = 10  # of a curve
# a pass through the network costs the same at every step, so samplers of many steps get fewer slices: (steps up to,
# slices). All are the first of one seeded order, so the few lie in the many.
SLICES = ((10, 300), (100, 100), (1000, 24))


@dataclass(frozen=True)
class Scale:
    """The trainings that rows start from, and how much is evaluated."""

    name: str
    trainings: Mapping[Training, Recipe]  # of BerDiff
    curves: ValidationConfig  # of table 2's runs: the points of figure A1
    slices: tuple[tuple[int, int], ...] = ()  # empty: the whole split
    max_slices: int | None = None  # of any row
    split: str = "test"
    samples: int = 16

    def config(self, row: TableRow, seed: int = 0) -> AnyConfig:
        """The BerDiff training of the row's length with the row's method and settings."""
        base = self.trainings[row.training]
        model = replace(self.model(row), **row.model_settings)
        return replace(base, model=model, seed=seed, validation=self.curves if row.curves else base.validation)

    def model(self, row: TableRow) -> MethodConfig:
        """Of the row's method, the settings that it shares with BerDiff."""
        return adopt(method_class(row.method), self.trainings[row.training].model)

    def training(self, rows: Sequence[TableRow]) -> str:
        """How the rows are trained, in words."""
        configs = [self.config(row) for row in rows]
        budgets = " and ".join(dict.fromkeys(budget(config.loop) for config in configs))
        batch = configs[0].loop.batch_size
        presets = {row.name: getattr(config.model, "preset", "none") for row, config in zip(rows, configs, strict=True)}
        return f"{_presets(presets)}, batches of {batch}, {budgets} of training"

    def evaluation(self, sampler: Sampler | None) -> EvaluationSettings:
        """How a row with this sampler is evaluated; None is a method without steps."""
        steps = 1 if sampler is None else sampler.count
        limits = [count for up_to, count in self.slices if steps <= up_to][:1]
        limits += [] if self.max_slices is None else [self.max_slices]
        return EvaluationSettings(
            split=self.split,
            samples=self.samples,
            sampler=sampler,
            batch_size=max(1, min(16, 160 // steps)),  # what a kill may cost: a few minutes of passes
            limit=min(limits, default=None),
        )


@dataclass(frozen=True)
class Paper(Scale):
    """Every method in its published size, or not at all: a two-core network under this name would be another method."""

    def model(self, row: TableRow) -> MethodConfig:
        """The size as the images ask, all else as in the recipe METHOD-paper, if there is one."""
        model = super().model(row)
        found = str(getattr(model, "preset", "none"))
        if found.partition("-")[0] != "paper":
            row_and_method = f"the row {row.name} of the method {row.method}"
            raise InputError(f"--scale paper: expected a preset paper for {row_and_method}, found {found}")
        recipe = RECIPES.get(f"{row.method}-paper")
        stated = None if recipe is None else recipe.config.model
        # a plug-in may have the first word of another recipe's name
        return replace(stated, preset=found) if isinstance(stated, type(model)) else model


@dataclass(frozen=True)
class OwnRecipes(Scale):
    """Each row by its method's own recipe for two cores, without validation: its samples are paid for from the same CPU
    minutes as the training, and some methods sample a hundred times as slowly as others."""

    on: tuple[Store, str | None] = field(kw_only=True)

    def config(self, row: TableRow, seed: int = 0) -> AnyConfig:
        config = _on(RECIPES[f"{row.recipe}-cpu"].config, *self.on)
        return replace(config, seed=seed, validation=replace(config.validation, every=0))

    def training(self, rows: Sequence[TableRow]) -> str:
        budgets = " and ".join(dict.fromkeys(budget(self.config(row).loop) for row in rows))
        return f"every method by its own recipe METHOD-cpu, {budgets} of training"


def recipes(store: Store, address: str | None, slices: int | None = None, **budget: float | None) -> Scale:
    """The recipes METHOD-cpu; the whole split."""
    if any(value is not None for value in budget.values()):
        raise InputError("--minutes and --steps: expected none with --scale recipes, which have their own")
    return OwnRecipes("recipes", {}, ValidationConfig(), max_slices=slices, split=splits(store)[1], on=(store, address))


def budget(loop: LoopConfig) -> str:
    if loop.max_cpu_minutes is not None:
        return f"{loop.max_cpu_minutes:g} CPU minutes"
    return f"{loop.max_steps:,} steps" if loop.max_minutes is None else f"{loop.max_minutes:g} minutes"


def paper(store: Store, address: str | None, slices: int | None = None, **budget: float | None) -> Scale:
    """The paper's networks, sizes and iterations."""
    if any(value is not None for value in budget.values()):
        raise InputError("--minutes and --steps: expected none with --scale paper, whose iterations are the paper's")
    ablation, long, brats = (
        _on(RECIPES[name].config, store, address) for name in ("lidc-paper", "lidc-paper-long", "brats-paper")
    )
    trainings: dict[Training, Recipe] = {"ablation": ablation, "short": ablation, "long": long, "brats": brats}
    return Paper("paper", trainings, long.validation, max_slices=slices, split=splits(store)[1])


def cpu(
    store: Store, address: str | None, slices: int | None = None, minutes: float | None = None, steps: int | None = None
) -> Scale:
    """The centre 64x64, the `small` network and a fixed budget per run: minutes, or steps, which can be repeated."""
    if minutes is not None and steps is not None:
        raise InputError(f"--minutes and --steps: expected one of them, found {minutes:g} and {steps}")
    if minutes is not None and not 0 < minutes <= MAX_MINUTES:
        raise InputError(f"--minutes: expected more than 0 and at most {MAX_MINUTES:g}, found {minutes:g}")
    if steps is not None and steps < 2:
        raise InputError(f"--steps: expected at least 2, so that there is a half, found {steps}")
    # few masks per point of a curve, for minutes spent on them are lost to training
    every = max(1, steps // POINTS) if steps else 200
    points = ValidationConfig(every=every, cases=16, samples=8, sheet_cases=4)
    base = _on(replace(RECIPES["lidc-cpu-paper"].config, validation=points), store, address)

    def lasting(part: int) -> Recipe:
        """1 / `part` of the budget, all of it for training."""
        loop = replace(base.loop, checkpoint_every=100, log_every=20, max_minutes=(minutes or MINUTES) / part)
        if steps is not None:
            loop = replace(loop, max_steps=steps // part, max_minutes=None)
        return replace(base, loop=loop, validation=replace(points, every=0))

    whole, half = lasting(1), lasting(2)
    trainings: dict[Training, Recipe] = {"ablation": whole, "short": half, "long": whole, "brats": whole}
    return Scale("cpu", trainings, base.validation, SLICES, slices, splits(store)[1])


def _presets(of: Mapping[str, str]) -> str:
    """The preset of all rows, or of each: methods have networks of their own, in sizes of their own."""
    rows = {preset: ", ".join(row for row, each in of.items() if each == preset) for preset in of.values()}
    if len(rows) == 1:
        return f"network preset {next(iter(rows))}"
    return "network presets " + ", ".join(f"{preset} ({names})" for preset, names in rows.items())


def splits(store: Store) -> tuple[str, str]:
    """(to train on, to evaluate on): train and test, or all cases for both where one of these is empty."""
    if all(len(store.indices(split)) for split in ("train", "test")):
        return "train", "test"
    return "all", "all"


def _on(config: Recipe, store: Store, address: str | None) -> Recipe:
    """On this store; one process, for a table's rows follow each other in it."""
    data = replace(config.data, store=address, split=splits(store)[0])
    validation = config.validation if len(store.indices("val")) else replace(config.validation, every=0)
    return replace(config, data=data, validation=validation, engine=EngineConfig(devices="1"))
