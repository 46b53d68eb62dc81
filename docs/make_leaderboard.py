"""The leaderboard: methods and models on the same test slices, with the figures of docs/results/data, best GED first.

`make results` writes the page. A board names CSV files there, never figures.
"""

import csv
import re
from dataclasses import dataclass
from pathlib import Path

METRICS = ("GED 16", "GED 8", "GED 4", "GED 1", "HM-IoU 16")
INTRO = """Lower GED and higher HM-IoU are better; brackets are 95 % intervals over patients. All figures follow from the files in
`docs/results/data`, and each row links the page with its command, data and cost. Boards are not comparable with each other:
slices, image sizes and budgets differ. What GED can and cannot say: [the limit of GED](../ged-limit.md)."""


@dataclass(frozen=True)
class Row:
    """A line: who, its figures by metric, and the page they are on."""

    name: str
    figures: dict[str, str]
    page: str


@dataclass(frozen=True)
class Column:
    """A model as a column of a CSV file whose lines are metrics."""

    name: str
    file: str
    values: str
    interval: str | None = None

    def rows(self, data: Path) -> list[Row]:
        figures = {}
        for line in read(data / self.file):
            value = line[self.values]
            if line["metric"] in METRICS and value:
                spread = f" ({line[self.interval]})" if self.interval else ""
                figures[line["metric"]] = value + spread
        return [Row(self.name, figures, page_of(self.file, data))]


@dataclass(frozen=True)
class Lines:
    """Methods as lines of a CSV file, those of one `source`."""

    file: str
    source: str

    def rows(self, data: Path) -> list[Row]:
        lines = [line for line in read(data / self.file) if line["source"] == self.source]
        page, before = page_of(self.file, data), "reference: " if self.source == "reference" else ""
        return [
            Row(before + line["method"], {name: line[name] for name in METRICS if line.get(name)}, page)
            for line in lines
        ]


BETTER = "better-masks-test.csv"
BOARDS: dict[str, tuple[str, tuple[Column | Lines, ...]]] = {
    "LIDC-IDRI, all 1,622 test slices": (
        "Bundled models, each trained on two CPU cores, 16 samples per image; `lidc` on the whole 128x128, `lidc` of 0.1.0 on the centre "
        "64x64. References need no model. Sets are chosen, not drawn, and stand here for what one looks at.",
        (
            Column("`lidc`, three sampling seeds", BETTER, "independent, seeds 0, 1, 2", "95 % interval (seed 0)"),
            Column(
                "`lidc`, representative sets of 16 out of 64", BETTER, "representative of 64, seed 0", "95 % interval"
            ),
            Column("`lidc` of 0.1.0", "lidc-test.csv", "`lidc`, 5 steps, shared noise (its default)", "95 % interval"),
            Column(
                "`lidc` of 0.1.0, the paper's sampler",
                "lidc-test.csv",
                "`lidc`, 10 steps, independent noise (the paper's sampler)",
            ),
            Column("reference: exact model", BETTER, "exact model"),
            Column("reference: one reader, repeated", "lidc-test.csv", "one reader, repeated"),
            Column("reference: readers' majority", "lidc-test.csv", "readers' majority"),
        ),
    ),
    "LIDC-IDRI, methods at an equal, small budget": (
        "The same small network, 500 steps each, 300 test slices, centre 64x64: which method learns faster, not which is best.",
        (Lines("table-3-methods.csv", "berdiff"), Lines("table-3-methods.csv", "reference")),
    ),
    "LIDC-IDRI, as published": (
        "The paper's figures, of its own data and training; nothing here was run by us.",
        (Lines("table-3-methods.csv", "paper"),),
    ),
    "Embedded data (real readers, simulated CT)": (
        "150 test slices of 86 patients.",
        (
            Column("`lidc-readers`", "lidc-readers-test.csv", "`lidc-readers`", "95 % interval"),
            Column("reference: exact model", "lidc-readers-test.csv", "exact model"),
            Column("reference: readers' majority", "lidc-readers-test.csv", "readers' majority"),
        ),
    ),
}


def read(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def page_of(file: str, data: Path) -> str:
    """The page on which a CSV file is shown."""
    return next(f"{topic.stem}.md" for topic in sorted(data.glob("*.toml")) if f'"{file}"' in topic.read_text("utf-8"))


def first_number(text: str) -> float:
    """By which rows are sorted: of ".220, .218, .220" and ".220 (.194 to .251)" the first."""
    found = re.search(r"\d*\.\d+", text)
    return float(found[0]) if found else float("inf")


def board(title: str, about: str, parts: tuple[Column | Lines, ...], data: Path) -> str:
    rows = sorted(
        (row for part in parts for row in part.rows(data)), key=lambda row: first_number(row.figures["GED 16"])
    )
    shown = [name for name in METRICS if any(name in row.figures for row in rows)]
    lines = [["", *shown, "details"], ["---"] * (len(shown) + 2)]
    for row in rows:
        lines.append([row.name, *(row.figures.get(name, "") for name in shown), f"[page]({row.page})"])
    return "\n".join([f"## {title}", "", about, "", *("| " + " | ".join(line) + " |" for line in lines)])


def leaderboard(data: Path) -> str:
    head = "<!-- Generated by `make results` from docs/results/data and docs/make_leaderboard.py: edit those, not this page. -->"
    boards = [board(title, about, parts, data) for title, (about, parts) in BOARDS.items()]
    return "\n\n".join([head, "# Leaderboard", INTRO, *boards]) + "\n"
