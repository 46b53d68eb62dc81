"""metrics.json: what is in it, written and read, and what older formats of it say in the words of now."""

from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from annotated_types import Ge, Len
from typing_extensions import TypedDict

from berdiff import schema
from berdiff.data.describe import expect
from berdiff.data.input_spec import Kind, Side
from berdiff.diffusion.sampler import Sampler
from berdiff.errors import InputError
from berdiff.evaluation.bootstrap import Figure
from berdiff.inference.settings import Precision
from berdiff.schema import Count, Natural

FORMAT = 3
UNKNOWN = {"size": None, "cases_of_several_raters": None}  # of the data, where a file does not say it


class Marked(TypedDict):
    cases: Natural
    patients: Natural


Figures = dict[str, Figure]


class Reliability(TypedDict):
    low: float
    high: float
    cases: Natural
    p: float | None
    q: float | None


class OfFinding(TypedDict):
    ece: Figure
    r2: Figure
    ged: Figure
    ece_if_calibrated: NotRequired[Figure | None]  # evaluations of 0.2.0 do not have it
    reliability: list[Reliability]


class Asked(TypedDict):
    """The settings that are shown, compared or timed; a file holds all of them."""

    split: str
    samples: Count
    set: str
    pool: Count
    seed: int
    crop: Count | None
    sampler: Sampler | None  # in plain JSON types
    by: NotRequired[Literal["slice", "volume"]]
    precision: NotRequired[Precision]
    compile: NotRequired[bool]
    coherence: NotRequired[Annotated[float, Ge(0)] | None]
    least_slices: NotRequired[Count | None]


class OfData(TypedDict):
    source: str
    size: Annotated[list[Side], Len(2, 2)] | None
    cases: Natural
    cases_of_several_raters: Natural | None
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
    format: Annotated[int, Ge(1)]
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
