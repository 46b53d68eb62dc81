"""`berdiff runs DIR`: the runs in a folder, one line each."""

import json
from pathlib import Path
from typing import Annotated

import tyro

COLUMNS = {
    "run": "{}",
    "recipe": "{}",
    "step": "{}",
    "minutes": "{:.1f}",
    "loss": "{:.4f}",
    "ged": "{:.3f}",
    "hm_iou": "{:.3f}",
    "best_ged": "{:.3f}",
    "best_step": "{}",
    "skipped": "{}",
    "state": "{}",
}


def runs(
    folder: Annotated[Path, tyro.conf.Positional] = Path("runs"),
    as_json: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> None:
    """List runs: how far each is, its last loss and validation, its best, and why it ended.

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
        table.add_row(*("-" if row[name] is None else form.format(row[name]) for name, form in COLUMNS.items()))
    console = Console()
    if not console.is_terminal:
        console.width = 160  # a file or a pipe has no edge to fold lines at
    console.print(table)


def command(argv: list[str]) -> None:
    tyro.cli(runs, args=argv, prog="berdiff runs")
