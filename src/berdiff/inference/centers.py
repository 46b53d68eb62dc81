"""Findings by a table of their centres."""

import re
from collections.abc import Sequence
from math import floor, isfinite
from pathlib import Path
from typing import Any, NamedTuple

from berdiff.data.csv_table import read_csv
from berdiff.data.describe import by, expect
from berdiff.errors import InputError
from berdiff.inference.finding import Finding
from berdiff.inference.inputs import Input
from berdiff.inference.opening import ReadInput

COLUMNS = ("case", "z", "y", "x")
# A finding's results are a folder of this name beside the files of its case.
_NAME = re.compile(r"(?!\.)[^/\\\x00-\x1f]{1,100}(?<!\.csv)(?<!\.json)(?<!\.nii\.gz)")


class _Row(NamedTuple):
    """A line of the table."""

    where: str
    name: str
    place: tuple[float | None, ...] = ()  # z (None: empty), y, x
    error: str = ""


class Centers:
    """A table of centres. A bad line is the fault of one finding; a file that is no such table, of the command."""

    kind = "centers"

    def __init__(self, path: Path, mm: bool) -> None:
        self.path, self.mm = path, mm
        self.rows: dict[str, list[_Row]] = {}
        for case, row in _read_rows(path):
            rows = self.rows.setdefault(case, [])
            name = row.name or f"finding-{len(rows) + 1}"
            same = next((i for i, other in enumerate(rows) if other.name.casefold() == name.casefold()), None)
            if same is None:
                rows.append(row._replace(name=name))
            else:  # neither is taken: which one is meant is not known
                expected = f"findings of different names in the case {case!r}"
                rows[same] = rows[same]._replace(error=f"{row.where}: expected {expected}, found {name!r} again")
        expect(self.rows, path, "at least one centre")

    def choose(self, inputs: Sequence[Input], every: bool) -> list[Input]:
        known = {item.name for item in inputs}
        found = [item for item in inputs if item.name in self.rows or item.error]
        some = ", ".join(map(repr, sorted(known)[:3])) + (", ..." if len(known) > 3 else "")
        for case, rows in self.rows.items() if every else ():
            if case not in known:
                error = f"{rows[0].where}: expected the name of an input ({some}) in the column case, found {case!r}"
                found.append(Input(case or rows[0].where, (self.path,), error=error))
        return found

    def asked(self, item: Input) -> Any:
        rows = [[row.name, *row.place] for row in self.rows[item.name]]
        return {"unit": "mm" if self.mm else "voxel", "centers": rows}

    def find(self, item: Input, read: ReadInput) -> list[Finding]:
        found: list[Finding] = []
        for row in self.rows[item.name]:
            try:
                found.append(Finding(row.name, () if row.error else self._center(row, read), row.error))
            except InputError as error:
                found.append(Finding(row.name, error=str(error)))
        return found

    def _center(self, row: _Row, read: ReadInput) -> tuple[int, ...]:
        place, shape = row.place, read.shape
        if self.mm:
            expect(read.grid.affine is not None, row.where, f"a volume with a place in space for mm, not {read.what}")
            expect(None not in place, row.where, "a number in the column z", "an empty one")
            exact = read.grid.to_voxel([at for at in place if at is not None], read.what)
        elif len(shape) == 2:
            expect(place[0] is None, row.where, f"an empty z for the 2D image {read.what}", f"{place[0]}")
            exact = place[1:]
        else:
            expect(
                place[0] is not None, row.where, f"a number in the column z for the volume {read.what}", "an empty one"
            )
            exact = place
        center = tuple(floor(number + 0.5) for number in exact if number is not None)
        inside = all(0 <= at < length for at, length in zip(center, shape, strict=True))
        axes = "slices, rows, columns" if len(shape) == 3 else "rows, columns"
        voxel = " ".join(f"{at:g}" for at in center) + (" (as voxel)" if self.mm else "")
        expect(inside, row.where, f"a centre inside the {by(shape)} {axes} of {read.what}", voxel)
        return center


def _read_rows(path: Path) -> list[tuple[str, _Row]]:
    """(case, line) of each line; what is wrong with a line is noted in it."""
    columns, lines = read_csv(path, COLUMNS)
    rows: list[tuple[str, _Row]] = []
    for where, line, more in lines:
        case, name = (line.get(column, "") for column in ("case", "finding"))
        try:
            expect(not more, where, f"{len(columns)} columns", "more")
            named = "a finding's name without / or \\, not beginning with a dot nor ending like a file of its case"
            expect(not name or _NAME.fullmatch(name), where, named, repr(name))
            place = tuple(_number(line.get(column), where, column) for column in ("z", "y", "x"))
            rows.append((case, _Row(where, name, place)))
        except InputError as error:
            rows.append((case, _Row(where, name, error=str(error))))
    return rows


def _number(text: str | None, where: str, column: str) -> float | None:
    text = text or ""
    if column == "z" and not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    expect(isfinite(number), where, f"a number in the column {column}", repr(text) if text else "none")
    return number
