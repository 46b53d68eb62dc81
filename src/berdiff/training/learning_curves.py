"""The paper's performance-curve figure: validation GED and HM-IoU, and the loss, over iterations."""

from pathlib import Path

from berdiff.data.describe import expect
from berdiff.files import whole_file
from berdiff.training.run_folder import TrainingRun

PANELS = (
    ("validation", "ged", "validation GED"),
    ("validation", "hm_iou", "validation HM-IoU"),
    ("train", "loss", "loss"),
)


def plot_curves(runs: list[TrainingRun], out: Path) -> None:
    """One line per run."""
    expect(runs, "RUN", "at least one run folder")
    expect(out.suffix in (".png", ".pdf", ".svg"), "--out", "a name ending in .png, .pdf or .svg", out)
    from matplotlib.figure import Figure  # no window, no global state

    figure = Figure(figsize=(13, 4), layout="constrained")
    for ax, (kind, name, title) in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
        for run in runs:
            rows = [row for row in run.of_kind(kind) if name in row]
            points = [row["step"] for row in rows], [row[name] for row in rows]
            ax.plot(*points, label=run.path.name, marker="o" if kind == "validation" else None, markersize=3)
        ax.set(title=title, xlabel="iteration")
        ax.grid(alpha=0.3)
    for text in figure.axes[0].legend(fontsize=8).get_texts():
        text.set_parse_math(False)  # names of folders
    with whole_file(out) as part:
        figure.savefig(part, format=out.suffix[1:], dpi=120)
