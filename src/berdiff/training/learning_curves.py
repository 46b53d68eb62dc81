"""The paper's performance-curve figure: validation GED and HM-IoU, and the loss, over iterations."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from berdiff.data.csv_table import csv_text
from berdiff.data.describe import check, expect
from berdiff.files import whole_file, write_text
from berdiff.training.run_folder import StatsRow, TrainingRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = (
    ("validation", "ged", "validation GED"),
    ("validation", "hm_iou", "validation HM-IoU"),
    ("train", "loss", "loss"),
)


def curves(runs: list[TrainingRun]) -> "Figure":
    """One line per run, in the panels of which a run has figures."""
    expect(runs, "RUN", "at least one run folder", code="missing")
    from matplotlib.figure import Figure  # no window, no global state

    panels = [panel for panel in PANELS if any(_rows(run, *panel[:2]) for run in runs)]
    names = ", ".join(str(run.path) for run in runs)
    check(panels, f"{names}: no step is logged yet (see --loop.log-every)", "missing")
    figure = Figure(figsize=(13 * max(len(panels), 1.5) / len(PANELS), 4), layout="constrained")
    for ax, (kind, name, title) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for run in runs:
            rows = _rows(run, kind, name)
            points = [row["step"] for row in rows], [row[name] for row in rows]
            ax.plot(*points, label=run.path.name, marker="o" if kind == "validation" else None, markersize=3)
        ax.set(title=title, xlabel="iteration")
        ax.grid(alpha=0.3)
    for text in figure.axes[0].legend(fontsize=8).get_texts():
        text.set_parse_math(False)  # names of folders
    return figure


def _rows(run: TrainingRun, kind: str, name: str) -> list[StatsRow]:
    return [row for row in run.of_kind(kind) if name in row]


def plot_curves(runs: list[TrainingRun], out: Path) -> None:
    """`curves` as a file."""
    expect(out.suffix in (".png", ".pdf", ".svg"), "--out", "a name ending in .png, .pdf or .svg", out)
    figure = curves(runs)
    with whole_file(out) as part:
        figure.savefig(part, format=out.suffix[1:], dpi=120)


def write_validations(runs: list[TrainingRun], out: Path) -> None:
    """The validations of all runs as a CSV file."""
    rows: list[list[Any]] = [["run", "method", "seed", "samples", "step", "ged", "hm_iou"]]
    for run in runs:
        model, validation = run.config.get("model", {}), run.config.get("validation", {})
        first = run.path.name, model.get("method"), run.config.get("seed"), validation.get("samples")
        rows += [[*first, row["step"], row.get("ged"), row.get("hm_iou")] for row in run.of_kind("validation")]
    write_text(out, csv_text(rows))
