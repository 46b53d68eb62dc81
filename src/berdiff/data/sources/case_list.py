"""A user's own list of cases: a CSV file with the columns case, patient and, if wanted, split."""

import csv
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from berdiff.data.case import SPLITS
from berdiff.errors import InputError


@dataclass(frozen=True)
class Listed:
    """What the list says of a case."""

    patient: str
    split: str  # one of SPLITS, or "" where the list has no such column


def read_case_list(path: Path, cases: Collection[str]) -> dict[str, Listed]:
    """case -> patient and split, for exactly the given cases: none unknown, none missing, none twice."""
    rows = _rows(path)
    listed: dict[str, Listed] = {}
    split_of: dict[str, str] = {}
    for line, row in rows:
        case, patient, split = row["case"], row["patient"], row.get("split", "")
        where = f"{path}, line {line}"
        if case not in cases:
            what = "a path" if ".." in Path(case).parts or Path(case).is_absolute() else "an unknown case"
            raise InputError(f"{where}: expected the name of a case in the folder, found {what}: {case!r}")
        if case in listed:
            raise InputError(f"{where}: expected each case once, found {case!r} again")
        if not patient:
            raise InputError(f"{where}: expected a patient for the case {case!r}, found none")
        if "split" in row and split not in SPLITS:
            raise InputError(f"{where}: expected the split {', '.join(SPLITS)}, found {split!r}")
        if split_of.setdefault(patient, split) != split:
            raise InputError(
                f"{where}: expected the patient {patient!r} in one split, found {split_of[patient]} and {split}"
            )
        listed[case] = Listed(patient, split)
    missing = sorted(set(cases) - set(listed))
    if missing:
        raise InputError(f"{path}: expected every case of the folder, found no {missing[0]!r}")
    return listed


def _rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    if not path.is_file():
        raise InputError(f"{path}: expected a CSV file, found no such file")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            columns = [name.strip().lower() for name in reader.fieldnames or ()]
            reader.fieldnames = columns
            rows = [(reader.line_num, row) for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: expected a CSV file, found something else ({error})") from error
    if not {"case", "patient"} <= set(columns):
        raise InputError(f"{path}: expected the columns case, patient and perhaps split, found {', '.join(columns)}")
    for line, row in rows:
        if None in row or None in row.values():
            raise InputError(f"{path}, line {line}: expected {len(columns)} columns, found another number")
    return [(line, {name: value.strip() for name, value in row.items()}) for line, row in rows]
