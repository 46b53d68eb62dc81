"""`berdiff plot RUN ... --out curves.png`: GED, HM-IoU and loss over the iterations of several runs."""

import json
from pathlib import Path
from typing import Annotated

import tyro


def plot(
    runs: Annotated[list[Path], tyro.conf.Positional],
    out: Path = Path("curves.png"),
    as_json: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> None:
    """Plot learning curves, one line per run.

    Args:
        runs: run folders
        out: the figure to write: .png, .pdf or .svg
        as_json: print what was written as JSON
    """
    from berdiff.training.learning_curves import plot_curves
    from berdiff.training.run_folder import read_run

    plot_curves([read_run(run) for run in runs], out)
    print(json.dumps({"figure": str(out), "runs": [str(run) for run in runs]}) if as_json else out)


def command(argv: list[str]) -> None:
    tyro.cli(plot, args=argv, prog="berdiff plot")
