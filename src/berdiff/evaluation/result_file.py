"""metrics.json: what must be in it, and what older formats of it say in the words of now."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge
from typing_extensions import TypedDict

from berdiff import schema
from berdiff.data.describe import expect
from berdiff.data.input_spec import Kind, Side
from berdiff.diffusion.sampler import Sampler
from berdiff.errors import InputError
from berdiff.inference.settings import Precision

FORMAT = 3
UNKNOWN = {"size": None, "cases_of_several_raters": None}  # of the data, where a file does not say it
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
    size: tuple[Side, Side] | None = None
    cases_of_several_raters: Natural | None = None


@dataclass(frozen=True)
class PaperRow(schema.Content):
    data: str
    metrics: dict[str, float]


@dataclass(frozen=True)
class ResultFile(schema.Content):
    format: Annotated[int, Ge(1)]
    model: str
    settings: Asked
    data: OfData
    metrics: Figures
    references: dict[str, Figures]
    references_by_target: dict[str, dict[str, Figures]]
    weights_sha256: str | None = None
    by_target: dict[str, Figures] = field(default_factory=dict)
    rater_parity: Figures | None = None
    size_spread: Figures | None = None
    finding: dict[str, OfFinding] = field(default_factory=dict)
    paper: PaperRow | None = None


def in_words_of_now(result: Any, file: Path) -> dict[str, Any]:
    """Any format's content as the present one would say it."""
    try:
        found = result["format"]
        expect(found in range(1, FORMAT + 1), file, f"an evaluation of format 1 to {FORMAT}", f"{found!r:.80}")
        settings = result["settings"]
        if found == 1:
            sampler = settings["sampler"]
            sampler["noise"] = {"pixel": "independent", "shared": "shared"}[sampler.pop("latent", "pixel")]
            result["weights_sha256"] = None  # format 1 hashed something else
        if found < 3:  # figures were on the crop alone; of which size without one was not written down
            result["data"]["size"] = settings["crop"] and [settings["crop"]] * 2
            settings |= {"set": "independent", "pool": settings["samples"]}
        # what was not written down when all targets were independent, and what came later
        result["data"] = {"kind": "independent", "marked": {}, **UNKNOWN} | result["data"]
        result = {"by_target": {}, "finding": {}, "rater_parity": None, "paper": None} | result
        return {"references_by_target": {target: {} for target in result["by_target"]}} | result
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{file}: expected the metrics of an evaluation, found something else") from error
