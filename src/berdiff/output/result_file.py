"""result.json: what was measured of what, with which settings. What is written, and read again by the viewer."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, MinLen

from berdiff import __version__, schema
from berdiff.data.input_spec import Kind
from berdiff.inference.representatives import Representative
from berdiff.output.captions import notes, percent
from berdiff.output.colours import LEVELS, legend
from berdiff.output.formats import Output
from berdiff.targets.kinds import LABELS

Place = Annotated[int, Ge(0)]


@dataclass(frozen=True, kw_only=True)
class ResultFile(schema.Content):
    """The fields without a default are what a result cannot be read without."""

    berdiff: str = ""
    name: str = ""
    title: str | None = None
    details: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    source: dict[str, Any] = field(default_factory=dict)  # kind and files
    settings: dict[str, Any]
    targets: Annotated[list[str], MinLen(1)]
    kind: Kind
    labels: dict[str, str] | None = None  # value -> name, where a label map can hold the targets
    shape: list[int] = field(default_factory=list)  # of the whole image
    spacing_mm: list[float | None] = field(default_factory=list)  # None: unknown
    region: list[tuple[Place, Place]] | None  # None: all of the image
    set: str = "independent"
    samples: int = 0
    pool: int = 0
    chosen: list[int] | None = None  # numbers of the pool's samples, from 1
    measurements: dict[str, dict[str, Any]] = field(default_factory=dict)
    representatives: list[dict[str, Any]] = field(default_factory=list)
    contours: list[float] = field(default_factory=list)
    notes: list[str]


def result_file(output: Output) -> ResultFile:
    result, grid = output.result, output.result.grid
    files = [] if result.anonymous else list(grid.source.files)
    return ResultFile(
        berdiff=__version__,
        name=result.name,
        title=result.title or None,
        details=dict(result.details),
        warnings=list(result.warnings),
        source={"kind": grid.source.kind, "files": files},
        settings=dict(result.settings),
        targets=list(result.targets),
        kind=result.kind,
        labels=label_meaning(result.targets, result.kind)["labels"] if result.one_map else None,
        shape=list((grid.whole or grid).shape),
        spacing_mm=[float(mm) if np.isfinite(mm) else None for mm in grid.spacing],
        region=None if result.region is None else list(result.region),
        set=result.settings.get("set", "independent"),
        samples=len(result.samples),
        pool=len(result.pool),
        chosen=None if result.chosen is None else [place + 1 for place in result.chosen],
        measurements=result.measurements(),
        representatives=[
            {"name": representative_name(i, found), "frequency": found.frequency, "sample": found.index + 1}
            for i, found in enumerate(output.representatives, 1)
        ],
        contours=list(LEVELS),
        notes=notes(result),
    )


def label_meaning(targets: Sequence[str], kind: Kind) -> dict[str, Any]:
    """What labels.json holds, of targets that fit into one map."""
    named = {str(value): name for value, name in enumerate(("background", *targets))}
    return {"kind": kind, "values": LABELS[kind], "labels": named, "colours": dict(legend(targets))}


def representative_name(number: int, found: Representative) -> str:
    """Of its file, without the suffix."""
    return f"representative-{number}-{percent(found.frequency).replace(' %', 'pct')}"
