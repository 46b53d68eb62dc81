"""`berdiff plot RUN ... --out curves.png`: GED, HM-IoU and loss over the iterations of several runs."""

from pathlib import Path
from typing import Annotated

import tyro


def plot(runs: Annotated[list[Path], tyro.conf.Positional], out: Path = Path("curves.png")) -> None:
    """Plot learning curves, one line per run.

    Args:
        runs: run folders
        out: the figure to write: .png, .pdf or .svg
    """
    from berdiff.training.learning_curves import plot_curves
    from berdiff.training.run_folder import read_run

    plot_curves([read_run(run) for run in runs], out)
    print(out)


def command(argv: list[str]) -> None:
    tyro.cli(plot, args=argv, prog="berdiff plot")
