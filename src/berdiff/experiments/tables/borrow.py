"""What another table has already trained or judged in the same way: BCE + KL is a row of tables 1, 2 and 3.

A copy is taken, under the row's own name, so that a table's folder stays whole by itself.
"""

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from berdiff.errors import InputError
from berdiff.evaluation.record import read_result
from berdiff.experiments.tables.trained import TRAINED, differences, read_trained
from berdiff.files import whole_folder, write_text
from berdiff.training.config import TrainConfig


def borrow_model(kept: Path, config: TrainConfig, tables: Sequence[Path]) -> bool:
    """Whether some table has a model of this very training; it is then in `kept` too."""
    for model in _folders(tables, "models", TRAINED):
        if not differences(read_trained(model)["config"], config):
            with whole_folder(kept) as part:
                shutil.copytree(model, part, dirs_exist_ok=True)
            return True
    return False


def borrow_evaluation(folder: Path, identity: dict[str, Any], tables: Sequence[Path]) -> None:
    """Where some table has finished this very evaluation, whatever it calls the model: the same in `folder`."""
    for judged in _folders(tables, "evaluations", "metrics.json"):
        settings = json.loads((judged / "settings.json").read_text(encoding="utf-8"))
        if any(settings.get(name) != value for name, value in identity.items() if name != "model"):
            continue
        with whole_folder(folder) as part:
            shutil.copytree(judged, part, dirs_exist_ok=True)
            for name, content in (("settings.json", settings), ("metrics.json", read_result(judged))):
                write_text(part / name, json.dumps(content | {"model": identity["model"]}, indent=2) + "\n")
        return


def check_tables(tables: Sequence[Path]) -> None:
    for table in tables:
        if not (table / "evaluations").is_dir():
            raise InputError(f"--also: expected the folder of a table with evaluations, found {table}")


def _folders(tables: Sequence[Path], kind: str, file: str) -> Iterator[Path]:
    return (folder for table in tables for folder in sorted((table / kind).glob("*")) if (folder / file).is_file())
