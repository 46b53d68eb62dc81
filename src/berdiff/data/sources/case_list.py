"""A user's own list of cases: a CSV file with the columns case, patient and, if wanted, split."""

import csv
from collections.abc import Collection
from pathlib import Path

from berdiff.data.case import SPLITS
from berdiff.data.describe import expect, refusing
from berdiff.data.paths import expect_file


def read_case_list(path: Path, cases: Collection[str]) -> dict[str, tuple[str, str]]:
    """case -> patient and split, for exactly the given cases: none unknown, none missing, none twice.

    The split is one of SPLITS, or "" where the list has no such column.
    """
    expect_file(path, "a CSV file")
    broken = (UnicodeDecodeError, csv.Error)
    with refusing(broken, path, "a CSV file", "something else"), path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        columns = reader.fieldnames = [name.strip().lower() for name in reader.fieldnames or ()]
        rows = [(f"{path}, line {reader.line_num}", row) for row in reader]
    expect({"case", "patient"} <= set(columns), path, "the columns case, patient and perhaps split", ", ".join(columns))
    listed: dict[str, tuple[str, str]] = {}
    split_of: dict[str, str] = {}
    for where, row in rows:
        whole = None not in row and None not in row.values()
        expect(whole, where, f"{len(columns)} columns", "another number")
        case, patient, split = (row.get(name, "").strip() for name in ("case", "patient", "split"))
        what = "a path" if ".." in Path(case).parts or Path(case).is_absolute() else "an unknown case"
        expect(case in cases, where, "the name of a case in the folder", f"{what}: {case!r}")
        expect(case not in listed, where, "each case once", f"{case!r} again")
        expect(patient, where, f"a patient for the case {case!r}")
        expect("split" not in row or split in SPLITS, where, f"the split {', '.join(SPLITS)}", f"{split!r}")
        first = split_of.setdefault(patient, split)
        expect(first == split, where, f"the patient {patient!r} in one split", f"{first} and {split}")
        listed[case] = patient, split
    for case in sorted(cases):
        expect(case in listed, path, "every case of the folder", f"no {case!r}")
    return listed
