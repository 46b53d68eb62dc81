"""All results of a folder in one table, those whose samples disagree most first: cohort.csv and cohort.html.

Both are made of the done.json of each result alone, so whichever process or run writes them last writes them whole.
"""

import base64
import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from berdiff import __version__
from berdiff.data.csv_table import csv_text
from berdiff.errors import InputError
from berdiff.jobs.done_file import DoneFile, Measured, parse_done
from berdiff.jobs.records import THUMBNAIL
from berdiff.jobs.store import DONE, ResultFiles
from berdiff.output.captions import MARKED_MEANS, NOT_CLINICAL, UNITS, marked_words, percent, rounded
from berdiff.output.html_report import html_templates, picture_address

CSV, HTML, LOCK = "cohort.csv", "cohort.html", ".cohort.00000000.part"  # the lock is called like a leftover
PICTURES = ("report.html", "viewer.html", "panel.png", "overlay.png")
MAX_THUMBNAILS = 200  # in the page: of the results that come first; some kilobytes each
SCRIPT = """
for (const [column, head] of document.querySelectorAll("th").entries()) {
  head.addEventListener("click", () => {
    const was = head.getAttribute("aria-sort"), body = document.querySelector("tbody");
    const up = was ? was === "descending" : head.dataset.kind !== "number";
    for (const other of document.querySelectorAll("th")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const value = row => row.cells[column].dataset.value;
    const number = "kind" in head.dataset;
    const order = (a, b) => number ? value(a) - value(b) : value(a).localeCompare(value(b), undefined, {numeric: true});
    body.append(...[...body.rows].sort((a, b) => up ? order(a, b) : order(b, a)));
  });
}
"""


QUANTILES = ("q05", "q50", "q95")
SHARES = ("finding_probability", "empty_share", "extent_mm")
SIZES = [f"{size}_{part}" for size in ("size", "longest_diameter") for part in ("unit", *QUANTILES)]
COLUMNS = ("case", "finding", "target", *SHARES, "size", *SIZES, "disagreement")


@dataclass(frozen=True)
class Row:
    """One target of one result."""

    folder: str  # of the result, from the folder of all results
    case: str
    finding: str | None
    target: str
    measured: Measured
    files: Collection[str]
    notes: Sequence[str]  # warnings first
    title: str = ""  # what people call the case, where that is not its name

    @property
    def size(self) -> str:
        return "area" if "area" in self.measured else "volume"

    @property
    def disagreement(self) -> float | None:
        return self.measured["disagreement"]

    def values(self) -> list[Any]:
        """In the order of COLUMNS."""
        of: dict[str, Any] = dict(self.measured)
        sizes = [size[part] for size in (of[self.size], of["longest_diameter"]) for part in ("unit", *QUANTILES)]
        shares = [of.get(name) for name in SHARES]
        values = [self.case, self.finding, self.target, *shares, self.size, *sizes, self.disagreement]
        return ["" if value is None else value for value in values]


def all_rows(files: ResultFiles) -> list[Row]:
    """Of every result; one that cannot be read is not there."""
    rows: list[Row] = []
    names = {f"{name}/{DONE}": name for name in files.results()}
    for path, content in files.read(list(names)).items():
        try:
            rows += rows_of(parse_done(content, files.address(path)), names[path])
        except InputError:  # another program's done.json
            continue
    return rows


def rows_of(done: DoneFile, name: str) -> list[Row]:
    """A line per target of the result of this name."""
    case, finding = name if done.case is None else done.case, (done.finding or {}).get("name")
    warnings = [f"WARNING: {words}" for words in done.warnings]
    return [
        Row(name, case, finding, target, measured, done.files, [*warnings, *done.notes], done.title)
        for target, measured in done.measurements.items()
    ]


def write_cohort(files: ResultFiles) -> bool:
    """Write both files, where there are several results, or findings; whether there are.

    One process at a time: the last one to come has seen every result that was there before it.
    """
    with files.alone(LOCK):
        rows = ranked(all_rows(files))
        if len({row.folder for row in rows}) < 2 and not any(row.finding for row in rows):
            return False
        files.write(CSV, table(rows).encode())
        files.write(HTML, page(files, rows).encode())
    return True


def ranked(rows: Sequence[Row]) -> list[Row]:
    """By disagreement, the highest first; what has none (one sample) last; equal ones by name."""
    return sorted(rows, key=lambda row: 1.0 if row.disagreement is None else -row.disagreement)


def table(rows: Sequence[Row]) -> str:
    lines: list[list[Any]] = [["rank", *COLUMNS, "folder", "picture", "notes"]]
    for rank, row in enumerate(rows, 1):
        picture = f"{row.folder}/{found[0]}" if (found := pictures(row)) else ""
        lines.append([rank, *row.values(), row.folder, picture, "; ".join(row.notes)])
    return csv_text(lines)


def page(files: ResultFiles, rows: Sequence[Row]) -> str:
    """The whole page as text."""
    with_picture = dict.fromkeys(f"{row.folder}/{THUMBNAIL}" for row in rows if THUMBNAIL in row.files)
    pictures = files.read(list(with_picture)[:MAX_THUMBNAILS])

    def thumbnail(row: Row) -> str:
        """Each once, though a result may have several targets."""
        content = pictures.pop(f"{row.folder}/{THUMBNAIL}", None)
        return "" if content is None else picture_address(content)

    common = [note for note in rows[0].notes if all(note in row.notes for row in rows)]
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode("ascii")
    own = {row.folder: "; ".join(note for note in row.notes if note not in common) for row in rows}
    return (
        html_templates()
        .get_template("cohort.html.j2")
        .render(
            rows=rows,
            results=len({row.folder for row in rows}),
            thumbnails=MAX_THUMBNAILS,
            targets=len({row.target for row in rows}) > 1,
            common=[note for note in common if note.lower() != NOT_CLINICAL],
            own=own,
            noted=any(own.values()),
            script=SCRIPT,
            digest=digest,
            version=__version__,
            thumbnail=thumbnail,
            links=_links,
            size=_size,
            percent=percent,
            marked_words=marked_words,
            marked_means=MARKED_MEANS,
        )
    )


def pictures(row: Row) -> list[str]:
    """The files of a result that show it, the one that shows most first; of the overlays of slices the middle one."""
    slices = [name for name in row.files if name.startswith("overlay/")]
    return [name for name in PICTURES if name in row.files] + slices[len(slices) // 2 :][:1]


def _links(row: Row) -> list[tuple[str, str]]:
    """(words, address) of its pictures and its folder, from the page."""
    named = [(name.partition("/")[0].partition(".")[0], f"{row.folder}/{name}") for name in pictures(row)]
    return [(words, "./" + quote(path)) for words, path in (*named, ("files", f"{row.folder}/"))]


def _size(of: dict[str, Any]) -> str:
    if of["q50"] is None:
        return "-"
    return f"{rounded(of['q50'])} ({rounded(of['q05'])} to {rounded(of['q95'])}) {UNITS[of['unit']]}"
