"""Tables on a terminal. One that is too wide loses the columns that its command can do without, then the beginnings of
its names; then cells of several words are folded, and at last the last columns are left out. What is left out is named.

Output that is no terminal has no edge, unless the user sets COLUMNS.
"""

import io
import os
import textwrap
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

TextTable = tuple[list[str], list[list[str]]]
"""(header, rows)"""
Column = tuple[str, list[str]]
"""(header, cells)"""
WIDE = 10_000  # columns where there is no edge
READABLE = 120  # columns at most of sentences beside a name, however wide the terminal
LEAST_NAME = 20  # columns that a name keeps: its end tells cases of one patient apart
LEAST_HEAD = 8  # columns that a word of a header keeps
CUT = "..."


def console() -> "Console":
    """Of stdout, without an edge where it is no terminal and COLUMNS is not set."""
    from berdiff.display import plain_console

    out, asked = plain_console(), os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked) > 0:
        out.width = int(asked)
    elif not out.is_terminal:
        out.width = WIDE
    return out


def show(
    tables: Sequence[TextTable],
    lines: Sequence[str] = (),
    drop: Sequence[str] = (),
    out: "Console | None" = None,
) -> None:
    """Print tables, numbers to the right, and lines below them. `drop`: columns to leave out first where the edge is
    too near."""
    out = out or console()
    for header, body in tables:
        table, dropped = _fitted(header, body, drop, out.width)
        out.print(table, "")
        if dropped:
            _print(out, f"left out to fit: {', '.join(dropped)}; --json has all")
    for line in lines:
        _print(out, line)


def as_text(tables: Sequence[TextTable], lines: Sequence[str] = ()) -> str:
    """What `show` prints, at most `READABLE` columns wide."""
    from rich.console import Console

    text = io.StringIO()
    plain = Console(
        file=text, width=READABLE, markup=False, emoji=False, highlight=False, color_system=None, force_jupyter=False
    )
    show(tables, lines, out=plain)
    return "\n".join(line.rstrip() for line in text.getvalue().rstrip().splitlines())


def as_html(tables: Sequence[TextTable], lines: Sequence[str] = ()) -> str:
    """The same for a notebook."""

    def row(cells: Sequence[str], tag: str) -> str:
        return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"

    parts = [
        f"<table>{row(header, 'th')}{''.join(row(cells, 'td') for cells in body)}</table>" for header, body in tables
    ]
    return "\n".join([*parts, *(f"<p>{escape(line)}</p>" for line in lines)])


def show_markdown(text: str, drop: Sequence[str] = ()) -> None:
    """Print Markdown as it is, but its tables and lines so that they fit."""
    table: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("| "):
            table.append(line)
            continue
        if table:
            header, _, *body = ([cell.strip() for cell in row[2:-2].split(" | ")] for row in table)
            show([(header, body)], drop=drop)
            table = []
        elif line:
            _print(console(), line, "  " if line.startswith("- ") else "")


def show_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names to the left and a value beside each; long values go on below themselves."""
    out, first = console(), max(len(name) for name, _ in pairs) + 2
    edge = out.width if out.width == WIDE else min(out.width, READABLE)
    for name, value in pairs:
        lines = textwrap.wrap(value, max(edge - first, LEAST_NAME), break_long_words=False, break_on_hyphens=False)
        for i, line in enumerate(lines or [""]):
            out.print(f"{'' if i else name:<{first}}{line}", soft_wrap=True)


def width_of(header: Sequence[str], body: Sequence[Sequence[str]], pad: int = 1) -> int:
    """The columns that a table needs where only its header may be folded."""
    return _sum([_whole(*column) for column in _columns(header, body)], pad)


def shortened(name: str, width: int) -> str:
    """The end of a name that is too long: it tells the cases of one patient apart."""
    return name if len(name) <= width else CUT + name[len(name) - max(width - len(CUT), 1) :]


def _print(out: "Console", line: str, indent: str = "") -> None:
    """Folded between words alone, so that addresses and paths can still be copied."""
    if len(line) > out.width:
        line = textwrap.fill(line, out.width, break_long_words=False, break_on_hyphens=False, subsequent_indent=indent)
    out.print(line, soft_wrap=True)


def _columns(header: Sequence[str], body: Sequence[Sequence[str]]) -> list[Column]:
    return [(name, [row[i] for row in body]) for i, name in enumerate(header)]


def _sum(widths: Sequence[int], pad: int) -> int:
    return sum(widths) + pad * (len(widths) - 1)


def _word(texts: Sequence[str]) -> int:
    """The length of the longest word."""
    return max((len(word) for text in texts for word in text.split()), default=1)


def _whole(head: str, cells: Sequence[str]) -> int:
    """The width of a column of which only the header is folded."""
    return max(_word([head]), *map(len, cells), 1)


def _least(head: str, cells: Sequence[str], most: int) -> int:
    """The width of a column that breaks no word of its cells of up to `most` letters."""
    return max(min(_word([head]), LEAST_HEAD), min(_word(cells), most))


def _fitted(header: list[str], body: list[list[str]], drop: Sequence[str], width: int) -> tuple["Table", list[str]]:
    """The table as it fits, and the columns that are left out for it."""
    from rich.table import Table
    from rich.text import Text

    columns, dropped = _columns(header, body), list[str]()
    for name in drop:
        if name in header and _sum([_whole(*column) for column in columns], 1) > width:
            columns = [column for column in columns if column[0] != name]
            dropped.append(name)
    least = [_least(*column, LEAST_NAME if i == 0 else width) for i, column in enumerate(columns)]
    while len(columns) > 1 and _sum(least, 1) > width:
        dropped.append(columns.pop()[0])
        least.pop()
    heads = [max(len(name), _whole(name, cells)) for name, cells in columns]
    pad = 2 if _sum([_whole(*column) for column in columns], 2) <= width else 1
    widths = heads if _sum(heads, pad) <= width else [_whole(*column) for column in columns]
    while _sum(widths, pad) > width and (wide := [i for i, found in enumerate(widths) if found > least[i]]):
        widths[max(wide, key=lambda i: widths[i])] -= 1
    table = Table(box=None, pad_edge=False, padding=(0, pad, 0, 0))
    names = _short_names(columns[0][1], widths[0])
    for i, (name, found) in enumerate(zip((name for name, _ in columns), widths, strict=True)):
        head = Text(name if len(name) <= found else name.replace("_", "_\n"))
        table.add_column(head, justify="right" if i else "left", vertical="bottom", overflow="fold", width=found)
    for row in zip(names, *(cells for _, cells in columns[1:]), strict=True):
        table.add_row(*map(Text, row))
    return table, dropped


def _short_names(names: list[str], width: int) -> list[str]:
    """Those that are one word by their ends, or by beginnings and ends; whole where even so two look the same."""
    every, keep = {name for name in names if " " not in name and len(name) > width}, max(width - len(CUT), 2)
    for start in (0, keep // 2):
        short = {name: name[:start] + CUT + name[len(name) - keep + start :] for name in every}
        if len({*short.values()}) == len(every):
            return [short.get(name, name) for name in names]
    return names
