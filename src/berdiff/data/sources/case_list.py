"""A user's own list of cases: a CSV file with the columns case, patient and, if wanted, split."""

from collections.abc import Collection
from pathlib import Path

from berdiff.data.case import SPLITS
from berdiff.data.csv_table import read_csv
from berdiff.data.describe import expect


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
