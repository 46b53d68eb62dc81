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
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any, Literal

from berdiff import schema
from berdiff.data.case import Progress
from berdiff.data.describe import expect
from berdiff.data.store import Store
from berdiff.data.subset import choose_cases
from berdiff.evaluation.compare import Evaluation
from berdiff.evaluation.compare import load as load_evaluation
from berdiff.evaluation.evaluate import completed, evaluate, identity
from berdiff.evaluation.evaluation_folder import RESULT
from berdiff.evaluation.settings import EvaluationSettings
from berdiff.files import remove_leftovers, replaced_folder
from berdiff.inference.model import Model, load
from berdiff.jobs.store import SETTINGS, sole_worker
from berdiff.methods.sampling import describe
from berdiff.training.config import check
from berdiff.training.config import load as load_config
from berdiff.training.run_folder import ENVIRONMENT, read_run
from berdiff.training.session import train, with_absolute_store
from berdiff.training.stop import RunStopped
from reproduce.tables import kept
from reproduce.tables.scale import Scale, budget
from reproduce.tables.spec import PaperTable, TableRow
from reproduce.tables.write import FinishedRow, assemble, write
from reproduce.untrained import untrained


@dataclass(frozen=True)
class TableJob:
    """A table at a scale, on a store, in the folder `out`.

    With `model`, all rows evaluate it and nothing is trained. What the tables in the folders `also` have done in the
    same way is copied from there; rows that lie in `kept` are not made, and those that are made are added to it.
    """

    table: PaperTable
    scale: Scale
    store: Store
    out: Path
    seeds: int = 1
    model: str | None = None
    device: str = "auto"
    also: tuple[Path, ...] = ()
    kept: Path | None = None

    def check(self) -> None:
        slices, given = self.scale.max_slices, self.model is not None
        trains = f"none for the table {self.table.name}, which trains its rows"
        expect(slices is None or slices >= 1, "--slices", "at least 1", slices)
        expect(self.seeds >= 1, "--seeds", "at least 1", self.seeds)
        expect(not given or self.table.takes_model, "--model", trains, self.model)
        expect(not given or self.seeds == 1, "--seeds", "1 with --model, which is not trained again", self.seeds)
        expect(not given or self.kept is None, "--kept", "none with --model, which is not trained here", self.kept)
        for row in self.table.rows:  # a row that the scale refuses must not wait for those before it to be trained
            self.scale.config(row)
        for table in self.also:
            expect((table / "evaluations").is_dir(), "--also", "the folder of a table with evaluations", table)

    def folder(self, kind: Literal["runs", "models", "evaluations"], row: TableRow, seed: int) -> Path:
        name = {"runs": row.run, "models": row.model}.get(kind) or row.name
        return self.out / kind / f"{name}-seed-{seed}"

    def kept_folder(self, row: TableRow, seed: int) -> Path | None:
        return None if self.kept is None else self.kept / self.folder("evaluations", row, seed).name

    def settings(self, row: TableRow, model: Model) -> EvaluationSettings:
        """By the row's own sampler, or by the model's."""
        return completed(self.scale.evaluation(row.sampler or model.segmenter.sampler), model, self.store)


def plan(job: TableJob) -> list[dict[str, Any]]:
    """One entry per row and seed, after every check that can be made without training. Nothing is written."""
    job.check()
    models: dict[str, Model] = {}  # a network is built once, and only to see that it fits
    entries = []
    for row in job.table.rows:
        config, key = check(job.scale.config(row)), row.run or row.name
        if key not in models:
            models[key] = untrained(config, job.store, kept.ROWS) if job.model is None else load(job.model, job.device)
        model = models[key]
        settings = job.settings(row, model)
        slices = len(choose_cases(job.store, settings.split, settings.limit, settings.seed))
        masks = slices * settings.samples * settings.sampler.count if settings.sampler else slices
        for seed in range(job.seeds):
            entry: dict[str, Any] = {"row": row.name, "label": ", ".join(row.label), "seed": seed}
            if job.model is None:
                training = {"training": budget(config.loop), "batch": config.loop.batch_size}
                entry |= {"run": job.folder("runs", row, seed).name, "method": config.model.method, **training}
            entry["parameters"] = sum(p.numel() for p in model.segmenter.parameters())
            entry |= {"sampler": describe(settings.sampler), "slices": slices, "network_passes": masks}
            entries.append(entry | {"state": _state(job, row, seed)})
    return entries


def _state(job: TableJob, row: TableRow, seed: int) -> str:
    folder = job.folder("evaluations", row, seed)
    if (there := job.kept_folder(row, seed)) is not None and there.is_dir():
        return "kept"
    if (folder / RESULT).is_file():
        return "done"
    return "trained" if job.model is not None or job.folder("models", row, seed).is_dir() else "to do"


# --- all of it --------------------------------------------------------------------------------------------------------

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
            steps.append(kept.read_trained(path)[0] if job.model is None else None)
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
        changed = kept.training_differences(folder, config)
        expect(not changed, folder, "a model trained as is asked now", f"another ({'; '.join(changed)})", "changed")
        return folder
    if kept.copy_same(folder, job.also, kept.TRAINED, lambda other: kept.training_differences(other, config)):
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
        kept.write_trained(part, end["step"], config, end["cpu_minutes"])
    return folder


def _evaluated(job: TableJob, row: TableRow, seed: int, path: Path, bar: Bar) -> Evaluation:
    folder = job.folder("evaluations", row, seed)
    model = replace(load(path, job.device), name=folder.name)
    settings = job.settings(row, model)
    if job.also and not folder.is_dir():  # neither done nor begun
        now = identity(model, job.store, settings)

        def differences(other: Path) -> list[str]:
            there = schema.read(other / SETTINGS, dict[str, Any], "the settings of an evaluation")
            return kept.evaluation_differences(there, now, ["model"])

        kept.copy_same(folder, job.also, RESULT, differences)
    with bar(f"evaluating {folder.name}") as progress:
        evaluate(model, job.store, folder, settings, progress)
    return load_evaluation(folder, folder.name)
