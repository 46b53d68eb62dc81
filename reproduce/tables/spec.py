"""What a table of the paper consists of: rows, each a training and an evaluation, and the claims they decide."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Literal

from berdiff.diffusion.sampler import Sampler
from berdiff.errors import InputError
from berdiff.methods.config import METHODS

Figures = Mapping[str, float]
Training = Literal["ablation", "short", "long", "brats"]
LIDC_METRICS = ("ged_16", "ged_8", "ged_4", "ged_1", "hm_iou_16")


@dataclass(frozen=True)
class TableRow:
    name: str  # of its folders, and for --rows
    label: tuple[str, ...]  # its cells under the table's heads
    training: Training = "ablation"
    method: str = "berdiff"
    model_settings: Mapping[str, Any] = field(default_factory=dict)  # that differ from the BerDiff row's
    sampler: Sampler | None = None  # None: the model's own
    paper: Figures | None = None  # what the paper's table has in this row
    run: str | None = None  # rows that name the same run share one training: the shorter of them comes first
    model: str | None = None  # rows that name the same model evaluate one; None: the row's own
    curves: bool = False  # whether its training is validated often, for figure A1
    recipe: str | None = None  # with --scale recipes: its own training, NAME-cpu


@dataclass(frozen=True)
class Claim:
    """One row is better than another: decided on the slices that both have."""

    text: str
    better: str
    worse: str
    whose: str = "the paper"  # or ours


@dataclass(frozen=True)
class PaperTable:
    name: str
    title: str
    heads: tuple[str, ...]
    rows: tuple[TableRow, ...]
    claims: tuple[Claim, ...]
    metrics: tuple[str, ...] = LIDC_METRICS  # all that the table shows
    deciding: tuple[str, ...] = ("ged_16", "hm_iou_16")  # those that decide a claim
    seeds: int = 1  # by default
    others: Mapping[str, Figures] = field(default_factory=dict)  # rows of the paper's table that we do not have
    takes_model: bool = False  # whether all rows may evaluate one given model instead of training it
    compared: tuple[TableRow, ...] = ()  # with --scale recipes: these instead of `rows` and `others`
    any_method: Training | None = None  # the training of a row for any other method, plug-ins included; None: no such


def select_rows(table: PaperTable, patterns: tuple[str, ...]) -> PaperTable:
    """The table of the rows that some pattern fits, or that a method's name asks for, and of the claims about them."""
    rows = {row.name: row for row in table.rows}
    names: list[str] = []
    for pattern in patterns:
        fitting = [name for name in rows if fnmatchcase(name, pattern)]
        if not fitting and table.any_method is not None and pattern in METHODS.names():
            rows[pattern] = TableRow(pattern, (pattern,), table.any_method, pattern)
            fitting = [pattern]
        if not fitting:
            known = ", ".join(dict.fromkeys([*rows, *(METHODS.names() if table.any_method is not None else ())]))
            raise InputError(f"--rows: expected rows of {table.name} ({known}), found {pattern}", "name")
        names += fitting
    claims = tuple(claim for claim in table.claims if {claim.better, claim.worse} <= set(names))
    return replace(table, rows=tuple(row for name, row in rows.items() if name in names), claims=claims)


def of_recipes(table: PaperTable) -> PaperTable:
    """The table of all compared methods, each by its own recipe; every BerDiff is claimed to be better than all below
    it, by the paper where its table has both rows."""
    if not table.compared:
        raise InputError(f"--scale: expected cpu or paper for the table {table.name}, found recipes")
    claims = tuple(
        Claim(f"{one.label[0]}, is better than {other.label[0]}", one.name, other.name, _whose(one, other))
        for place, one in enumerate(table.compared)
        for other in table.compared[place + 1 :]
        if one.recipe is not None and one.recipe.startswith("berdiff")
    )
    return replace(table, rows=table.compared, claims=claims, others={}, any_method=None)


def _whose(*rows: TableRow) -> str:
    return "ours" if any(row.paper is None for row in rows) else "the paper"


def ged_row(*values: float) -> Figures:
    """A line of the paper's tables: GED 16, 8, 4, 1 and HM-IoU 16."""
    return dict(zip(LIDC_METRICS, values, strict=True))
