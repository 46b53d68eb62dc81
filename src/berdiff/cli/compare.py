"""berdiff compare EVAL_A EVAL_B ...: differences on the cases they share, with paired intervals over patients."""

import json
from pathlib import Path
from typing import Annotated

import tyro


def compare(
    evaluations: Annotated[list[Path], tyro.conf.Positional],
    seed: int = 0,
    json_: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> None:
    """Compare evaluations: the first with each of the others.

    Args:
        evaluations: folders of `berdiff evaluate`
        seed: of the bootstrap
        json_: print JSON instead of the table
    """
    from rich.console import Console

    from berdiff.evaluation.compare import compare as run
    from berdiff.evaluation.compare import comparison_rows
    from berdiff.evaluation.tables import rich_table

    comparison = run(evaluations, seed)
    if json_:
        print(json.dumps(comparison, indent=2))
        return
    console = Console()
    console.print(rich_table(*comparison_rows(comparison)))
    lines = [
        f"{comparison['cases']} shared cases of {comparison['patients']} patients; intervals: 95 % bootstrap over "
        "patients, paired. A verdict is given where the interval leaves out 0."
    ]
    for name, values in comparison["settings_that_differ"].items():
        lines.append(f"not the same in all: {name} is {', '.join(map(str, values))}")
    for line in lines:
        console.print(line, markup=False, highlight=False)


def command(argv: list[str]) -> None:
    tyro.cli(compare, args=argv, prog="berdiff compare")
