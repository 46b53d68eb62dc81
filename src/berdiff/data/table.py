"""The case table of a store, one row a slice: a CSV file, so that anything can read it."""

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from berdiff.data.case import SPLITS
from berdiff.errors import InputError

NAME = "cases.csv"
COLUMNS = ("case", "patient", "volume", "row_mm", "column_mm", "source", "split", "raters")


@dataclass(frozen=True)
class Row:
    case: str
    patient: str
    volume: str
    row_mm: float
    column_mm: float
    source: str
    split: str
    raters: int


@dataclass(frozen=True, eq=False)
class CaseTable:
    """The columns, each an array of N."""

    case: np.ndarray  # str, unique
    patient: np.ndarray  # str
    volume: np.ndarray  # str
    spacing: np.ndarray  # (N, 2) float64, mm a pixel (row, column), nan where unknown
    source: np.ndarray  # str, the file it came from
    split: np.ndarray  # str, one of SPLITS
    raters: np.ndarray  # int, how many of the masks are readers'; those beyond are padding

    def __len__(self) -> int:
        return len(self.case)

    def counts(self) -> dict[str, dict[str, int]]:
        """Cases and patients in each split, and in all."""
        chosen = {"all": np.ones(len(self), bool), **{name: self.split == name for name in SPLITS}}
        return {
            name: {"cases": int(rows.sum()), "patients": len(set(self.patient[rows]))} for name, rows in chosen.items()
        }


def table_text(rows: Iterable[Row]) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)  # names may hold anything
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow(getattr(row, column) for column in COLUMNS)
    return text.getvalue()


def parse_table(text: str, what: str) -> CaseTable:
    """`what` is the file, for the error."""
    try:
        header, *lines = csv.reader(io.StringIO(text, newline=""), strict=True)
        if tuple(header) != COLUMNS:
            raise InputError(f"{what}: expected the columns {', '.join(COLUMNS)}, found {', '.join(header)}")
        rows = [
            Row(case, patient, volume, float(row_mm), float(column_mm), source, split, int(raters))
            for case, patient, volume, row_mm, column_mm, source, split, raters in lines
        ]
    except (ValueError, csv.Error) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{what}: expected a case table, found a damaged one ({error})") from error

    def column(name: str, dtype: type = object) -> np.ndarray:
        return np.array([getattr(row, name) for row in rows], dtype=dtype)

    spacing = np.array([(row.row_mm, row.column_mm) for row in rows], dtype=np.float64).reshape(-1, 2)
    return CaseTable(
        case=column("case"),
        patient=column("patient"),
        volume=column("volume"),
        spacing=spacing,
        source=column("source"),
        split=column("split"),
        raters=column("raters", int),
    )
