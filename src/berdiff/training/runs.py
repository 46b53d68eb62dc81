"""Run folders as they lie on the disk: reading their statistics and listing them. No torch here.

config.json       the resolved configuration
environment.json  one entry a session: command, seed, git commit, package versions, machine
stats.jsonl       one line a log step, validation or end
log.txt           what the terminal showed
tensorboard/      the same figures for TensorBoard
sheets/           sample sheets
checkpoints/      for resuming (see checkpoint.py)
model/            EMA weights of the last checkpoint: the model of record
best/             EMA weights of the best validation GED
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berdiff.errors import InputError
from berdiff.training.config import TrainConfig, load

Row = dict[str, Any]


@dataclass(frozen=True)
class Run:
    path: Path
    config: TrainConfig
    rows: list[Row]

    def of_kind(self, kind: str) -> list[Row]:
        """The rows of one kind: train, validation or end."""
        return [row for row in self.rows if row["kind"] == kind]


def read_rows(path: Path) -> list[Row]:
    """The whole lines of a stats.jsonl; a kill may have torn the last one, which is left out."""
    if not path.is_file():
        return []
    rows = []
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            if number == len(lines):
                break
            raise InputError(f"{path}: expected JSON in line {number}, found {error}") from error
    return rows


def read_run(path: str | Path) -> Run:
    path = Path(path)
    if not (path / "config.json").is_file():
        raise InputError(f"{path}: expected a run folder of `berdiff train`, found no config.json in it")
    return Run(path, load(path / "config.json"), read_rows(path / "stats.jsonl"))


def find_runs(folder: str | Path) -> list[Run]:
    """The runs in a folder (or the folder itself, if it is one), by name."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: expected a folder with runs, found no such folder")
    if (folder / "stats.jsonl").is_file():
        return [read_run(folder)]
    return [read_run(stats.parent) for stats in sorted(folder.glob("*/stats.jsonl"))]


def summary(run: Run) -> Row:
    """One line of `berdiff runs`."""
    train, validation, end = run.of_kind("train"), run.of_kind("validation"), run.of_kind("end")
    last = run.rows[-1] if run.rows else {}
    best = min(validation, key=lambda row: row["ged"], default={})
    return {
        "run": run.path.name,
        "recipe": run.config.recipe,
        "seed": run.config.seed,
        "step": last.get("step", 0),
        "minutes": round(last.get("minutes", 0.0), 1),
        "loss": train[-1]["loss"] if train else None,
        "ged": validation[-1]["ged"] if validation else None,
        "hm_iou": validation[-1]["hm_iou"] if validation else None,
        "best_ged": best.get("ged"),
        "best_step": best.get("step"),
        "skipped": last.get("skipped", 0),
        "state": end[-1]["reason"] if end and last.get("kind") == "end" else "running or killed",
    }
