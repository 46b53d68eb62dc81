"""The commands that README, documents and notebooks tell people to type."""

import inspect
import io
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

import tyro

from berdiff.cli import main as cli

ROOT = Path(__file__).parents[1]
PROGRAMS = ("berdiff", "pip", "%pip", "make", "python", "pytest", "torchrun", "srun", "ray", "docker", "pre-commit")
SHELL = ("", "bash", "sh", "console")
OLD = "Command, as run with 0.1.0"  # such pages of results keep the options of their time


@dataclass(frozen=True)
class Command:
    """A line to type, and the page it is on."""

    page: str
    line: str

    @property
    def argv(self) -> list[str]:
        """Its words, from the program on that berdiff is started through others: srun, torchrun, ray."""
        words = shlex.split(self.line, comments=True)
        if "berdiff.cli.main" in words:
            return ["berdiff", *words[words.index("berdiff.cli.main") + 1 :]]
        return words[words.index("berdiff") :] if words[0] in ("srun", "ray") else words


def pages() -> list[Path]:
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
    kept = [page for page in documents if OLD not in page.read_text(encoding="utf-8")]
    return [*kept, *sorted(ROOT.glob("docs/notebooks/*.ipynb"))]


def blocks(page: Path) -> Iterator[str]:
    """The text of each block that is typed into a shell."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".md":
        found = re.findall(r"^```([^\n]*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        yield from (body for language, body in found if language in SHELL)
        return
    for cell in json.loads(text)["cells"]:
        code = "".join(cell["source"])
        if cell["cell_type"] == "code" and code.startswith("%%bash"):
            yield code
        elif cell["cell_type"] == "code":
            yield "\n".join(line.strip().lstrip("!") for line in code.splitlines() if re.match(r"\s*(!|%pip)", line))


def commands() -> list[Command]:
    """Every command of a block, each once."""
    found: dict[str, Command] = {}
    for page in pages():
        for block in blocks(page):
            for line in block.replace("\\\n", " ").splitlines():
                line = line.strip().removeprefix("$ ")
                first, _, rest = line.partition(" ")
                if first in PROGRAMS and rest and not re.match(r"berdiff [a-z]+:", line):  # that is what it printed
                    bare = re.sub(r"\s+", " ", re.sub(r"\s+# .*", "", line))
                    found.setdefault(bare, Command(str(page.relative_to(ROOT)), bare))
    return list(found.values())


def inline() -> list[Command]:
    """Every `berdiff COMMAND ...` inside a text."""
    found: dict[str, Command] = {}
    for page in pages():
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        for line in re.findall(r"`(berdiff [^`]+)`", text.replace("\n", " ")):
            found.setdefault(line, Command(str(page.relative_to(ROOT)), line))
    return list(found.values())


class _Parsed(BaseException):  # no error: nothing that catches errors may hold it
    """The command line was understood; what follows would do the work."""


def parse(argv: list[str]) -> str:
    """The empty text where berdiff's own parser takes the words, otherwise what it says. Nothing is run."""
    real, said = tyro.cli, io.StringIO()

    def stop(*_: Any, **__: Any) -> None:
        raise _Parsed

    def parse_only(of: Any, *args: Any, **options: Any) -> None:
        real(wraps(of)(stop) if inspect.isfunction(of) else of, *args, **options)
        stop()

    with (
        patch("tyro.cli", parse_only),
        patch("berdiff.data.store.open_store", stop),  # by functions that tyro calls itself
        patch("berdiff.data.verify.verify", stop),
        redirect_stdout(said),
        redirect_stderr(said),
    ):
        try:
            code = cli.main(argv)
        except _Parsed:
            return ""
        except SystemExit as left:
            code = left.code
    return "" if code in (0, None) else said.getvalue()


@dataclass(frozen=True)
class NotRun:
    """Which commands are not run with stand-ins, why, and by which test instead."""

    reason: str
    command: str = "*"
    page: str = "*"
    by: str | None = None
    parses: bool = True

    def covers(self, command: Command) -> bool:
        return fnmatchcase(command.line, self.command) and fnmatchcase(command.page, self.page)


def not_run() -> list[NotRun]:
    text = (Path(__file__).parent / "commands-not-run.toml").read_text(encoding="utf-8")
    return [NotRun(**entry) for entry in tomllib.loads(text)["not_run"]]
