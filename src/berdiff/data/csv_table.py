"""THE reader of tables that users bring, small CSV files with named columns, and the writer of all of ours."""

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from berdiff.data.describe import decoding, expect
from berdiff.data.paths import expect_file

MAX_BYTES = 64 * 2**20
MAX_ROWS, MAX_COLUMNS = 2**20, 256


class Line(NamedTuple):
    where: str  # FILE, line NUMBER
    cells: dict[
        str, str
    ]  # column -> text, without spaces around it; a column that the line is too short for is missing
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
