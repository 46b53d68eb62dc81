"""Make a table: train what is missing, judge what is missing, put the figures together.

OUT/runs/RUN-seed-N         the trainings; rows of one run share it
OUT/models/ROW-seed-N       the model of a row (or of all rows) as its training left it; trained.json: how
OUT/evaluations/ROW-seed-N  its evaluation
OUT/table.md, .csv, .png, .json

Every part is skipped where it is done and goes on where it was, so the same command finishes a table that was killed.
"""

import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from berdiff.data.store import Store
from berdiff.errors import InputError
from berdiff.evaluation.compare import load as load_evaluation
from berdiff.evaluation.evaluate import evaluate, identity
from berdiff.evaluation.models import open_model
from berdiff.experiments.tables.borrow import borrow_evaluation, borrow_model, check_tables
from berdiff.experiments.tables.figures import Done, figures
from berdiff.experiments.tables.row import Row, Table
from berdiff.experiments.tables.scale import Scale
from berdiff.experiments.tables.trained import differences, read_trained, write_trained
from berdiff.experiments.tables.write import write
from berdiff.files import whole_folder
from berdiff.training.config import TrainConfig
from berdiff.training.config import load as load_config
from berdiff.training.runs import read_run
from berdiff.training.session import train, with_absolute_store

Say = Callable[[str], None]
Progress = Callable[[str], AbstractContextManager[Callable[[int, int], None]]]
"""(what is done) -> a context that gives a function to be told (done, total)."""


class Interrupted(Exception):
    """A training was asked to stop, and has saved itself; the message is its reason."""


def silent(what: str) -> AbstractContextManager[Callable[[int, int], None]]:
    return nullcontext(lambda done, total: None)


def run_table(
    table: Table,
    scale: Scale,
    store: Store,
    out: Path,
    seeds: int,
    model: str | None = None,
    say: Say = lambda line: None,
    progress: Progress = silent,
    also: Sequence[Path] = (),
) -> dict[str, Any]:
    """All of OUT; returns what table.json holds. With `model`, all rows judge it and nothing is trained. What the
    tables in the folders `also` have done in the same way is copied from there."""
    check_request(table, seeds, model)
    check_tables(also)
    rows = [row(scale) for row in table.rows]
    done: list[Done] = []
    for number, row in enumerate(rows, 1):
        parts, steps = [], []
        for seed in range(seeds):
            name = f"{row.name}-seed-{seed}"
            say(f"row {number} of {len(rows)}, {', '.join(row.label)}, seed {seed}")
            path = Path(model) if model is not None else trained(row, seed, out, also)
            steps.append(None if model is not None else read_trained(path)["step"])
            folder = out / "evaluations" / name
            _judge(row, path, model is not None, store, folder, name, progress, also)
            parts.append(load_evaluation(folder, name))
        done.append(Done(row, parts, steps))
    result = figures(table, scale, store, done, seeds, model)
    write(result, out)
    return result


def check_request(table: Table, seeds: int, model: str | None) -> None:
    if seeds < 1:
        raise InputError(f"--seeds: expected at least 1, found {seeds}")
    if model is not None and not table.takes_model:
        raise InputError(f"--model: expected none for the table {table.name}, which trains its rows, found {model}")
    if model is not None and seeds != 1:
        raise InputError(f"--seeds: expected 1 with --model, which is not trained again, found {seeds}")


def trained(row: Row, seed: int, out: Path, also: Sequence[Path] = ()) -> Path:
    """The folder of the row's model, after its training, which begins, goes on or is done."""
    config = with_absolute_store(replace(row.config, seed=seed))
    kept = out / "models" / row.kept(seed)
    if kept.is_dir():
        _refuse_other(kept, config)
        return kept
    if borrow_model(kept, config, also):
        return kept
    run = out / "runs" / f"{row.run}-seed-{seed}"
    _refuse_longer(run, config)
    reason = train(config, run)
    if not reason.startswith("finished"):
        raise Interrupted(reason)
    end = read_run(run).of_kind("end")[-1]
    with whole_folder(kept) as part:  # a longer row of the same run will move the run's own model on
        for file in ("config.json", "model.safetensors"):
            shutil.copyfile(run / "model" / file, part / file)
        write_trained(part, end["step"], config)
    return kept


def _judge(
    row: Row,
    path: Path,
    given: bool,
    store: Store,
    folder: Path,
    name: str,
    progress: Progress,
    also: Sequence[Path],
) -> None:
    settings = row.settings
    opened = open_model(path, settings.device)
    if given:  # it knows itself what it was trained on
        settings = replace(settings, crop=opened.crop)
    if also and not folder.is_dir():  # neither done nor begun
        borrow_evaluation(folder, identity(opened.segmenter, store, settings, name), also)
    with progress(f"judging {name}") as update:
        evaluate(opened.segmenter, store, folder, settings, name, update)


def _refuse_other(kept: Path, config: TrainConfig) -> None:
    """InputError where the model at hand was trained otherwise than the row is now asked for."""
    if changed := differences(read_trained(kept)["config"], config):
        raise InputError(f"{kept}: expected a model trained as is asked now, found another ({'; '.join(changed)})")


def _refuse_longer(run: Path, config: TrainConfig) -> None:
    """InputError where the run has gone on beyond this row's budget and the row's model was not kept."""
    if not (run / "config.json").is_file():
        return
    before, now = load_config(run / "config.json").loop, config.loop
    longer = before.max_steps > now.max_steps
    if before.max_minutes is not None and now.max_minutes is not None:
        longer |= before.max_minutes > now.max_minutes
    if longer:
        raise InputError(f"{run}: expected a run no longer than this row's, found a longer one; take a new --out")
