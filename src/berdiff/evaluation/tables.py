"""Tables of an evaluation: Markdown for the folder, rich for the terminal, from the same rows."""

from typing import Any

from rich.table import Table

from berdiff.evaluation.summary import TIME, higher_is_better, label

Row = list[str]


def rows(result: dict[str, Any]) -> tuple[list[str], list[Row]]:
    """(header, rows): metrics down; the model with its interval, the paper's row and the reference points across."""
    paper, references = result["paper"], result["references"]
    header = ["", "better", f"{result['model']} (ours)", "95 % interval"]
    if paper:
        header.append("the paper's, on its data")
    header += list(references)
    body = []
    for metric, figure in result["metrics"].items():
        row = [label(metric), "" if metric == TIME else "higher" if higher_is_better(metric) else "lower"]
        row += [number(figure["value"]), interval(figure)]
        if paper:
            row.append(number(paper["metrics"].get(metric)))
        row += [number(figures.get(metric, {}).get("value")) for figures in references.values()]
        body.append(row)
    return header, body


def for_terminal(result: dict[str, Any]) -> list[tuple[list[str], list[Row]]]:
    """The same in two tables, the model and the reference points: one would be wider than most terminals."""
    header, body = rows(result)
    cut = len(header) - len(result["references"])
    points = [[row[0], *row[cut:]] for row in body if any(row[cut:])]
    return [(header[:cut], [row[:cut] for row in body]), (["reference points", *header[cut:]], points)]


def captions(result: dict[str, Any]) -> list[str]:
    """What one must know to read the table."""
    data, settings, sampler = result["data"], result["settings"], result["settings"]["sampler"]
    size = f", centre {settings['crop']}x{settings['crop']}" if settings["crop"] else ""
    steps = sampler["steps"] if isinstance(sampler["steps"], int) else len(sampler["steps"])
    lines = [
        f"{data['cases']} cases of {data['patients']} patients, split {settings['split']} of {data['source']}{size}; "
        f"{settings['samples']} samples, {sampler['rule']} in {steps} steps, seed {settings['seed']}.",
        "Intervals: 95 % bootstrap over patients. Dice: saliency above 0.5 against the readers' majority.",
        "perfect sampler: draws from the case's own readers; its GED is exact, d_YY / n, the floor at n samples.",
    ]
    if result["paper"]:
        lines.append(f"The paper's figures are of {result['paper']['data']}: another set of slices, so not comparable.")
    return lines + [f"Data: {note}." for note in data["notes"]]


def markdown(result: dict[str, Any]) -> str:
    header, body = rows(result)
    lines = [f"# Evaluation of {result['model']}", "", *pipes(header, body), ""]
    for target, figures in result["by_target"].items():
        target_rows = [[label(m), number(f["value"]), interval(f)] for m, f in figures.items()]
        lines += [f"## Target {target}", "", *pipes(["", "value", "95 % interval"], target_rows), ""]
    return "\n".join([*lines, *(f"- {line}" for line in captions(result)), ""])


def rich_table(header: list[str], body: list[Row]) -> Table:
    """Plain columns, numbers to the right."""
    table = Table(box=None, pad_edge=False)
    table.add_column(header[0], no_wrap=True)
    for column in header[1:]:
        table.add_column(column, justify="right")
    for row in body:
        table.add_row(*row)
    return table


def number(value: float | None) -> str:
    """Three decimals, or three digits where that would leave nothing; empty where there is none."""
    if value is None:
        return ""
    return f"{value:.3f}" if abs(value) >= 0.01 or value == 0 else f"{value:.3g}"


def interval(figure: dict[str, float | None]) -> str:
    if figure["low"] is None:
        return ""
    return f"{number(figure['low'])} to {number(figure['high'])}"


def pipes(header: list[str], body: list[Row]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *body)]
