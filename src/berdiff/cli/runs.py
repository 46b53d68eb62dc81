"""`berdiff runs DIR`: the runs in a folder, one line each."""

import json
from pathlib import Path
from typing import Annotated

import tyro

FORMATS = {"minutes": "{:.1f}", "loss": "{:.4f}", "ged": "{:.3f}", "hm_iou": "{:.3f}", "best_ged": "{:.3f}"}
DROP = ("skipped", "seed", "method", "best_step", "hm_iou", "loss", "minutes")  # in this order, on a narrow terminal


def runs(
    folder: Annotated[Path, tyro.conf.Positional] = Path("runs"),
    as_json: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> None:
    """List runs: steps done, last loss and validation, best validation, and why each ended.

    Args:
        folder: a folder with run folders in it, or one run folder
        as_json: print JSON instead of a table
    """
    from berdiff.training.run_folder import find_runs, run_summary

    rows = [run_summary(run) for run in find_runs(folder)]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    if not rows:
        return print(f"no runs in {folder}")
    from berdiff.text_tables import show

    body = [["-" if v is None else FORMATS.get(name, "{}").format(v) for name, v in row.items()] for row in rows]
    show([(list(rows[0]), body)], drop=DROP)


def command(argv: list[str]) -> None:
    tyro.cli(runs, args=argv, prog="berdiff runs")
