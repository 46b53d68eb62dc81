"""What is asked of a table, the checks that need no training, and `berdiff table NAME --dry-run`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from berdiff.data.describe import expect
from berdiff.data.store import Store
from berdiff.data.subset import choose_cases
from berdiff.evaluation.evaluate import completed
from berdiff.evaluation.evaluation_folder import RESULT
from berdiff.evaluation.settings import EvaluationSettings
from berdiff.inference.model import Model, load
from berdiff.methods.sampling import describe
from berdiff.training.config import check
from reproduce.tables.scale import Scale, budget
from reproduce.tables.spec import PaperTable, TableRow
from reproduce.untrained import untrained

ROWS = "--rows"  # names the methods, so a method that does not fit the data is reported of it


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
            models[key] = untrained(config, job.store, ROWS) if job.model is None else load(job.model, job.device)
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
    if job.kept is not None and (job.kept / folder.name).is_dir():
        return "kept"
    if (folder / RESULT).is_file():
        return "done"
    return "trained" if job.model is not None or job.folder("models", row, seed).is_dir() else "to do"
