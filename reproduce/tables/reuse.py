"""Models and evaluations that exist already: in this table's folder, or in another's (BCE + KL is a row of three).

What another table has trained or evaluated in the same way is copied under the row's own name, so that a table's folder
is complete by itself. trained.json, beside a model's weights, holds how it was trained.
"""

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berdiff import schema
from berdiff.evaluation.evaluation_folder import RESULT, read_result
from berdiff.files import whole_folder, write_text
from berdiff.training.config import AnyConfig, Natural, NotNegative, dump, flag, from_plain
from berdiff.workfolder import SETTINGS

TRAINED = "trained.json"
# settings that do not change the weights
FREE = ("recipe", "engine.", "validation.", "data.prefetch", "loop.checkpoint_every", "loop.keep", "loop.log_every")


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


def copy_model(folder: Path, config: AnyConfig, tables: Sequence[Path]) -> bool:
    """Whether some table has a model of the same training; it is then in `folder` too."""
    for other in _folders(tables, "models", TRAINED):
        if not training_differences(other, config):
            with whole_folder(folder) as part:
                shutil.copytree(other, part, dirs_exist_ok=True)
            return True
    return False


def copy_evaluation(folder: Path, identity: dict[str, Any], tables: Sequence[Path]) -> None:
    """Where some table has finished the same evaluation, whatever it calls the model: the same in `folder`."""
    for done in _folders(tables, "evaluations", RESULT):
        settings = schema.read(done / SETTINGS, dict[str, Any], "the settings of an evaluation")
        if any(settings.get(name) != value for name, value in identity.items() if name != "model"):
            continue
        with whole_folder(folder) as part:
            shutil.copytree(done, part, dirs_exist_ok=True)
            for name, content in ((SETTINGS, settings), (RESULT, read_result(done))):
                write_text(part / name, schema.dump(content | {"model": identity["model"]}))
        return


def _folders(tables: Sequence[Path], kind: str, file: str) -> Iterator[Path]:
    return (folder for table in tables for folder in sorted((table / kind).glob("*")) if (folder / file).is_file())
