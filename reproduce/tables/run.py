"""Make a table: train what is missing, evaluate what is missing, assemble the figures.

OUT/runs/RUN-seed-N         the trainings; rows of one run share it
OUT/models/ROW-seed-N       the model of a row (or of all rows) as its training left it; trained.json: how;
                            environment.json: by which code and machine
OUT/evaluations/ROW-seed-N  its evaluation
OUT/table.md, .csv, .png, .json

Every part is skipped where it is done and resumes where it was killed, so the same command finishes a killed table.
"""

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

from berdiff.data.case import Progress
from berdiff.data.describe import expect
from berdiff.evaluation.compare import Evaluation
from berdiff.evaluation.compare import load as load_evaluation
from berdiff.evaluation.evaluate import evaluate, identity
from berdiff.files import remove_leftovers, replaced_folder
from berdiff.inference.model import load as load_model
from berdiff.training.config import load as load_config
from berdiff.training.run_folder import ENVIRONMENT, read_run
from berdiff.training.session import train, with_absolute_store
from berdiff.training.stop import RunStopped
from berdiff.workfolder import sole_worker
from reproduce.tables import kept, reuse
from reproduce.tables.assemble import FinishedRow, assemble
from reproduce.tables.spec import TableRow
from reproduce.tables.table_job import TableJob
from reproduce.tables.write import write

Bar = Callable[[str], AbstractContextManager[Progress]]
"""(what is done) -> a context that gives a function to call with (done, total)."""


def run_table(
    job: TableJob,
    report: Callable[[str], None] = lambda line: None,
    bar: Bar = lambda what: nullcontext(lambda done, total: None),
) -> dict[str, Any]:
    """All of OUT; returns what table.json holds."""
    job.check()
    with sole_worker(job.out, "table"):
        for folder in (job.out, job.out / "models", job.out / "evaluations"):  # runs and evaluations clean their own
            remove_leftovers(folder, deep=False)
        return _make(job, report, bar)


def _make(job: TableJob, report: Callable[[str], None], bar: Bar) -> dict[str, Any]:
    finished: list[FinishedRow] = []
    for number, row in enumerate(job.table.rows, 1):
        parts, steps = [], []
        for seed in range(job.seeds):
            report(f"row {number} of {len(job.table.rows)}, {', '.join(row.label)}, seed {seed}")
            if (found := kept.find(job, row, seed)) is not None:
                parts.append(found[0])
                steps.append(found[1])
                continue
            path = trained(job, row, seed) if job.model is None else Path(job.model)
            steps.append(reuse.read_trained(path)[0] if job.model is None else None)
            parts.append(_evaluated(job, row, seed, path, bar))
            kept.add(job, row, seed, path)
        finished.append(FinishedRow(row, parts, steps))
    result = assemble(job, finished)
    write(result, job.out)
    return result


def trained(job: TableJob, row: TableRow, seed: int) -> Path:
    """The folder of the row's model, after its training, which begins, resumes or is done."""
    config = with_absolute_store(job.scale.config(row, seed))
    folder, run = job.folder("models", row, seed), job.folder("runs", row, seed)
    if folder.is_dir():
        changed = reuse.training_differences(folder, config)
        expect(not changed, folder, "a model trained as is asked now", f"another ({'; '.join(changed)})")
        return folder
    if reuse.copy_model(folder, config, job.also):
        return folder
    if (run / "config.json").is_file():  # a longer run has not kept this row's model
        before, now = load_config(run / "config.json").loop, config.loop
        fits = before.max_steps <= now.max_steps and (before.max_minutes or 0) <= (now.max_minutes or inf)
        expect(fits, run, "a run no longer than this row's", "a longer one; take a new --out")
    reason = train(config, run)
    if not reason.startswith("finished"):
        raise RunStopped(reason)  # it was asked to stop, and has saved itself
    with replaced_folder(folder) as part:  # a longer row of the same run will replace the run's own model
        shutil.copytree(run / "model", part, dirs_exist_ok=True)
        shutil.copyfile(run / ENVIRONMENT, part / ENVIRONMENT)
        end = read_run(run).of_kind("end")[-1]
        reuse.write_trained(part, end["step"], config, end["cpu_minutes"])
    return folder


def _evaluated(job: TableJob, row: TableRow, seed: int, path: Path, bar: Bar) -> Evaluation:
    folder = job.folder("evaluations", row, seed)
    model = replace(load_model(path, job.device), name=folder.name)
    settings = job.settings(row, model)
    if job.also and not folder.is_dir():  # neither done nor begun
        reuse.copy_evaluation(folder, identity(model, job.store, settings), job.also)
    with bar(f"evaluating {folder.name}") as progress:
        evaluate(model, job.store, folder, settings, progress)
    return load_evaluation(folder, folder.name)
