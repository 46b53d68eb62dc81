"""metrics.json: what must be in it."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge
from typing_extensions import TypedDict

from berdiff import schema
from berdiff.data.input_spec import Kind, Side
from berdiff.diffusion.sampler import Sampler
from berdiff.inference.settings import Precision

FORMAT = 3
Natural = Annotated[int, Ge(0)]
Count = Annotated[int, Ge(1)]


class Figure(TypedDict):
    value: float | None
    low: float | None
    high: float | None


class Marked(TypedDict):
    cases: Natural
    patients: Natural


Figures = dict[str, Figure]


@dataclass(frozen=True)
class Reliability(schema.Content):
    low: float
    high: float
    cases: Natural
    p: float | None
    q: float | None


@dataclass(frozen=True)
class OfFinding(schema.Content):
    ece: Figure
    r2: Figure
    ged: Figure
    reliability: list[Reliability]
    ece_if_calibrated: Figure | None = None  # evaluations of 0.2.0 do not have it


@dataclass(frozen=True)
class Asked(schema.Content):
    """The settings that are shown, compared or timed."""

    split: str
    samples: Count
    set: str
    pool: Count
    seed: int
    crop: Count | None
    sampler: Sampler | None
    by: Literal["slice", "volume"] = "slice"
    precision: Precision = "fp32"
    compile: bool = False
    coherence: Annotated[float, Ge(0)] | None = None
    least_slices: Count | None = None


@dataclass(frozen=True)
class OfData(schema.Content):
    source: str
    cases: Natural
    patients: Natural
    kind: Kind
    marked: dict[str, Marked]
    notes: list[str]
    size: tuple[Side, Side]
    cases_of_several_raters: Natural


@dataclass(frozen=True)
class PaperRow(schema.Content):
    data: str
    metrics: dict[str, float]


@dataclass(frozen=True)
class ResultFile(schema.Content):
    format: Literal[3]
    model: str
    settings: Asked
    data: OfData
    metrics: Figures
    references: dict[str, Figures]
    references_by_target: dict[str, dict[str, Figures]]
    by_target: dict[str, Figures]
    rater_parity: Figures | None
    finding: dict[str, OfFinding]
    paper: PaperRow | None
    weights_sha256: str | None = None
    size_spread: Figures | None = None
