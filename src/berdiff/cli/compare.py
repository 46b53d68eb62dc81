"""berdiff compare EVAL_A EVAL_B ...: differences on the cases they share, with paired intervals over patients."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from berdiff import schema
from berdiff.cli.arguments import parse, print_json


@dataclass(frozen=True)
class Compare(schema.Settings):
    """Compare evaluations: the first with each of the others, on the cases that all have."""

    evaluations: Annotated[Positional[tuple[Path, ...]], arg(metavar="EVALUATION ...")]
    """folders of `berdiff evaluate`"""
    seed: schema.Natural = 0  # seed of the bootstrap
    json: bool = False  # print JSON instead of the table


def command(argv: list[str]) -> None:
    options = parse(Compare, argv, "compare")

    from berdiff.evaluation.compare import about, compare, comparison_tables, with_letters
    from berdiff.text_tables import console, show, width_of

    comparison = compare(list(options.evaluations), options.seed)
    if options.json:
        return print_json(comparison)
    tables, legend = comparison_tables(comparison), []
    edge = console().width
    if any(width_of(*table) > edge for table in tables):
        tables, legend = with_letters(comparison)
    lines = [*legend, about(comparison)]
    differing = comparison["settings_that_differ"]
    if "set" in differing:
        lines.append("GED, HM-IoU and D_max are of sets chosen by different rules, all else of their whole pools.")
    for name, values in differing.items():
        lines.append(f"not the same in all: {name} is {', '.join(map(str, values))}")
    show(tables, lines)
