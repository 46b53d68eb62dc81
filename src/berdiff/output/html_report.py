"""The report: results as one page for the browser, all in one file, that asks the network for nothing.

Each result has its panel as a picture, and what was measured as a table.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PIL import Image

from berdiff import __version__
from berdiff.inference.representatives import Representative
from berdiff.inference.result import Result
from berdiff.output.captions import MARKED_MEANS, measured_words, notes, settings_line
from berdiff.output.formats import Files, Output
from berdiff.output.panels import result_panel
from berdiff.output.tiles import picture_bytes
from berdiff.output.views import close_up
from berdiff.targets.kinds import RULES

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True, eq=False)
class ReportEntry:
    """One result on the page."""

    result: Result
    representatives: Sequence[Representative]
    scores: str = ""  # a line about how it compares with its raters


@dataclass(frozen=True)
class ScoreTable:
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str


def html_templates(package: str = "berdiff.output") -> "Environment":
    """The templates of a package: what is put into them is escaped, and a misspelt name is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # not for `--help`

    options = {"autoescape": True, "undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    return Environment(loader=PackageLoader(package), **options)


def page(title: str, entries: Sequence[ReportEntry], intro: Sequence[str] = (), table: ScoreTable | None = None) -> str:
    """The whole page as text."""
    return (
        html_templates()
        .get_template("report.html.j2")
        .render(
            title=title,
            intro=intro,
            table=table,
            entries=entries,
            marked_means=MARKED_MEANS,
            version=__version__,
            address=picture_address,
            close_up=close_up,
            panel=result_panel,
            measured=measured_words,
            settings_line=settings_line,
            notes=notes,
            rules=RULES,
        )
    )


def report_file(output: Output) -> Files:
    entry = ReportEntry(output.result, output.representatives)
    yield "report.html", page(f"berdiff: {output.result.shown_name}", [entry]).encode()


def picture_address(picture: Image.Image | bytes) -> str:
    """A picture, or the bytes of a PNG file, in a data: address."""
    content = picture if isinstance(picture, bytes) else picture_bytes(picture)
    return "data:image/png;base64," + base64.b64encode(content).decode("ascii")
