"""The pages of the command line, a page per command, made of what the parsers themselves print for --help."""

import html
import io
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from typing import Any
from unittest.mock import patch

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from berdiff.cli.main import COMMANDS, LINES, USAGE, main
from berdiff.data.sources import SOURCES

FOLDER = "reference/cli"
TERMINAL = {"COLUMNS": "110", "NO_COLOR": "1", "TERM": "dumb"}  # wider, tyro puts boxes beside each other
ENTRY = re.compile(r"-{1,2}\w|\{|\[?[A-Z]{2}|[a-z]+://")  # an option, or what is given by its place
DEFAULT = re.compile(r"\s*\((?:default: (?P<value>.*)|(?P<required>required))\)$", re.DOTALL)


def calls(command: str) -> list[list[str]]:
    """A command, and its subcommands where each has options of its own."""
    below = {
        "data": [["prepare", name] for name in SOURCES.names()] + [["verify"], ["info"], ["show"]],
        "train": [["--list"], ["lidc-cpu"]],
    }
    found = below.get(command) or [[name] for name in subcommands(help_of([command]))]
    return [[command], *([command, *rest] for rest in found)]


def help_of(call: list[str]) -> str:
    """What `berdiff CALL --help` prints."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")  # tyro asks for the encoding before it draws lines
    with patch.dict(os.environ, TERMINAL), redirect_stdout(out), warnings.catch_warnings(), suppress(SystemExit):
        warnings.simplefilter("ignore")
        main([*call, "--help"])
    out.seek(0)
    return out.read()


def subcommands(text: str) -> list[str]:
    usage = re.search(r"\{([\w,-]+)\}$", text.splitlines()[0])
    return usage[1].split(",") if usage and "─ subcommands ─" in text else []


def boxes(text: str) -> Iterator[tuple[str, list[str]]]:
    """Title and lines of each box of options."""
    for title, body in re.findall(r"^╭─ (.+?) ─+╮\n(.*?)^╰", text, re.DOTALL | re.MULTILINE):
        lines = [line.strip("│").removeprefix(" ").rstrip() for line in body.splitlines()]
        yield title, [line for line in lines if line.strip("─")]


def entries(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Option and meaning; before the first option stands what the box is about, without an option."""
    name, words = "", []
    for line in lines:
        if ENTRY.match(line):
            if name or words:
                yield name, " ".join(words)
            name, *rest = re.split(r"\s{2,}", line, maxsplit=1)
            words = rest
        else:
            words.append(line.strip())
    yield name, " ".join(words)


def row(name: str, text: str) -> str:
    stated = DEFAULT.search(text)
    default = "" if stated is None else "required" if stated["required"] else stated["value"].strip()
    meaning = re.sub(r"`(.+?)`", r"<code>\1</code>", html.escape(text[: stated.start()] if stated else text))
    shown = default if default in ("", "required") else f"<code>{html.escape(default)}</code>"
    return f"<tr><td><code>{html.escape(name)}</code></td><td>{meaning}</td><td>{shown}</td></tr>"


def table(title: str, lines: list[str]) -> str:
    rows = [entry for entry in entries(lines) if entry[0] != "-h, --help"]
    about = [text for name, text in rows if not name]
    body = "\n".join(row(name, text) for name, text in rows if name)
    if title == "subcommands" or not body:
        return ""
    head = f"<thead><tr><th>{html.escape(title)}</th><th>meaning</th><th>default</th></tr></thead>"
    return "\n\n".join([*about, f'<table class="options">\n{head}\n<tbody>\n{body}\n</tbody>\n</table>'])


def as_markdown(about: str) -> str:
    """Of a plain text: a list begins after a blank line, `name: ...` on a line of its own stays there."""
    return re.sub(r"\n(?=[a-z]+: )", "  \n", re.sub(r"(?m)^([^-\n].*)\n(?=- )", r"\1\n\n", about))


def section(call: list[str], level: int) -> str:
    """One command: its usage, what it is for, its options."""
    text = help_of(call)
    before = text.split("\n╭─", 1)[0]
    heading = f"{'#' * level} berdiff {' '.join(call)}"
    if not text.startswith("usage: ") or "╭─" not in text:  # a list by hand, of recipes or sources
        return f"{heading}\n\n```text\n{text.strip()}\n```"
    usage, _, about = before.partition("\n")
    command = usage.removeprefix("usage: ").replace("[-h] ", "")
    parts = [heading, f"```text\n{command}\n```", as_markdown(about.strip())]
    return "\n\n".join([*parts, *filter(None, (table(title, lines) for title, lines in boxes(text)))])


def page(command: str) -> str:
    first, *others = calls(command)
    return "\n\n".join([section(first, 1), *(section(call, 2) for call in others)]) + "\n"


def index() -> str:
    rows = [f"| [`berdiff {name}`]({name}.md) | {purpose} |" for name, purpose in COMMANDS.items()]
    head = (
        "# Command line\n\nEvery command and option, as `--help` prints them.\n\n| command | purpose |\n| --- | --- |"
    )
    rest = "Bad input is one sentence and exit code 2, an interruption 130. " + " ".join(USAGE.split(LINES)[1].split())
    return "\n".join([head, *rows, "", rest, ""])


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The menu has a line per command."""
    pages: list[Any] = [f"{FOLDER}/index.md", *({f"berdiff {name}": f"{FOLDER}/{name}.md"} for name in COMMANDS)]
    reference = next(part["Reference"] for part in config.nav or [] if "Reference" in part)
    reference.insert(0, {"Command line": pages})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    files.append(File.generated(config, f"{FOLDER}/index.md", content=index()))
    for name in COMMANDS:
        files.append(File.generated(config, f"{FOLDER}/{name}.md", content=page(name)))
    return files
