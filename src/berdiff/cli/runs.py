"""`berdiff runs DIR`: the runs in a folder, one line each."""

import json
from pathlib import Path
from typing import Annotated

import tyro

COLUMNS = ("run", "recipe", "step", "minutes", "loss", "ged", "hm_iou", "best_ged", "best_step", "skipped", "state")


def runs(folder: Annotated[Path, tyro.conf.Positional] = Path("runs"), as_json: bool = False) -> None:
    """List runs.

    Args:
        folder: a folder with run folders in it, or one run folder
        as_json: print JSON instead of a table
    """
    from berdiff.training.runs import find_runs, summary

    rows = [summary(run) for run in find_runs(folder)]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(*COLUMNS, box=None)
    for row in rows:
        table.add_row(*(_text(row[name]) for name in COLUMNS))
    Console().print(table)


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def command(argv: list[str]) -> None:
    tyro.cli(runs, args=argv, prog="berdiff runs")
