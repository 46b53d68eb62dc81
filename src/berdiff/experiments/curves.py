"""Figure A1: GED and HM-IoU over training iterations for both kernels, from the runs of the table `kernel`."""

import csv
import io
from pathlib import Path

from berdiff.errors import InputError
from berdiff.files import write_text
from berdiff.training.curves import draw_curves
from berdiff.training.runs import find_runs


def write_curves(table: Path, out: Path) -> Path:
    """OUT/curves.png and OUT/curves.csv of the runs in TABLE/runs; returns the picture."""
    if not (table / "runs").is_dir():
        raise InputError(f"{table}: expected the folder of `berdiff table kernel`, found no runs in it")
    runs = [run for run in find_runs(table / "runs") if run.of_kind("validation")]
    if not runs:
        raise InputError(f"{table}: expected runs with validations, as `berdiff table kernel` makes them, found none")
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["run", "kernel", "seed", "step", "samples", "ged", "hm_iou"])
    for run in runs:
        of = run.path.name, run.config.model.method, run.config.seed
        for row in run.of_kind("validation"):
            writer.writerow([*of, row["step"], run.config.validation.samples, row["ged"], row["hm_iou"]])
    write_text(out / "curves.csv", text.getvalue())
    draw_curves(runs, out / "curves.png")
    return out / "curves.png"
