"""Tables on a terminal: what is too wide is made to fit, and names stay whole on one line as long as they can.

A table that is too wide gives way in this order: the columns that its command can do without are left out; names lose
their beginning; cells of several words go on below themselves, on as few lines as can be; single words are broken; the
last columns are left out. Names that differ never look the same, and columns that are left out are named.

Wherever output is no terminal there is no edge to fold lines at, and tables are as wide as they need, unless the user
sets COLUMNS: that is a wish, as it is for `berdiff doctor` and for the help of all commands.
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
WIDE = 10_000  # columns where there is no edge
READABLE = 120  # columns at most of sentences beside a name, however wide the terminal
LEAST_NAME = 20  # columns that a name keeps: its end tells cases of one patient apart
LEAST_HEAD = 8  # columns that a word of a header keeps
MOST_LINES = 6  # of a cell
CUT = "..."


def console() -> "Console":
    """Of stdout, without an edge where it is no terminal and COLUMNS is not set."""
    from berdiff.display import plain_console

    found = plain_console()
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked) > 0:
        found.width = int(asked)
    elif not found.is_terminal:
        found.width = WIDE
    return found


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
        table, dropped = _fitting(header, body, drop, out.width)
        out.print(table, "")
        if dropped:
            _print(out, f"left out to fit: {', '.join(dropped)}; --json has all")
    for line in lines:
        _print(out, line)


def as_text(tables: Sequence[TextTable], lines: Sequence[str] = ()) -> str:
    """What `show` prints, at most `READABLE` columns wide."""
    from rich.console import Console

    text = io.StringIO()
    plain = {"markup": False, "emoji": False, "highlight": False, "color_system": None, "force_jupyter": False}
    out = Console(file=text, width=READABLE, **plain)
    show(tables, lines, out=out)
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
    return _sum([_least(*column) for column in _columns(header, body)], pad)


def shortened(name: str, width: int) -> str:
    """The end of a name that is too long: it tells the cases of one patient apart."""
    return name if len(name) <= width else CUT + name[len(name) - max(width - len(CUT), 1) :]


def _print(out: "Console", line: str, indent: str = "") -> None:
    """Folded between words alone, so that addresses and paths can still be copied."""
    options = {"break_long_words": False, "break_on_hyphens": False, "subsequent_indent": indent}
    folded = line if len(line) <= out.width else textwrap.fill(line, out.width, **options)
    out.print(folded, soft_wrap=True)


# --- which columns, and how wide -------------------------------------------------------------------------------------


def _fitting(header: list[str], body: list[list[str]], drop: Sequence[str], width: int) -> tuple["Table", list[str]]:
    """The table as it fits, and the columns that are left out for it."""
    dropped: list[str] = []
    for name in drop:
        if name in header and width_of(header, body) > width:
            header, body = _without(header, body, header.index(name))
            dropped.append(name)
    while (widths := _widths(header, body, width)) is None:
        dropped.append(header[-1])
        header, body = _without(header, body, len(header) - 1)
    return _rich(header, body, widths, _pad(header, body, width)), dropped


def _without(header: list[str], body: list[list[str]], i: int) -> TextTable:
    return [*header[:i], *header[i + 1 :]], [[*row[:i], *row[i + 1 :]] for row in body]


def _widths(header: list[str], body: list[list[str]], width: int) -> list[int] | None:
    """Of each column, for cells on as few lines as can be; None where they fit on no number of lines."""
    columns, pad = _columns(header, body), _pad(header, body, width)
    for broken in (False, True):
        for lines in range(1, MOST_LINES + 1):
            widths = [_least(*column, lines, broken or i == 0, names=i == 0) for i, column in enumerate(columns)]
            if _sum(widths, pad) <= width:
                return _widened(columns, widths, width, pad)
    return [width] if len(columns) == 1 else None


def _widened(columns: list[tuple[str, list[str]]], widths: list[int], width: int, pad: int) -> list[int]:
    """What is left over: labels on two lines at most, other cells on one, and the rest is for names and headers."""
    out = list(widths)
    wishes = [_least(*columns[0], 2, True, names=True), *(_least(*column) for column in columns[1:])]
    for i, wish in enumerate(wishes):
        if wish > out[i] and _sum(out, pad) + wish - out[i] <= width:
            out[i] = wish
    out[0] = min(max(out[0], _least(*columns[0])), out[0] + width - _sum(out, pad))
    whole = [max(found, len(name)) for found, (name, _) in zip(out, columns, strict=True)]
    return whole if _sum(whole, pad) <= width else out  # no header is folded, or as many as must be


def _columns(header: Sequence[str], body: Sequence[Sequence[str]]) -> list[tuple[str, list[str]]]:
    """(header, cells) of each."""
    return [(name, [row[i] for row in body]) for i, name in enumerate(header)]


def _pad(header: list[str], body: list[list[str]], width: int) -> int:
    """Spaces between columns."""
    return 2 if width_of(header, body, 2) <= width else 1


def _sum(widths: Sequence[int], pad: int) -> int:
    return sum(widths) + pad * (len(widths) - 1)


def _least(head: str, cells: Sequence[str], lines: int = 1, broken: bool = False, names: bool = False) -> int:
    """The least width of a column whose cells take at most so many lines, and whose header any number.

    `broken`: a long word is no reason for a wide column. `names`: a cell of one word can be shortened.
    """
    words = max(map(len, _head_words(head).split()), default=1)
    needs = [min(words, LEAST_HEAD) if broken else words]
    for cell in {*cells}:
        if names and " " not in cell:
            needs.append(min(len(cell), LEAST_NAME))
        elif len(cell) > max(needs):
            needs.append(_least_of_cell(cell, lines, broken))
    return max(needs)


def _least_of_cell(cell: str, lines: int, broken: bool) -> int:
    word = max(map(len, cell.split()), default=0)
    width = max(min(word, LEAST_NAME) if broken and lines > 1 else word, -(-len(cell) // lines))
    while len(_folded(cell, width)) > lines:
        width += 1
    return width


# --- what stands in the cells ----------------------------------------------------------------------------------------


def _folded(text: str, width: int) -> list[str]:
    """Lines of words; a word that is too long is broken at its hyphens, or where it must be."""
    if len(text) <= width:
        return [text]
    too_long = max(map(len, text.split()), default=0) > width
    return textwrap.wrap(text, width, break_on_hyphens=too_long)


def _head_words(head: str) -> str:
    """Names of fields can be folded after an underscore."""
    return head.replace("_", "_ ")


def _folded_head(head: str, width: int) -> list[str]:
    lines = [head] if len(head) <= width else _folded(_head_words(head), width)
    return [line.replace("_ ", "_") for line in lines]


def _short_names(names: Sequence[str], width: int) -> dict[str, str]:
    """Names as they fit on one line: their ends, or beginnings and ends where ends alone are the same. Where those are
    the same too, names are whole, on several lines."""
    every = {*names}
    keep = max(width - len(CUT), 2)
    ends = {name: shortened(name, width) for name in every}
    both = {
        name: name if len(name) <= width else name[: keep // 2] + CUT + name[len(name) - (keep - keep // 2) :]
        for name in every
    }
    for short in (ends, both):
        if len({*short.values()}) == len(every):
            return short
    return {name: "\n".join(_folded(name, width)) for name in every}


def _rich(header: list[str], body: list[list[str]], widths: list[int], pad: int) -> "Table":
    from rich.table import Table
    from rich.text import Text

    names = _short_names([row[0] for row in body if " " not in row[0]], widths[0])
    rows = [["\n".join(_folded(*cell)) for cell in zip(row, widths, strict=True)] for row in body]
    for row, (name, *_) in zip(rows, body, strict=True):
        row[0] = names.get(name, row[0])
    table = Table(box=None, pad_edge=False, padding=(0, pad, 0, 0))
    for i, name in enumerate(header):
        left = i == 0 or _is_folded_text([row[i] for row in rows])
        head, justify = Text("\n".join(_folded_head(name, widths[i]))), "left" if left else "right"
        # characters of double width, which are not counted here, are folded and not cut
        table.add_column(head, justify=justify, vertical="bottom", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _is_folded_text(cells: Sequence[str]) -> bool:
    """Words on several lines are read from the left, numbers from the right."""
    return any("\n" in cell for cell in cells) and all(not cell or cell[0].isalpha() for cell in cells)
