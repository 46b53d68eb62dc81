"""The case table of a store, one row per slice or volume: a CSV file, so that anything can read it."""

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Literal, NamedTuple

import numpy as np
from annotated_types import Ge

from berdiff.data.case import SPLITS
from berdiff.data.csv_table import csv_text
from berdiff.data.numbers import MAX_MM
from berdiff.errors import InputError

NAME = "cases.csv"
Counts = dict[Literal["cases", "patients"], Annotated[int, Ge(0)]]


class CaseRow(NamedTuple):
    case: str
    patient: str
    volume: str
    spacing: tuple[float, ...]  # mm, of each spatial axis
    source: str
    split: str
    raters: int


@dataclass(frozen=True, eq=False)
class CaseTable:
    """The columns, each an array of N."""

    case: np.ndarray  # str, unique
    patient: np.ndarray  # str
    volume: np.ndarray  # str
    spacing: np.ndarray  # (N, axes) float64, mm per pixel, nan where unknown
    source: np.ndarray  # str, the file it came from
    split: np.ndarray  # str, one of SPLITS
    raters: np.ndarray  # int, how many of the masks are raters'; those beyond are padding

    def __len__(self) -> int:
        return len(self.case)

    def counts(self) -> dict[str, Counts]:
        """Cases and patients in each split, and in all."""
        patients = {"all": self.patient, **{split: self.patient[self.split == split] for split in SPLITS}}
        return {name: {"cases": len(found), "patients": len(set(found))} for name, found in patients.items()}


def _header(axes: int) -> tuple[str, ...]:
    spacing = ("slice_mm", "row_mm", "column_mm")[-axes:]
    return tuple(chain(*(spacing if name == "spacing" else [name] for name in CaseRow._fields)))


def table_text(rows: Iterable[CaseRow], axes: int) -> str:
    """Of cases with so many spatial axes."""
    place = CaseRow._fields.index("spacing")
    flat = ((*row[:place], *row.spacing, *row[place + 1 :]) for row in rows)
    return csv_text([_header(axes), *flat], csv.QUOTE_NONNUMERIC)  # names may hold anything


def parse_table(text: str, what: str) -> CaseTable:
    """`what` is the file, for the error."""
    try:
        header, *lines = csv.reader(io.StringIO(text, newline=""), strict=True)
        axes = 3 if "slice_mm" in header else 2
        if tuple(header) != (names := _header(axes)):
            raise csv.Error(f"the columns {', '.join(header)} instead of {', '.join(names)}")
        columns = dict(zip(names, zip(*lines, strict=True) if lines else [()] * len(names), strict=True))
        spacing = [columns.pop(name) for name in names if name.endswith("_mm")]
        spacing = np.array(spacing, dtype=np.float64).T.reshape(-1, axes)
        raters = np.array([int(number) for number in columns.pop("raters")], dtype=int)
        odd = (spacing <= 0) | (spacing >= MAX_MM)
        if odd.any() or (len(raters) and not 0 <= raters.min() <= raters.max() < 2**20):
            raise ValueError(f"{'a spacing' if odd.any() else 'a number of raters'} out of range")
    except (ValueError, OverflowError, csv.Error) as error:
        raise InputError(f"{what}: expected a case table, found a damaged one ({error!s:.300})", "damaged") from error
    texts = {name: np.array(column, dtype=object) for name, column in columns.items()}
    return CaseTable(**texts, spacing=spacing, raters=raters)
