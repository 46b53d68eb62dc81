"""Tables on a terminal: what is too wide is made to fit, and names stay whole on one line as long as they can.

Wherever output is no terminal there is no edge to fold lines at, and tables are as wide as they need.
"""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

TextTable = tuple[list[str], list[list[str]]]
"""(header, rows)"""
WIDE = 200  # columns where there is no edge
LEAST_NAME = 20  # columns that a name keeps: its end tells cases of one patient apart
CUT = "..."


def console() -> "Console":
    """Of stdout, without an edge where it is no terminal."""
    from berdiff.display import plain_console

    found = plain_console()
    if not found.is_terminal:
        found.width = WIDE
    return found


def show(tables: Sequence[TextTable], lines: Sequence[str] = (), drop: Sequence[str] = ()) -> None:
    """Print tables, numbers to the right, and lines below them. `drop`: columns to leave out first where the edge is
    too near."""
    out = console()
    for header, body in tables:
        kept_header, kept_body, dropped = _without(header, body, drop, out.width)
        out.print(_rich(kept_header, kept_body, out.width), "")
        if dropped:
            out.print(f"left out to fit: {', '.join(dropped)}; --json has all")
    for line in lines:
        out.print(line, soft_wrap=True)


def show_markdown(text: str) -> None:
    """Print Markdown as it is, but its tables so that they fit."""
    table: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("| "):
            table.append(line)
            continue
        if table:
            header, _, *body = ([cell.strip() for cell in row[2:-2].split(" | ")] for row in table)
            show([(header, body)])
            table = []
        elif line:
            print(line)


def width_of(header: Sequence[str], body: Sequence[Sequence[str]], pad: int = 1) -> int:
    """The columns that a table needs where only its header may be folded."""
    needs = _needs(header, body)
    return sum(needs) + pad * (len(needs) - 1)


def shortened(name: str, width: int) -> str:
    """The end of a name that is too long: it tells the cases of one patient apart."""
    return name if len(name) <= width else CUT + name[len(name) - max(width - len(CUT), 1) :]


def _needs(header: Sequence[str], body: Sequence[Sequence[str]]) -> list[int]:
    """Of each column: its longest cell, or the longest word of its header."""
    return [max([*(len(row[i]) for row in body), *map(len, name.split()), 1]) for i, name in enumerate(header)]


def _without(
    header: list[str], body: list[list[str]], drop: Sequence[str], width: int
) -> tuple[list[str], list[list[str]], list[str]]:
    dropped: list[str] = []
    for name in drop:
        if name in header and width_of(header, body) > width:
            i = header.index(name)
            header, body = [*header[:i], *header[i + 1 :]], [[*row[:i], *row[i + 1 :]] for row in body]
            dropped.append(name)
    return header, body, dropped


def _rich(header: list[str], body: list[list[str]], width: int) -> "Table":
    from rich.table import Table
    from rich.text import Text

    pad = 2 if width_of(header, body, 2) <= width else 1
    needs = _needs(header, body)
    whole = [max(need, len(name)) for need, name in zip(needs, header, strict=True)]
    if sum(whole) + pad * (len(whole) - 1) <= width:
        needs = whole  # no header is folded
    over = sum(needs) + pad * (len(needs) - 1) - width
    needs[0] = max(needs[0] - max(over, 0), min(needs[0], LEAST_NAME))
    fits = sum(needs) + pad * (len(needs) - 1) <= width
    table = Table(box=None, pad_edge=False, padding=(0, pad, 0, 0))
    for i, name in enumerate(header):
        folded = textwrap.fill(name, needs[i], break_long_words=False)
        right = i > 0
        table.add_column(
            Text(folded), justify="right" if right else "left", vertical="bottom", no_wrap=fits or not right
        )
    for row in body:
        table.add_row(Text(shortened(row[0], needs[0])), *map(Text, row[1:]))
    return table
