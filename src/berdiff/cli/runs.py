"""`berdiff runs DIR`: the runs in a folder, one line each."""

import json
from pathlib import Path
from typing import Annotated

import tyro

from berdiff.display import plain_console

FORMATS = {"minutes": "{:.1f}", "loss": "{:.4f}", "ged": "{:.3f}", "hm_iou": "{:.3f}", "best_ged": "{:.3f}"}


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
    from rich.table import Table

    table = Table(*(rows[0] if rows else ()), box=None)
    for row in rows:
        table.add_row(*("-" if v is None else FORMATS.get(name, "{}").format(v) for name, v in row.items()))
    console = plain_console()
    if not console.is_terminal:
        console.width = 160  # a file or a pipe has no edge to fold lines at
    console.print(table if rows else f"no runs in {folder}")


def command(argv: list[str]) -> None:
    tyro.cli(runs, args=argv, prog="berdiff runs")
