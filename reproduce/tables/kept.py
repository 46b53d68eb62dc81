"""Finished rows without their weights: four small files each, to be committed, or gathered from several machines.

A folder of them (`--kept`) gives the rows that it has, and takes those that are made. KEPT/ROW-seed-N holds the row's
metrics.json, per_case.csv, trained.json and environment.json (commit, versions and machine of each session of its
training); where its data lay is left out, which data it was is a checksum.
"""

import shutil
from dataclasses import replace
from pathlib import Path

from berdiff import schema
from berdiff.data.describe import expect
from berdiff.evaluation.compare import Evaluation
from berdiff.evaluation.compare import load as load_evaluation
from berdiff.evaluation.evaluate import identity
from berdiff.evaluation.evaluation_folder import CASES, RESULT
from berdiff.files import whole_folder, write_text
from berdiff.training.config import AnyConfig
from berdiff.training.run_folder import ENVIRONMENT, read_sessions
from reproduce.tables import reuse
from reproduce.tables.spec import TableRow
from reproduce.tables.table_job import ROWS, TableJob
from reproduce.untrained import untrained

FREE = ("model", "weights_sha256", "device", "batch_size")  # of an evaluation: what the row's figures do not depend on


def find(job: TableJob, row: TableRow, seed: int) -> tuple[Evaluation, int] | None:
    """(evaluation, steps of the training) of a row that is kept; InputError where it was made in another way."""
    if job.kept is None or not (folder := _folder(job, row, seed)).is_dir():
        return None
    config = _anywhere(job.scale.config(row, seed))
    changed = reuse.training_differences(folder, config)
    expect(not changed, folder, "a row trained as is asked now", f"another ({'; '.join(changed)})")
    evaluation, model = load_evaluation(folder, folder.name), untrained(config, job.store, ROWS)
    there = {**evaluation.result["settings"], "data_sha256": evaluation.result["data_sha256"]}
    other = [
        f"{name}: there {there.get(name)}, now {value}"
        for name, value in identity(model, job.store, job.settings(row, model)).items()
        if name not in FREE and there.get(name) != value
    ]
    expect(not other, folder, "a row evaluated as is asked now", f"another ({'; '.join(other)})")
    return evaluation, reuse.read_trained(folder)[0]


def add(job: TableJob, row: TableRow, seed: int, model: Path) -> None:
    """Keep a row that was made in the table's folder, with the model in `model`."""
    if job.kept is None or (folder := _folder(job, row, seed)).is_dir():
        return
    made, (step, config, cpu_minutes) = job.folder("evaluations", row, seed), reuse.read_trained(model)
    with whole_folder(folder) as part:
        for name in (RESULT, CASES):
            shutil.copyfile(made / name, part / name)
        reuse.write_trained(part, step, _anywhere(config), cpu_minutes)
        sessions = [{name: value for name, value in each.items() if name != "command"} for each in read_sessions(model)]
        write_text(part / ENVIRONMENT, schema.dump(sessions))


def _folder(job: TableJob, row: TableRow, seed: int) -> Path:
    assert job.kept is not None
    return job.kept / job.folder("evaluations", row, seed).name


def _anywhere(config: AnyConfig) -> AnyConfig:
    """Without the place of the data on this machine."""
    return replace(config, data=replace(config.data, store=None))
