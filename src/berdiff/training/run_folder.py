"""Run folders as they are on the disk: reading their statistics and listing them. No torch here.

config.json       the resolved configuration
environment.json  one entry per session: command, seed, git commit, package versions, machine
stats.jsonl       one line per log step, validation or end
log.txt           what the terminal showed
tensorboard/      the same figures for TensorBoard
sheets/           sample sheets
checkpoints/      for resuming (see checkpoint.py)
model/            EMA weights of the last checkpoint: the trained model
best/             EMA weights of the best validation GED
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Required

from typing_extensions import TypedDict

from berdiff import schema
from berdiff.data.describe import check
from berdiff.errors import InputError
from berdiff.inference.run_file import read_run_file
from berdiff.schema import Natural, NotNegative

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from berdiff.inference.model import Model

StatsRow = dict[str, Any]
ENVIRONMENT = "environment.json"
SHOWN = {"loss": "loss", "ged": "validation GED", "hm_iou": "HM-IoU", "best_ged": "best GED"}  # in a run's repr


class WrittenRow(TypedDict, total=False):
    """A line of stats.jsonl: these, and figures of any name."""

    __pydantic_config__ = {"extra": "allow", "strict": True}  # type: ignore[misc]  # noqa: RUF012
    kind: Required[Literal["train", "validation", "end"]]
    step: Required[Natural]
    minutes: NotNegative
    cpu_minutes: NotNegative
    skipped: Natural
    loss: float
    ged: float
    hm_iou: float
    reason: str


@dataclass(frozen=True)
class TrainingRun:
    """A run folder as it was when it was read."""

    path: Path
    config: dict[str, Any]  # config.json as it is, also that of an older version
    rows: list[StatsRow]

    @property
    def folder(self) -> Path:
        """Where it is; the same as `path`."""
        return self.path

    def model(self, device: str = "auto") -> "Model":
        """The trained model, opened."""
        from berdiff.inference.model import load

        return load(self.path, device)

    def plot(self) -> "Figure":
        """Its learning curves."""
        from berdiff.training.learning_curves import curves

        return curves([self])

    def __repr__(self) -> str:
        of = run_summary(self)
        figures = [f"{words} {of[name]:.3g}" for name, words in SHOWN.items() if of[name] is not None]
        lines = [f"TrainingRun {self.path}: {of['recipe']}, method {of['method']}, seed {of['seed']}"]
        lines.append(f"  {of['step']} steps, {of['minutes']:g} minutes, {of['state']}")
        return "\n".join([*lines, *([f"  {', '.join(figures)}"] if figures else [])])

    def of_kind(self, kind: str) -> list[StatsRow]:
        """The rows of one kind: train, validation or end."""
        return [row for row in self.rows if row["kind"] == kind]


def read_rows(path: Path) -> list[StatsRow]:
    """The whole lines of a stats.jsonl; a kill may have torn the last one, which is left out."""
    if not path.is_file():
        return []
    rows: list[StatsRow] = []
    lines = schema.read_text(path, "the statistics of a run").splitlines()
    for number, line in enumerate(lines, 1):
        where = f"{path}, line {number}"
        try:
            content = schema.loads(line, where, "a line of statistics", nan=True)
        except InputError:
            if number == len(lines):
                break
            raise
        rows.append(
            dict(schema.parse(WrittenRow, content, lambda place, where=where: f"{where}: {place}".rstrip(": ")))
        )
    return rows


def read_run(path: str | Path) -> TrainingRun:
    """A run folder of any version; InputError where it is none."""
    path = Path(path)
    known = (path / "config.json").is_file()
    check(known, f"{path}: not a run folder of `berdiff train`, without config.json", "kind")
    return TrainingRun(path, dict(read_run_file(path)), read_rows(path / "stats.jsonl"))


def is_finished(run: Path) -> bool:
    """Whether a training in this folder came to its own end, and not by a signal or a kill."""
    if not (run / "config.json").is_file():
        return False
    last = [{}, *read_run(run).rows][-1]
    return last.get("kind") == "end" and last["reason"].startswith("finished")


def read_sessions(run: Path) -> list[dict[str, Any]]:
    """environment.json: where and by which code each session of the run was trained; none before the first."""
    path = run / ENVIRONMENT
    return schema.read(path, list[dict[str, Any]], "the sessions of the run") if path.is_file() else []


def find_runs(folder: str | Path) -> list[TrainingRun]:
    """The runs in a folder (or the folder itself, if it is one), by name."""
    folder = Path(folder)
    check(folder.is_dir(), f"{folder}: no such folder", "missing")
    if (folder / "stats.jsonl").is_file():
        return [read_run(folder)]
    return [read_run(stats.parent) for stats in sorted(folder.glob("*/stats.jsonl"))]


def run_summary(run: TrainingRun) -> StatsRow:
    """One line of `berdiff runs`."""
    # the last row of all, and of each kind
    last, train, validation = ([{}, *rows][-1] for rows in (run.rows, run.of_kind("train"), run.of_kind("validation")))
    best = min(run.of_kind("validation"), key=lambda row: row["ged"], default={})
    return {
        "run": run.path.name,
        "recipe": run.config.get("recipe"),
        "method": run.config.get("model", {}).get("method"),
        "seed": run.config.get("seed"),
        "step": last.get("step", 0),
        "minutes": round(last.get("minutes", 0.0), 1),
        "loss": train.get("loss"),
        "ged": validation.get("ged"),
        "hm_iou": validation.get("hm_iou"),
        "best_ged": best.get("ged"),
        "best_step": best.get("step"),
        "skipped": last.get("skipped", 0),
        "state": last.get("reason", "running or killed"),
    }
