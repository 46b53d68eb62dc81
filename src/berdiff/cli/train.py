"""`berdiff train RECIPE --data STORE --out RUN`: begin a run, or go on with it."""

import inspect
import json
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from berdiff.errors import InputError
from berdiff.experiments.recipes import RECIPES
from berdiff.training.config import TrainConfig, check, dump


@dataclass(frozen=True)
class Train:
    out: Path
    """the run folder; where it holds a run with the same configuration, that run goes on"""
    config: Annotated[TrainConfig, tyro.conf.arg(name="")]
    dry_run: bool = False
    """print the whole configuration, and parameters, memory and time as a few real steps show them; write nothing"""


def usage() -> str:
    lines = ["usage: berdiff train RECIPE --data STORE --out RUN [OPTIONS]", "", "recipes:"]
    for name, recipe in RECIPES.items():
        lines += ["", f"  {name}", *(f"    {line}" for line in inspect.getdoc(recipe).splitlines() if line)]  # type: ignore[union-attr]
    return "\n".join([*lines, "", "`berdiff train RECIPE --help` tells every option."])


def command(argv: list[str]) -> None:
    if not argv or argv[0] in ("-h", "--help"):
        print(usage())
        return
    name, *rest = argv
    if name not in RECIPES:
        raise InputError(f"RECIPE: expected one of {', '.join(RECIPES)}, found {name!r}")
    recipe = RECIPES[name]
    default = Train(out=tyro.MISSING, config=recipe())  # type: ignore[arg-type]
    asked = tyro.cli(
        Train, args=rest, default=default, prog=f"berdiff train {name}", description=inspect.getdoc(recipe)
    )
    check(asked.config)

    from berdiff.training.session import open_session, train  # torch comes in here
    from berdiff.training.stop import RunStopped

    try:
        if asked.dry_run:
            from berdiff.training.estimate import estimate

            session = open_session(asked.config)
            figures = estimate(session, asked.out)
            if session.fabric.is_global_zero:
                print(dump(asked.config) + json.dumps(figures, indent=2))
            return
        reason = train(asked.config, asked.out)
    except RunStopped as stopped:
        print(f"berdiff train: {stopped}", file=sys.stderr)
        raise SystemExit(1) from None
    leave_if_signalled(reason)


def leave_if_signalled(reason: str) -> None:
    """Exit as the shell counts it where a signal ended the training: what was to follow a finished run does not."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if reason.endswith(number.name):
            raise SystemExit(128 + number)
