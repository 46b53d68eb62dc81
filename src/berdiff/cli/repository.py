"""Commands that reproduce the paper: they are in `reproduce/`, beside `src/` in the repository, and in no wheel."""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import berdiff
from berdiff.errors import InputError

ROOT = Path(berdiff.__file__).parents[2]


def command(name: str) -> Callable[[list[str]], None]:
    """`command` of reproduce/cli/NAME.py; InputError where berdiff is installed without its repository."""
    if not (ROOT / "reproduce" / "__init__.py").is_file():
        need = "only the repository of berdiff has this command: clone it and run `pip install -e .` there"
        raise InputError(need, "unsupported")
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    return import_module(f"reproduce.cli.{name}").command
