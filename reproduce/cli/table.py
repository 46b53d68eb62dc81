"""berdiff table NAME: a table of the paper, made on this machine."""

import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from berdiff import schema
from berdiff.cli.arguments import parse, print_json
from berdiff.cli.opening import open_data
from berdiff.cli.train import leave_if_signalled
from berdiff.display import note, progress
from berdiff.memory import keep_freed_memory

# columns that a narrow terminal does without, the first of them first
DROP_OF_PLAN = ("run", "batch", "method", "label", "parameters")
DROP = ("patients", "slices", "training steps")


@dataclass(frozen=True)
class MakeTable(schema.Settings):
    """Train and evaluate the rows of a table, and write it with the paper's rows beside ours. Killed, the same command
    resumes; what is done is skipped."""

    name: Positional[Literal["losses", "kernel", "sampling", "lidc", "brats"]]
    """losses (table 1), kernel (2), sampling (A1), lidc (3) or brats (4)"""
    out: Path
    """folder for table.md, table.csv, table.png, table.json and for the runs, models and evaluations behind them"""
    data: str | None = None  # prepared store; default: the embedded one
    scale: Literal["cpu", "paper", "recipes"] = "cpu"
    """cpu (centre 64x64, the small network, a fixed budget), paper (its networks and iterations, for a GPU), or, for
    lidc and brats, recipes: all compared methods, each by its own recipe for two cores, on the whole split"""
    seeds: schema.Count | None = None
    """trainings per row, with other initial weights and orders; default: 2 for kernel, else 1"""
    minutes: float | None = None  # with cpu: minutes per training, 10 by default, at most 15
    steps: schema.Count | None = None  # with cpu: steps per training instead of minutes; exactly reproducible
    slices: schema.Count | None = None
    """maximum number of slices per row; default: by the sampler's steps, 300 to 24 (cpu), or all (paper)"""
    rows: tuple[str, ...] = ()
    """only these rows, by name or pattern ('ddim-*'); with lidc and brats also any method by its name, plug-ins too;
    --dry-run lists the rows"""
    model: str | None = None  # with sampling: a trained run or model to evaluate instead of training one
    also: tuple[Path, ...] = ()
    """folders of other tables: what was trained or evaluated there in the same way is copied, not repeated"""
    kept: Path | None = None
    """folder of finished rows without weights (metrics.json, per_case.csv, trained.json, environment.json): rows that
    lie there are taken as they are, rows that are made are added; small enough to commit, or to gather rows from
    several machines"""
    device: str = "auto"  # device to evaluate on: auto, cpu, cuda, ...; training takes what it finds
    dry_run: bool = False  # check everything and print what would be done; write nothing
    json: bool = False  # print JSON instead of tables


def command(argv: list[str]) -> None:
    options = parse(MakeTable, argv, "table")

    from berdiff.device import choose_device
    from berdiff.text_tables import show, show_markdown
    from berdiff.training.stop import RunStopped
    from reproduce.tables import TABLES
    from reproduce.tables import scale as scales
    from reproduce.tables.run import TableJob, plan, run_table
    from reproduce.tables.spec import of_recipes, select_rows

    keep_freed_memory()
    device, store, table = choose_device(options.device), open_data(options.data), TABLES[options.name]
    make_scale = {"cpu": scales.cpu, "paper": scales.paper, "recipes": scales.recipes}[options.scale]
    scale = make_scale(store, options.data, options.slices, minutes=options.minutes, steps=options.steps)
    if options.scale == "recipes":
        table = of_recipes(table)
    if options.rows:
        table = select_rows(table, options.rows)
    seeds = options.seeds if options.seeds is not None else table.seeds if options.model is None else 1
    job = TableJob(table, scale, store, options.out, seeds, options.model, device, options.also, options.kept)
    job.check()
    note(f"device: {device}")
    if options.dry_run:
        result = plan(job)
    else:
        try:
            with redirect_stdout(sys.stderr):  # what trainings print; the table alone is the output
                result = run_table(job, note, progress)
        except RunStopped as stopped:
            leave_if_signalled(str(stopped))
            print(f"berdiff table: {stopped}", file=sys.stderr)
            raise SystemExit(1) from None
    if options.json:
        print_json(result)
    elif isinstance(result, list):
        total = sum(entry["network_passes"] for entry in result)
        body = [[str(value) for value in entry.values()] for entry in result]
        in_all = f"in all: {total:,} passes of one mask through a network"
        show([(list(result[0]), body)], [in_all], DROP_OF_PLAN)
    else:
        show_markdown((options.out / "table.md").read_text(encoding="utf-8"), DROP)
        print(f"written to {options.out}: table.md, table.csv, table.png, table.json")
