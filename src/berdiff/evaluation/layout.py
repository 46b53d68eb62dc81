"""Tables as text, Markdown for files and rich for terminals, and those of an evaluation."""

from typing import Any

from rich.console import Console
from rich.table import Table

from berdiff import schema
from berdiff.diffusion.sampler import Sampler
from berdiff.evaluation.bootstrap import Figure
from berdiff.evaluation.per_case import TIME, higher_is_better, label
from berdiff.methods.sampling import describe

TextTable = tuple[list[str], list[list[str]]]
"""(header, rows)"""


def number(value: float | None) -> str:
    """Three decimals, or three digits where that would leave nothing; empty where there is none."""
    if value is None:
        return ""
    return f"{value:.3f}" if abs(value) >= 0.01 or value == 0 else f"{value:.3g}"


def interval(figure: Figure) -> str:
    return "" if figure["low"] is None else f"{number(figure['low'])} to {number(figure['high'])}"


def pipes(header: list[str], body: list[list[str]]) -> list[str]:
    """The lines of a Markdown table, and an empty one."""
    return [*(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *body)), ""]


def show(tables: list[TextTable], lines: list[str]) -> None:
    """Print tables, numbers to the right, and lines below them."""
    console = Console()
    if not console.is_terminal:
        console.width = 200  # a file or a pipe has no edge to fold lines at
    for header, body in tables:
        table = Table(box=None, pad_edge=False)
        table.add_column(header[0], no_wrap=True)
        for column in header[1:]:
            table.add_column(column, justify="right")
        for row in body:
            table.add_row(*row)
        console.print(table, "")
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def tables_of(result: dict[str, Any]) -> list[TextTable]:
    """Metrics down: the model beside the paper, the reference points, and each target where there are several."""
    paper, references = result["paper"], result["references"]
    header = [result["model"], "better", "ours", "95 % interval", *(["the paper's, on its data"] if paper else [])]
    body = []
    for metric, figure in result["metrics"].items():
        direction = "" if metric == TIME else "higher" if higher_is_better(metric) else "lower"
        published = [number(paper["metrics"].get(metric))] if paper else []
        body.append([label(metric), direction, number(figure["value"]), interval(figure), *published])
    points = [
        [label(metric), *(number(figures.get(metric, {}).get("value")) for figures in references.values())]
        for metric in result["metrics"]
        if any(metric in figures for figures in references.values())
    ]
    targets = [
        (
            [f"target {target}", "value", "95 % interval"],
            [[label(metric), number(figure["value"]), interval(figure)] for metric, figure in figures.items()],
        )
        for target, figures in result["by_target"].items()
    ]
    return [(header, body), (["reference points", *references], points), *targets]


def captions(result: dict[str, Any]) -> list[str]:
    """What one must know to read the tables."""
    data, settings, paper = result["data"], result["settings"], result["paper"]
    size = f", centre {settings['crop']}x{settings['crop']}" if settings["crop"] else ""
    sampler = None if settings["sampler"] is None else schema.parse(Sampler, settings["sampler"], str)
    lines = [
        f"{data['cases']} cases of {data['patients']} patients, split {settings['split']} of {data['source']}{size}; "
        f"{settings['samples']} samples, {describe(sampler)}, seed {settings['seed']}.",
        "Intervals: 95 % bootstrap over patients. Dice: saliency above 0.5 against the raters' majority.",
        "perfect sampler: draws from the case's own raters; its GED is exact, d_YY / n, the floor at n samples.",
    ]
    if paper:
        lines.append(f"The paper's figures are of {paper['data']}: another set of slices, so not comparable.")
    return lines + [f"Data: {note}." for note in data["notes"]]


def markdown(result: dict[str, Any]) -> str:
    tables = [line for table in tables_of(result) for line in pipes(*table)]
    notes = [f"- {line}" for line in captions(result)]
    return "\n".join([f"# Evaluation of {result['model']}", "", *tables, *notes, ""])
