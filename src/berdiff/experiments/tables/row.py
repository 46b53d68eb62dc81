"""What a table of the paper is made of: rows, each a training and an evaluation, and the claims they decide."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from berdiff.errors import InputError
from berdiff.evaluation.evaluate import Settings
from berdiff.experiments.tables.scale import Scale
from berdiff.training.config import ModelConfig, SamplerConfig, TrainConfig

Figures = Mapping[str, float]
LIDC_METRICS = ("ged_16", "ged_8", "ged_4", "ged_1", "hm_iou_16")


@dataclass(frozen=True)
class Row:
    name: str  # of its folders
    label: tuple[str, ...]  # its cells under the table's heads
    run: str  # rows that name the same run share one training: the shorter of them comes first
    config: TrainConfig
    settings: Settings
    paper: Figures | None = None  # what the paper's table has in this row
    model: str | None = None  # rows that name the same model judge one; None: the row's own

    def kept(self, seed: int) -> str:
        """The folder of its model."""
        return f"{self.model or self.name}-seed-{seed}"


@dataclass(frozen=True)
class Claim:
    """One row said to be better than another, to be decided on the slices both have."""

    text: str
    better: str
    worse: str
    whose: str = "the paper"  # or ours


@dataclass(frozen=True)
class Table:
    name: str
    title: str
    heads: tuple[str, ...]
    rows: tuple[Callable[[Scale], Row], ...]
    claims: tuple[Claim, ...]
    metrics: tuple[str, ...] = LIDC_METRICS  # all that the table shows
    judged: tuple[str, ...] = ("ged_16", "hm_iou_16")  # those that decide a claim
    seeds: int = 1  # unless asked otherwise
    others: Mapping[str, Figures] | None = None  # rows of the paper's table that we do not have
    takes_model: bool = False  # whether all rows may judge one given model instead of training it


def only(table: Table, scale: Scale, patterns: tuple[str, ...]) -> Table:
    """The table of the rows that some pattern fits, and of the claims that are about them."""
    names = {row: row(scale).name for row in table.rows}
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names.values()):
            raise InputError(f"--rows: expected rows of {table.name} ({', '.join(names.values())}), found {pattern}")
    kept = {row: name for row, name in names.items() if any(fnmatchcase(name, pattern) for pattern in patterns)}
    claims = tuple(claim for claim in table.claims if {claim.better, claim.worse} <= set(kept.values()))
    return replace(table, rows=tuple(kept), claims=claims)


def with_model(config: TrainConfig, **model: Any) -> TrainConfig:
    """The same training of another model."""
    return replace(config, model=replace(config.model, **model))


def as_gaussian(config: TrainConfig) -> TrainConfig:
    """The other kernel, with DDIM as it is usually run: eta = 0."""
    return replace(with_model(config, method="gaussian"), sampler=replace(config.sampler, sigma=0.0))


def as_unet(config: TrainConfig) -> TrainConfig:
    """The same network without diffusion: nothing but the preset is left of the model's settings."""
    return replace(config, model=ModelConfig(method="unet", preset=config.model.preset), sampler=SamplerConfig())


def ged_row(*values: float) -> Figures:
    """A line of the paper's tables: GED 16, 8, 4, 1 and HM-IoU 16."""
    return dict(zip(LIDC_METRICS, values, strict=True))
