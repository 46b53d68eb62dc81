"""Results as lines of a table, one per target, from the done.json of each.

The tables of a case and of a cohort are made of these files alone, so that they do not depend on which process, or
which run, made a result.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from berdiff.errors import InputError
from berdiff.output.done_file import DoneFile, parse_done
from berdiff.output.result_files import DONE, ResultFiles

QUANTILES = ("q05", "q50", "q95")
COLUMNS = ("case", "finding", "target", "finding_probability", "empty_share", "extent_mm", "size", "size_unit")
COLUMNS += (*(f"size_{q}" for q in QUANTILES), "longest_diameter_unit", *(f"longest_diameter_{q}" for q in QUANTILES))
COLUMNS += ("disagreement",)


@dataclass(frozen=True)
class Row:
    """One target of one result."""

    folder: str  # of the result, from the folder of all results
    case: str
    finding: str | None
    target: str
    measured: Mapping[str, Any]
    files: Collection[str]
    notes: Sequence[str]  # warnings first
    title: str = ""  # what people call the case, where that is not its name

    @property
    def size(self) -> str:
        return "area" if "area" in self.measured else "volume"

    @property
    def disagreement(self) -> float | None:
        return self.measured["disagreement"]

    def values(self) -> list[Any]:
        """In the order of COLUMNS."""
        of, size, length = self.measured, self.measured[self.size], self.measured["longest_diameter"]
        values = [self.case, self.finding, self.target, of["finding_probability"], of["empty_share"]]
        values += [of.get("extent_mm"), self.size, size["unit"]]
        values += [*(size[q] for q in QUANTILES), length["unit"], *(length[q] for q in QUANTILES), self.disagreement]
        return ["" if value is None else value for value in values]


def all_rows(files: ResultFiles) -> list[Row]:
    """Of every result; one that cannot be read is not there."""
    rows: list[Row] = []
    names = {f"{name}/{DONE}": name for name in files.results()}
    for path, content in files.read(list(names)).items():
        try:
            rows += rows_of(parse_done(content, files.address(path)), names[path])
        except InputError:  # somebody else's done.json
            continue
    return rows


def rows_of(done: DoneFile, name: str) -> list[Row]:
    """A line per target of the result of this name."""
    case, finding = name if done.case is None else done.case, (done.finding or {}).get("name")
    warnings = [f"WARNING: {words}" for words in done.warnings]
    return [
        Row(name, case, finding, target, measured, done.files, [*warnings, *done.notes], done.title)
        for target, measured in done.measurements.items()
    ]
