"""Models and evaluations that exist already: in this table's folder, in another's, or kept without weights.

trained.json, beside a model's weights, holds how it was trained. What another table (`--also`) has trained or evaluated
in the same way is copied under the row's own name, so that a table's folder is complete by itself.

A folder of finished rows without weights (`--kept`) gives the rows that it has, and takes those that are made: to be
committed, or gathered from several machines. KEPT/ROW-seed-N holds the row's metrics.json, per_case.csv, trained.json
and environment.json (commit, versions and machine of each session of its training); where its data lay is left out,
which data it was is a checksum.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from berdiff import schema
from berdiff.data.describe import expect
from berdiff.evaluation.compare import Evaluation
from berdiff.evaluation.compare import load as load_evaluation
from berdiff.evaluation.evaluate import identity
from berdiff.evaluation.evaluation_folder import CASES, RESULT
from berdiff.files import whole_folder, write_text
from berdiff.jobs.store import SETTINGS
from berdiff.training.config import AnyConfig, Natural, NotNegative, dump, flag, from_plain
from berdiff.training.run_folder import ENVIRONMENT, read_sessions
from reproduce.untrained import untrained

if TYPE_CHECKING:
    from reproduce.tables.run import TableJob
    from reproduce.tables.spec import TableRow

TRAINED = "trained.json"
# settings that do not change the weights
FREE = ("recipe", "engine.", "validation.", "data.prefetch", "loop.checkpoint_every", "loop.keep", "loop.log_every")


# of an evaluation: what the figures of a row do not depend on
FREE_OF_WEIGHTS = ("model", "weights_sha256", "device", "batch_size")
ROWS = "--rows"  # names the methods, so a method that does not fit the data is reported of it


@dataclass(frozen=True)
class TrainedFile(schema.Content):
    """trained.json."""

    step: Natural
    config: dict[str, Any]
    cpu_minutes: NotNegative | None = None  # what the training took, over all its processes


def write_trained(folder: Path, step: int, config: AnyConfig, cpu_minutes: float | None = None) -> None:
    content = {"step": step, "cpu_minutes": cpu_minutes, "config": json.loads(dump(config))}
    write_text(folder / TRAINED, schema.dump(content))


def read_trained(folder: Path) -> tuple[int, AnyConfig, float | None]:
    """(steps it was trained for, its configuration, CPU minutes that took)."""
    file = folder / TRAINED
    found = schema.read(file, TrainedFile, "how the model was trained")
    return found.step, from_plain(found.config, str(file)), found.cpu_minutes


def training_differences(folder: Path, config: AnyConfig) -> list[str]:
    """Settings by which the model in `folder` was trained and that make other weights than `config` would."""
    before, now = (
        {"model.method": each.model.method, **dict(schema.flatten(each))} for each in (read_trained(folder)[1], config)
    )
    return [
        f"{flag(name)}: there {before.get(name)}, now {value}"
        for name, value in now.items()
        if not name.startswith(FREE) and before.get(name) != value
    ]


def copy_same(folder: Path, tables: Sequence[Path], file: str, differences: Callable[[Path], list[str]]) -> bool:
    """Whether some table has made the same model or evaluation, whose last file is `file`, whatever it calls it; it is
    then in `folder` too, under this name."""
    for table in tables:
        for other in sorted((table / folder.parent.name).glob("*")):
            if (other / file).is_file() and not differences(other):
                with whole_folder(folder) as part:
                    shutil.copytree(other, part, dirs_exist_ok=True)
                    for name in (SETTINGS, RESULT) if file == RESULT else ():
                        content = schema.read_json(other / name, "an evaluation")
                        write_text(part / name, schema.dump(content | {"model": folder.name}))
                return True
    return False


def evaluation_differences(there: Mapping[str, Any], now: Mapping[str, Any], free: Sequence[str]) -> list[str]:
    """How an evaluation differs from another one, but for what is `free`."""
    return [
        f"{name}: there {there.get(name)}, now {value}"
        for name, value in now.items()
        if name not in free and there.get(name) != value
    ]


def find(job: "TableJob", row: "TableRow", seed: int) -> tuple[Evaluation, int] | None:
    """(evaluation, steps of the training) of a row that is kept; InputError where it was made in another way."""
    folder = job.kept_folder(row, seed)
    if folder is None or not folder.is_dir():
        return None
    config = _anywhere(job.scale.config(row, seed))
    changed = training_differences(folder, config)
    expect(not changed, folder, "a row trained as is asked now", f"another ({'; '.join(changed)})", "changed")
    evaluation, model = load_evaluation(folder, folder.name), untrained(config, job.store, ROWS)
    there = {**evaluation.result["settings"], "data_sha256": evaluation.result["data_sha256"]}
    other = evaluation_differences(there, identity(model, job.store, job.settings(row, model)), FREE_OF_WEIGHTS)
    expect(not other, folder, "a row evaluated as is asked now", f"another ({'; '.join(other)})", "changed")
    return evaluation, read_trained(folder)[0]


def add(job: "TableJob", row: "TableRow", seed: int, model: Path) -> None:
    """Keep a row that was made in the table's folder, with the model in `model`."""
    folder = job.kept_folder(row, seed)
    if folder is None or folder.is_dir():
        return
    made, (step, config, cpu_minutes) = job.folder("evaluations", row, seed), read_trained(model)
    with whole_folder(folder) as part:
        for name in (RESULT, CASES):
            shutil.copyfile(made / name, part / name)
        write_trained(part, step, _anywhere(config), cpu_minutes)
        sessions = [{name: value for name, value in each.items() if name != "command"} for each in read_sessions(model)]
        write_text(part / ENVIRONMENT, schema.dump(sessions))


def _anywhere(config: AnyConfig) -> AnyConfig:
    """Without the place of the data on this machine."""
    return replace(config, data=replace(config.data, store=None))
