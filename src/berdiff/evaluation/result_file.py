"""metrics.json: what is in it, written and read."""

from typing import Annotated, Literal, NotRequired

from annotated_types import Ge, Len
from typing_extensions import TypedDict

from berdiff import schema
from berdiff.data.input_spec import Side, Sides
from berdiff.diffusion.sampler import Sampler
from berdiff.evaluation.bootstrap import Figure
from berdiff.inference.settings import Precision
from berdiff.metrics.finding import Bin
from berdiff.schema import Count, Natural
from berdiff.targets.kinds import Kind

FORMAT = 3


class Marked(TypedDict):
    cases: Natural
    patients: Natural


Figures = dict[str, Figure]


class OfFinding(TypedDict):
    ece: Figure
    r2: Figure
    ged: Figure
    ece_if_calibrated: NotRequired[Figure | None]  # evaluations of 0.2.0 do not have it
    reliability: list[Bin]


class Asked(TypedDict):
    """The settings that are shown, compared or timed; a file holds all of them."""

    split: str
    samples: Count
    set: str
    pool: Count
    seed: int
    crop: Sides | None
    sampler: Sampler | None  # in plain JSON types
    by: NotRequired[Literal["slice", "volume"]]
    precision: NotRequired[Precision]
    compile: NotRequired[bool]
    coherence: NotRequired[Annotated[float, Ge(0)] | None]
    least_slices: NotRequired[Count | None]


class OfData(TypedDict):
    source: str
    size: Annotated[list[Side], Len(2, 3)]
    cases: Natural
    cases_of_several_raters: Natural
    patients: Natural
    targets: NotRequired[list[str]]
    kind: Kind
    marked: dict[str, Marked]
    notes: list[str]


class PaperRow(TypedDict):
    method: NotRequired[str]
    data: str
    metrics: dict[str, float]


class Interval(TypedDict):
    level: float
    over: str
    resamples: Count


class ResultFile(TypedDict):
    """What `evaluate` returns and writes, and `read_result` reads."""

    __pydantic_config__ = schema.Content.__pydantic_config__  # type: ignore[misc]
    format: Literal[3]
    berdiff: NotRequired[str]
    torch: NotRequired[str]
    model: str
    weights_sha256: NotRequired[str | None]
    data_sha256: str
    settings: Asked
    data: OfData
    interval: NotRequired[Interval]
    metrics: Figures
    by_target: dict[str, Figures]
    rater_parity: Figures | None
    size_spread: NotRequired[Figures | None]
    finding: dict[str, OfFinding]
    references: dict[str, Figures]
    references_by_target: dict[str, dict[str, Figures]]
    paper: PaperRow | None
