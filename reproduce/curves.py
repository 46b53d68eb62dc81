"""Figure A1: GED and HM-IoU over training iterations for both kernels, from the runs of the table `kernel`."""

from pathlib import Path
from typing import Any

from berdiff.data.describe import expect
from berdiff.evaluation.per_case import csv_text
from berdiff.files import write_text
from berdiff.training.learning_curves import plot_curves
from berdiff.training.run_folder import find_runs


def write_curves(table: Path, out: Path) -> Path:
    """OUT/curves.png and OUT/curves.csv of the runs in TABLE/runs; returns the picture."""
    runs = [run for run in find_runs(table / "runs") if run.of_kind("validation")]
    expect(runs, table, "runs with validations, as `berdiff table kernel` makes them")
    rows: list[list[Any]] = [["run", "method", "seed", "samples", "step", "ged", "hm_iou"]]
    for run in runs:
        config = run.config
        method, samples = config.get("model", {}).get("method"), config.get("validation", {}).get("samples")
        first = run.path.name, method, config.get("seed"), samples
        rows += [[*first, row["step"], row.get("ged"), row.get("hm_iou")] for row in run.of_kind("validation")]
    write_text(out / "curves.csv", csv_text(rows))
    plot_curves(runs, out / "curves.png")
    return out / "curves.png"
