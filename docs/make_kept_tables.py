"""Tables of methods from the rows that `berdiff table --kept` has kept in docs/results/data, with paired differences.

A new row is its folder: `make results`, or `PYTHONPATH=. python docs/make_kept_tables.py [--out DIR]`, writes the CSV
files.
"""

import argparse
import csv
from dataclasses import dataclass
from pathlib import Path

from berdiff.evaluation.bootstrap import Figure
from berdiff.evaluation.compare import Evaluation, compare_evaluations, load
from berdiff.metrics import find_metric
from reproduce.tables.kept import read_trained
from reproduce.tables.methods import BRATS_TABLE, LIDC_TABLE
from reproduce.tables.spec import PaperTable

DATA = Path(__file__).parent / "results" / "data"
SHORT = {
    "dice_slice": "Dice by slice",
    "dice_slice_marked": "by slice where marked",
    "dice_patient": "Dice by patient",
    "dice_patient_marked": "by patient where marked",
}


@dataclass(frozen=True)
class KeptTable:
    """FILE.csv has the figures of the rows in `rows`, FILE-NAME.csv the differences between one and all others."""

    file: str
    rows: str
    table: PaperTable
    metrics: tuple[str, ...]
    against: dict[str, str]  # NAME of the file of differences: the row
    checks: tuple[tuple[str, str], ...] = ()  # (label, folder) of rows trained otherwise than the table asks


KEPT = (
    KeptTable("table-4-brats", "rows-brats", BRATS_TABLE, tuple(SHORT), {"claims": "berdiff-brats"}),
    KeptTable(
        file="table-3-lidc",
        rows="rows-lidc",
        table=LIDC_TABLE,
        metrics=LIDC_TABLE.metrics,
        against={"claims": "berdiff", "claims-paper": "berdiff-small"},
        checks=(
            ("BerDiff, our recipe, where CCDM was trained", "rows-lidc-checks/berdiff-60-minutes"),
            ("CCDM, 30 CPU minutes", "rows-lidc-checks/ccdm-30-minutes"),
        ),
    ),
)


def write_tables(out: Path) -> None:
    """Every CSV file of kept rows into `out`."""
    for kept in KEPT:
        rows = [(row, DATA / kept.rows / f"{row.name}-seed-0") for row in kept.table.compared]
        found = {row.name: (row.label[0], folder, row.paper or {}) for row, folder in rows if folder.is_dir()}
        found |= {folder: (label, DATA / folder, {}) for label, folder in kept.checks}
        evaluations = {name: load(folder, label) for name, (label, folder, _) in found.items()}
        deciding = [metric for metric in kept.metrics if metric in kept.table.deciding]
        paper = [metric for metric in deciding if any(metric in figures for _, _, figures in found.values())]
        head = ["method", *map(short_label, kept.metrics), "steps", *(f"{short_label(m)}, the paper's" for m in paper)]
        lines = [
            [
                label,
                *(_figure(evaluations[name].result["metrics"][metric]) for metric in kept.metrics),
                f"{read_trained(folder)[0]:,}",
                *(_number(figures.get(metric)) for metric in paper),
            ]
            for name, (label, folder, figures) in found.items()
        ]
        _write(out / f"{kept.file}.csv", [head, *lines])
        for name, first in kept.against.items():
            others = [evaluation for other, evaluation in evaluations.items() if other != first]
            head = [f"{evaluations[first].name} minus", *map(short_label, deciding)]
            lines = [[other.name, *_differences(evaluations[first], other, deciding)] for other in others]
            _write(out / f"{kept.file}-{name}.csv", [head, *lines])


def _differences(first: Evaluation, other: Evaluation, metrics: list[str]) -> list[str]:
    """First minus other, bold where the interval leaves out 0."""
    rows = {row["metric"]: row["difference"] for row in compare_evaluations([other, first])["rows"]}
    return [_difference(rows[metric]) for metric in metrics]


def _difference(figure: Figure) -> str:
    text = _figure(figure, signed=True)
    low, high = figure["low"], figure["high"]
    decided = low is not None and high is not None and not low <= 0 <= high
    return f"**{text}**" if decided else text


def _figure(figure: Figure, signed: bool = False) -> str:
    value, low, high = (_number(figure[key], signed) for key in ("value", "low", "high"))
    return f"{value} ({low} to {high})" if low else value


def _number(value: float | None, signed: bool = False) -> str:
    """.863, or +.025."""
    if value is None:
        return ""
    text = f"{value:+.3f}" if signed else f"{value:.3f}"
    return text.replace("0.", ".", 1) if abs(value) < 1 else text


def short_label(metric: str) -> str:
    return SHORT.get(metric, find_metric(metric).label)


def _write(file: Path, lines: list[list[str]]) -> None:
    with file.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the tables of methods from the rows that are kept.")
    parser.add_argument("--out", type=Path, default=DATA, help="folder of the CSV files (default: %(default)s)")
    write_tables(parser.parse_args().out)


if __name__ == "__main__":
    main()
