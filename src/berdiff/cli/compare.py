"""berdiff compare EVAL_A EVAL_B ...: differences on the cases they share, with paired intervals over patients."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Compare:
    """Compare evaluations: the first with each of the others, on the cases that all have."""

    evaluations: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="EVALUATION ...")]
    """folders of `berdiff evaluate`"""
    seed: int = 0  # seed of the bootstrap
    json: bool = False  # print JSON instead of the table


def command(argv: list[str]) -> None:
    options = tyro.cli(Compare, args=argv, prog="berdiff compare", config=(tyro.conf.FlagCreatePairsOff,))

    from berdiff.evaluation.compare import about, compare, comparison_tables, with_letters
    from berdiff.text_tables import console, show, width_of

    comparison = compare(list(options.evaluations), options.seed)
    if options.json:
        print(json.dumps(comparison, indent=2))
        return
    tables, legend = comparison_tables(comparison), []
    edge = console().width
    if any(width_of(*table) > edge for table in tables):
        tables, legend = with_letters(comparison)
    lines = [
        *legend,
        about(comparison),
    ]
    differing = comparison["settings_that_differ"]
    if "set" in differing:
        lines.append("GED, HM-IoU and D_max are of sets chosen by different rules, all else of their whole pools.")
    for name, values in differing.items():
        lines.append(f"not the same in all: {name} is {', '.join(map(str, values))}")
    show(tables, lines)
