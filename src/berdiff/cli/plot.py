"""`berdiff plot RUN ... --out curves.png`: GED, HM-IoU and loss over the iterations of several runs."""

from pathlib import Path
from typing import Annotated

import tyro


def plot(runs: Annotated[list[Path], tyro.conf.Positional], out: Path = Path("curves.png")) -> None:
    """Draw curves over iterations, one line a run.

    Args:
        runs: run folders
        out: the picture to write
    """
    from berdiff.training.curves import draw_curves
    from berdiff.training.runs import read_run

    draw_curves([read_run(run) for run in runs], out)
    print(out)


def command(argv: list[str]) -> None:
    tyro.cli(plot, args=argv, prog="berdiff plot")
