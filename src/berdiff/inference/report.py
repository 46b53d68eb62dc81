"""The report: results as one page for the browser, all in one file, that asks the network for nothing.

Images are inlined once each; the outlines over them are vectors, so the page stays small and prints sharp.
"""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import numpy as np
from PIL import Image

from berdiff import __version__
from berdiff.files import write_text
from berdiff.inference import summary
from berdiff.inference.report_style import STYLE
from berdiff.inference.result import Result
from berdiff.inference.tiles import Tile, View, best_view, edges, grey_bytes, tiles
from berdiff.inference.words import Digest, caption, percent, settings_line, sizes

# Nothing may be fetched and nothing may run, whatever a file's name smuggles in.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


@dataclass(frozen=True, eq=False)
class Entry:
    """One result on the page."""

    result: Result
    digest: Digest
    scores: str = ""  # a line about how it compares with its readers


@dataclass(frozen=True)
class Table:
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str


def write_report(
    path: Path, title: str, entries: Sequence[Entry], intro: Sequence[str] = (), table: Table | None = None
) -> Path:
    write_text(path, page(title, entries, intro, table))
    return path


def page(title: str, entries: Sequence[Entry], intro: Sequence[str] = (), table: Table | None = None) -> str:
    """The whole page as text."""
    pictures = _Pictures()
    cases = [_case(entry, pictures) for entry in entries]
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>",
            f"<header><h1>{escape(title)}</h1><p class=warning>Not for clinical use.</p>",
            *(f"<p>{escape(line)}</p>" for line in intro),
            _table(table) if table else "",
            "</header>",
            pictures.definitions(),
            *cases,
            f"<footer>berdiff {escape(__version__)}. Not for clinical use.</footer>\n</body>\n</html>\n",
        ]
    )


# --- one case --------------------------------------------------------------------------------------------------------


def _case(entry: Entry, pictures: "_Pictures") -> str:
    result, view = entry.result, best_view(entry.result)
    where = "" if view.number is None else f", slice {view.number}"
    parts = [
        f"<section class=case><h2>{escape(result.name)}{where}</h2>",
        f"<p class=note>{escape(settings_line(result))}; {escape(caption(result))}</p>",
        f"<p>{escape(entry.scores)}</p>" if entry.scores else "",
    ]
    for k, target in enumerate(result.targets):
        shown = tiles(result, entry.digest.representatives, view, k)
        if len(result.targets) > 1:
            parts.append(f"<h3>{escape(target)}</h3>")
        readers = shown.get("readers", [])
        parts += [
            _strip("image and readers" if readers else "image", [*shown["image"], *readers], view, pictures),
            _strip(f"what {len(result.samples)} samples say", shown["summary"], view, pictures),
            _strip("masks that stand for all", shown["representatives"], view, pictures),
            f"<div><h4>measurements</h4>{_measurements(entry, k)}</div>",
            _strip(_samples_title(result), shown["samples"], view, pictures),
        ]
    return "\n".join([*parts, "</section>"])


def _samples_title(result: Result) -> str:
    drawn = len(result.samples)
    return "samples" if drawn <= 16 else f"the first 16 of {drawn} samples"


def _strip(title: str, shown: Sequence[Tile], view: View, pictures: "_Pictures") -> str:
    figures = "".join(_figure(tile, view, pictures) for tile in shown)
    return f"<div><h4>{escape(title)}</h4><div class=tiles>{figures}</div></div>"


def _figure(tile: Tile, view: View, pictures: "_Pictures") -> str:
    height, width = tile.plane.shape
    lines = "".join(f'<path d="{_path(mask)}" stroke="{colour}"/>' for mask, colour in tile.outlines if np.any(mask))
    key = "".join(f'<b style="border-color:{colour}">{escape(words)}</b>' for words, colour in tile.key)
    name = pictures.add(tile)
    return (
        f'<figure><svg viewBox="0 0 {width} {height * view.aspect:g}" role="img" aria-label="{escape(tile.title)}">'
        f'<g transform="scale(1 {view.aspect:g})"><use href="#{name}"/>{lines}</g></svg>'
        f"<figcaption>{escape(tile.title)} {key}</figcaption></figure>"
    )


def _path(mask: np.ndarray) -> str:
    """The outline as SVG: each side of a pixel one unit across or down."""
    return "".join(f"M{x} {y}{'h' if x_end > x else 'v'}1" for (x, y), (x_end, _) in edges(mask).tolist())


def _measurements(entry: Entry, k: int) -> str:
    result = entry.result
    target = result.targets[k]
    found = entry.digest.measurements[target]
    readers = [] if result.readers is None else [summary.measure(r[k][None], result.spacing) for r in result.readers]
    rows = [
        f"<tr><th>{what}, {unit}<td>{low}<td>{median}<td>{high}"
        + (f"<td>{', '.join(_of_reader(reader, what) for reader in readers)}" if readers else "")
        for what, unit, low, median, high in sizes(found)
    ]
    marked = sum(reader["finding_probability"] > 0 for reader in readers)
    said = f"A finding in {percent(found['finding_probability'])} of the samples"
    said += f", by {marked} of {len(readers)} readers." if readers else "."
    last = "<th>readers" if readers else ""
    return f"<table><tr><th>over the samples<th>5 %<th>median<th>95 %{last}{''.join(rows)}</table><p>{escape(said)}</p>"


def _of_reader(measured: dict, what: str) -> str:
    return next(median for name, _, _, median, _ in sizes(measured) if name == what)


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(cell)}" for cell in table.header)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}" for cell in row) for row in table.rows)
    return f"<table class=scores><caption>{escape(table.caption)}</caption><tr>{head}{body}</table>"


# --- the pictures ----------------------------------------------------------------------------------------------------


@dataclass
class _Pictures:
    """Every different plane once, to be referred to by its name."""

    names: dict[tuple[str, int, int], str] = field(default_factory=dict)

    def add(self, tile: Tile) -> str:
        key = (_address(tile), *tile.plane.shape)
        return self.names.setdefault(key, f"p{len(self.names)}")

    def definitions(self) -> str:
        images = "\n".join(
            f'<image id="{name}" width="{width}" height="{height}" preserveAspectRatio="none" href="{address}"/>'
            for (address, height, width), name in self.names.items()
        )
        return f'<svg width="0" height="0" class=defs><defs>{images}</defs></svg>'


def _address(tile: Tile) -> str:
    """The plane as a PNG in a data: address."""
    if tile.colours == "gray" and tile.most == 1:
        pixels = grey_bytes(tile.plane)
    else:
        from matplotlib import colormaps

        pixels = colormaps[tile.colours](np.clip(tile.plane / tile.most, 0, 1), bytes=True)[..., :3]
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, format="PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
