"""`berdiff plot RUN ... --out curves.png`: GED, HM-IoU and loss over the iterations of several runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from berdiff.cli.arguments import parse, print_json


@dataclass(frozen=True)
class Plot:
    """Plot learning curves, one line per run: of the runs of `berdiff table kernel`, the paper's figure A1."""

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN ...")]  # run folders, or folders of them
    out: Path = Path("curves.png")  # the figure to write: .png, .pdf or .svg
    csv: Path | None = None  # a table of all validations to write beside it
    json: bool = False  # print what was written as JSON

    def run(self) -> None:
        from berdiff.training.learning_curves import plot_curves, write_validations
        from berdiff.training.run_folder import find_runs, read_run

        runs = [run for folder in self.runs for run in find_runs(folder) or [read_run(folder)]]
        plot_curves(runs, self.out)
        if self.csv is not None:
            write_validations(runs, self.csv)
        if self.json:
            return print_json({"figure": self.out, "csv": self.csv, "runs": [run.path for run in runs]})
        print(self.out)


def command(argv: list[str]) -> None:
    parse(Plot, argv, "plot").run()
