"""THE reader of tables that users bring, small CSV files with named columns, and the writer of all of ours."""

import csv
import io
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from berdiff.data.case import SPLITS
from berdiff.data.describe import decoding, expect
from berdiff.data.paths import expect_file

MAX_BYTES = 64 * 2**20
MAX_ROWS, MAX_COLUMNS = 2**20, 256


class Line(NamedTuple):
    where: str  # FILE, line NUMBER
    cells: dict[str, str]  # column -> text, stripped; without the columns that the line is too short for
    more: bool  # it has more cells than there are columns


def csv_text(rows: Iterable[Iterable[Any]], quoting: Literal[0, 2] = csv.QUOTE_MINIMAL) -> str:
    """Floats are written so that reading them gives the same bits."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n", quoting=quoting).writerows(rows)
    return text.getvalue()


def read_csv(path: Path, columns: tuple[str, ...], what: str = "") -> tuple[list[str], list[Line]]:
    """The names of its columns, in lower case, and its lines; `columns` must be there."""
    expect_file(path, "a CSV file")
    size = path.stat().st_size
    expect(size <= MAX_BYTES, path, f"a CSV file of at most {MAX_BYTES} bytes", size, "limit")
    lines: list[Line] = []
    with decoding(path, "a CSV file", "something else"), path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        names = [name.strip().lower() for name in next(reader, [])]
        expect(len(names) <= MAX_COLUMNS, path, f"at most {MAX_COLUMNS} columns", len(names), "limit")
        for cells in filter(None, reader):
            expect(len(lines) < MAX_ROWS, path, f"at most {MAX_ROWS} lines", "more", "limit")
            texts = {name: cell.strip() for name, cell in zip(names, cells, strict=False)}
            lines.append(Line(f"{path}, line {reader.line_num}", texts, len(cells) > len(names)))
    twice = sorted({name for name in names if names.count(name) > 1})
    expect(not twice, path, "each column once", f"{', '.join(twice)} again", "name")
    missing = [name for name in columns if name not in names]
    what = what or f"the columns {', '.join(columns)}"
    expect(not missing, path, what, f"no {' and no '.join(missing)}", "missing")
    return names, lines


def read_case_list(path: Path, cases: Collection[str]) -> dict[str, tuple[str, str]]:
    """case -> patient and split ("" without such a column), for exactly the given cases, each once."""
    columns, lines = read_csv(path, ("case", "patient"), "the columns case, patient and perhaps split")
    listed: dict[str, tuple[str, str]] = {}
    split_of: dict[str, str] = {}
    for where, row, more in lines:
        expect(len(row) == len(columns) and not more, where, f"{len(columns)} columns", "another number", "shape")
        case, patient, split = (row.get(name, "") for name in ("case", "patient", "split"))
        what = "a path" if ".." in Path(case).parts or Path(case).is_absolute() else "an unknown case"
        expect(case in cases, where, "the name of a case in the folder", f"{what}: {case!r}", "name")
        expect(case not in listed, where, "each case once", f"{case!r} again", "name")
        expect(patient, where, f"a patient for the case {case!r}")
        expect("split" not in row or split in SPLITS, where, f"the split {', '.join(SPLITS)}", f"{split!r}")
        first = split_of.setdefault(patient, split)
        expect(first == split, where, f"the patient {patient!r} in one split", f"{first} and {split}", "conflict")
        listed[case] = patient, split
    for case in sorted(cases):
        expect(case in listed, path, "every case of the folder", f"no {case!r}", "missing")
    return listed
