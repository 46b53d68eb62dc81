"""Results as lines of a table, one per target, from the done.json of each.

The tables of a case and of a cohort are made of these files alone, so that they do not depend on which process, or
which run, made a result.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from berdiff.output.result_files import DONE, ResultFiles

QUANTILES = ("q05", "q50", "q95")
COLUMNS = ("case", "finding", "target", "finding_probability", "size", "size_unit")
COLUMNS += (*(f"size_{q}" for q in QUANTILES), "longest_diameter_unit", *(f"longest_diameter_{q}" for q in QUANTILES))
COLUMNS += ("disagreement",)


@dataclass(frozen=True)
class Row:
    """One target of one result."""

    folder: str  # of the result, from the folder of all results
    case: str
    finding: str | None
    target: str
    measured: dict[str, Any]
    files: Sequence[str]
    notes: Sequence[str]

    @property
    def size(self) -> str:
        return "area" if "area" in self.measured else "volume"

    @property
    def disagreement(self) -> float | None:
        return self.measured["disagreement"]

    def values(self) -> list[Any]:
        """In the order of COLUMNS."""
        of, size, length = self.measured, self.measured[self.size], self.measured["longest_diameter"]
        values = [self.case, self.finding, self.target, of["finding_probability"], self.size, size["unit"]]
        values += [*(size[q] for q in QUANTILES), length["unit"], *(length[q] for q in QUANTILES), self.disagreement]
        return ["" if value is None else value for value in values]


def all_rows(files: ResultFiles) -> list[Row]:
    """Of every result; one that cannot be read is not there."""
    rows: list[Row] = []
    results = files.results()
    contents = files.read([f"{name}/{DONE}" for name in results])
    for name in results:
        try:
            rows += rows_of(contents[f"{name}/{DONE}"], name)
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):  # somebody else's done.json
            continue
    return rows


def rows_of(done_json: bytes, name: str) -> list[Row]:
    """A line per target of the result of this name; none where it is of an older version, without a summary."""
    done = json.loads(done_json)
    case, finding = done.get("case", name), done.get("finding") or {}
    return [
        Row(name, case, finding.get("name"), target, measured, done.get("files", ()), done["notes"])
        for target, measured in done.get("measurements", {}).items()
    ]
