"""The page: one HTML text with its scripts, its style and its document inside, which asks the network for nothing.

Nothing but these very scripts can run (their hashes are in the policy), whatever a file's name smuggles in; a page from
the server may ask that server.
"""

import base64
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from berdiff.output.formats import Files, Output
from berdiff.output.html_report import html_templates
from berdiff_viewer.document import live_document, result_document

STATIC = files("berdiff_viewer") / "static"
SCRIPTS = (
    "niivue/niivue.umd.js",
    "js/data.js",
    "js/view.js",
    "js/outlines.js",
    "js/layers.js",
    "js/panel.js",
    "js/keys.js",
    "js/brush.js",
    "js/live.js",
    "js/main.js",
)
STYLE = "viewer.css"


def viewer_file(output: Output) -> Files:
    """What `--write viewer` writes."""
    yield "viewer.html", page(result_document(output.result, output.representatives)).encode()


def live_page(token: str) -> str:
    """What the server shows, before anything is opened."""
    return page(live_document(token))


def page(document: dict[str, Any]) -> str:
    """The whole page of a document of `document.py`."""
    from markupsafe import Markup

    live = document["mode"] == "live"
    return (
        html_templates("berdiff_viewer")
        .get_template("viewer.html.j2")
        .render(
            document=document,
            live=live,
            policy=policy(live),
            scripts=[Markup(_text(name)) for name in SCRIPTS],  # our own files: the hashes are of these very texts
            style=Markup(_text(STYLE)),
        )
    )


def policy(live: bool) -> str:
    scripts = " ".join(_hash(_text(name)) for name in SCRIPTS)
    server = "connect-src 'self'; " if live else ""
    return (
        f"default-src 'none'; {server}img-src data: blob:; script-src {scripts}; style-src {_hash(_text(STYLE))}; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def _text(name: str) -> str:
    return STATIC.joinpath(name).read_text(encoding="utf-8")


@cache
def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode('ascii')}'"
