"""The paper's performance-curve figure: validation GED and HM-IoU, and the loss, over iterations."""

from pathlib import Path

from berdiff.errors import InputError
from berdiff.files import whole_file
from berdiff.training.runs import Run

PANELS = (
    ("validation", "ged", "validation GED"),
    ("validation", "hm_iou", "validation HM-IoU"),
    ("train", "loss", "loss"),
)


def draw_curves(runs: list[Run], out: Path) -> None:
    if not runs:
        raise InputError("RUN: expected at least one run folder, found none")
    if out.suffix not in (".png", ".pdf", ".svg"):
        raise InputError(f"--out: expected a name ending in .png, .pdf or .svg, found {out}")
    from matplotlib.figure import Figure  # no window, no global state

    figure = Figure(figsize=(13, 4), layout="constrained")
    for ax, (kind, name, title) in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
        for run in runs:
            rows = [row for row in run.of_kind(kind) if name in row]
            marker = "o" if kind == "validation" else None
            ax.plot(
                [r["step"] for r in rows], [r[name] for r in rows], label=run.path.name, marker=marker, markersize=3
            )
        ax.set(title=title, xlabel="iteration")
        ax.grid(alpha=0.3)
    figure.axes[0].legend(fontsize=8)
    with whole_file(out) as part:
        figure.savefig(part, format=out.suffix[1:], dpi=120)
