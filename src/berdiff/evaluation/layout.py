"""Tables as text: Markdown for files, rich for terminals."""

from rich.table import Table

from berdiff.display import plain_console
from berdiff.evaluation.bootstrap import Figure

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
    console = plain_console()
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
        console.print(line, soft_wrap=True)
