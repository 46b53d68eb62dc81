"""Results as lines of a table, one per target, from the done.json of each.

The tables of a case and of a cohort are made of these files alone, so that they do not depend on which process, or
which run, made a result.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berdiff.errors import InputError
from berdiff.output.done_file import DONE, read_done

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
    measured: Mapping[str, Any]
    files: Collection[str]
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


def rows_of(folder: Path, root: Path) -> list[Row]:
    """A line per target of the result in a folder; none where it is of an older version, without a summary."""
    done = read_done(folder)
    where = folder.relative_to(root).as_posix()
    case, finding = where if done.case is None else done.case, (done.finding or {}).get("name")
    return [
        Row(where, case, finding, target, measured, done.files, done.notes)
        for target, measured in done.measurements.items()
    ]


def results_in(root: Path) -> Iterator[Path]:
    """The folders of all results, in the order of their names; what is in them is not looked at."""
    if (root / DONE).is_file():
        yield root
        return
    with os.scandir(root) as entries:
        folders = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    for name in folders:
        if not name.startswith("."):
            yield from results_in(root / name)


def all_rows(root: Path) -> list[Row]:
    """Of every result in a folder; one that cannot be read is not there."""
    rows: list[Row] = []
    for folder in results_in(root):
        try:
            rows += rows_of(folder, root)
        except InputError:  # somebody else's done.json
            continue
    return rows
