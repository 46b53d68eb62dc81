"""`berdiff runs DIR`: the runs in a folder, one line each."""

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from berdiff.cli.arguments import parse, print_json

FORMATS = {"minutes": "{:.1f}", "loss": "{:.4f}", "ged": "{:.3f}", "hm_iou": "{:.3f}", "best_ged": "{:.3f}"}
DROP = ("skipped", "seed", "method", "best_step", "hm_iou", "loss", "minutes")  # in this order, on a narrow terminal


@dataclass(frozen=True)
class Runs:
    """List runs: steps done, last loss and validation, best validation, and why each ended."""

    folder: Positional[Path] = Path("runs")  # a folder with run folders in it, or one run folder
    json: bool = False  # print JSON instead of a table

    def run(self) -> None:
        from berdiff.text_tables import show
        from berdiff.training.run_folder import find_runs, run_summary

        rows = [run_summary(run) for run in find_runs(self.folder)]
        if self.json:
            return print_json(rows)
        if not rows:
            return print(f"no runs in {self.folder}")
        body = [["-" if v is None else FORMATS.get(name, "{}").format(v) for name, v in row.items()] for row in rows]
        show([(list(rows[0]), body)], drop=DROP)


def command(argv: list[str]) -> None:
    parse(Runs, argv, "runs").run()
