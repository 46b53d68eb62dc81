"""`berdiff table NAME --data STORE --out DIR`: a table of the paper, made on this machine."""

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Literal

import tyro

from berdiff.cli.progress import progress
from berdiff.cli.train import leave_if_signalled
from berdiff.errors import InputError
from berdiff.memory import keep_freed_memory


def table(
    name: Annotated[Literal["losses", "kernel", "sampling", "lidc", "brats"], tyro.conf.Positional],
    out: Path,
    data: str | None = None,
    scale: Literal["cpu", "paper"] = "cpu",
    seeds: int | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    slices: int | None = None,
    rows: tuple[str, ...] = (),
    model: str | None = None,
    also: tuple[Path, ...] = (),
    device: str = "cpu",
    dry_run: bool = False,
    json_: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> None:
    """Train and judge the rows of a table, and write it with the paper's rows beside ours. Killed, the same command
    goes on where it was; what is done is skipped.

    Args:
        name: losses (table 1), kernel (2), sampling (A1), lidc (3) or brats (4)
        out: folder for table.md, table.csv, table.png, table.json and for the runs, models and evaluations behind them
        data: a prepared store; default: the embedded one
        scale: cpu (centre 64x64, the small network, a fixed budget) or paper (its networks and iterations, for a GPU)
        seeds: trainings of each row, from other first weights and orders; default: 2 for kernel, else 1
        minutes: with cpu, of each training: 10 by default, at most 15
        steps: with cpu, of each training instead of minutes: can be repeated exactly
        slices: judge at most so many in any row; default: by the sampler's steps, 300 to 24 (cpu), or all (paper)
        rows: only these, by name, * standing for anything; default: all (--dry-run lists them)
        model: with sampling, a trained run or model to judge instead of training one
        also: folders of other tables: what was trained or judged there in the very same way is copied, not done again
        device: to judge on: cpu, cuda, ...; training takes what it finds
        dry_run: check everything and print what would be done; write nothing
        json_: print JSON instead of tables
    """
    from berdiff.data.store import open_store
    from berdiff.experiments.tables import scale as scales
    from berdiff.experiments.tables.plan import plan
    from berdiff.experiments.tables.registry import TABLES
    from berdiff.experiments.tables.row import only
    from berdiff.experiments.tables.run import Interrupted, run_table
    from berdiff.training.stop import RunStopped

    keep_freed_memory()
    if slices is not None and slices < 1:
        raise InputError(f"--slices: expected at least 1, found {slices}")
    store, chosen = open_store(data), TABLES[name]
    if scale == "cpu":
        size = scales.cpu(store, data, minutes, steps, slices, device)
    elif minutes is not None or steps is not None:
        raise InputError("--minutes and --steps: expected none with --scale paper, whose iterations are the paper's")
    else:
        size = scales.paper(store, data, slices, device)
    if rows:
        chosen = only(chosen, size, rows)
    count = seeds if seeds is not None else chosen.seeds if model is None else 1
    if dry_run:
        _show_plan(plan(chosen, size, store, out, count, model), json_)
        return
    try:
        with redirect_stdout(sys.stderr):  # what trainings say; the table alone is the output
            result = run_table(
                chosen,
                size,
                store,
                out,
                count,
                model,
                lambda line: print(line, file=sys.stderr, flush=True),
                progress,
                also,
            )
    except Interrupted as reason:
        leave_if_signalled(str(reason))
        raise SystemExit(1) from None
    except RunStopped as stopped:
        print(f"berdiff table: {stopped}", file=sys.stderr)
        raise SystemExit(1) from None
    if json_:
        print(json.dumps(result, indent=2))
        return
    print((out / "table.md").read_text(encoding="utf-8"))
    print(f"written to {out}: table.md, table.csv, table.png, table.json")


def _show_plan(entries: list[dict], as_json: bool) -> None:
    if as_json:
        print(json.dumps(entries, indent=2))
        return
    from rich.console import Console

    from berdiff.evaluation.tables import rich_table

    console = Console()
    if not console.is_terminal:
        console.width = 200  # a file or a pipe has no edge to fold lines at
    header = list(entries[0])
    console.print(rich_table(header, [[str(value) for value in entry.values()] for entry in entries]))
    print(f"in all: {sum(entry['network_passes'] for entry in entries):,} passes of one mask through a network")


def command(argv: list[str]) -> None:
    tyro.cli(table, args=argv, prog="berdiff table")
