"""The report: results as one page for the browser, all in one file, that asks the network for nothing.

Images are inlined once each; the outlines over them are vectors, so the page stays small and prints sharp.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from berdiff import __version__
from berdiff.inference.representatives import Representative
from berdiff.inference.result import Result
from berdiff.output.captions import MARKED_MEANS, measured_words, notes, set_words, settings_line
from berdiff.output.colours import legend
from berdiff.output.formats import Files, Output
from berdiff.output.tiles import SHOWN_SAMPLES, Tile, picture_bytes, result_tiles, target_tiles
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
    environment = html_templates()
    planes: dict[tuple[str, int, int], str] = {}  # (address, height, width) -> its name: every different plane once

    def name_of_plane(tile: Tile) -> str:
        return planes.setdefault((_address(tile), *tile.plane.shape), f"p{len(planes)}")

    environment.globals |= {"name_of_plane": name_of_plane, "path": _path, "measured": measured_words}
    environment.globals |= {"close_up": close_up, "result_tiles": result_tiles, "target_tiles": target_tiles}
    environment.globals |= {"legend": legend, "rules": RULES}
    environment.globals |= {
        "settings_line": settings_line,
        "set_words": set_words,
        "notes_line": lambda result: "; ".join(notes(result)),
    }
    environment.globals |= {"shown_samples": SHOWN_SAMPLES, "marked_means": MARKED_MEANS}
    return environment.get_template("report.html.j2").render(
        title=title, intro=intro, table=table, planes=planes, entries=entries, version=__version__
    )


def report_file(output: Output) -> Files:
    entry = ReportEntry(output.result, output.representatives)
    yield "report.html", page(f"berdiff: {output.result.shown_name}", [entry]).encode()


def _path(segments: np.ndarray) -> str:
    """Segments of `edges`, which run across or down, as an SVG path."""
    steps = [(x, y, x_end - x, y_end - y) for (x, y), (x_end, y_end) in segments.tolist()]
    return "".join(f"M{x:g} {y:g}h{right:g}" if right else f"M{x:g} {y:g}v{down:g}" for x, y, right, down in steps)


def _address(tile: Tile) -> str:
    """The plane as a PNG in a data: address."""
    png = picture_bytes(Image.fromarray(tile.pixels()))
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")
