"""`berdiff train RECIPE --data STORE --out RUN`: begin a run, or resume it."""

import argparse
import os
import re
import signal
import sys
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Generic

from tyro.conf import FlagCreatePairsOff, arg

from berdiff.cli.arguments import parse as parse_arguments
from berdiff.cli.arguments import print_json
from berdiff.display import is_quiet
from berdiff.errors import InputError
from berdiff.methods.config import METHODS, M
from berdiff.recipes import FIRST_STAGES, MAIN, RECIPES, compared, configuration, first_stage, ours
from berdiff.recipes.recipe import Recipe
from berdiff.training.config import TrainConfig, as_plain, check


@dataclass(frozen=True)
class Train(Generic[M]):
    config: Annotated[TrainConfig[M], arg(name="")]
    out: Path | None = None  # run folder; where it holds a run with the same configuration, that run is resumed
    dry_run: FlagCreatePairsOff[bool] = False
    """print what the training would need (parameters, memory, time) and whether it fits this machine; train nothing"""
    json: FlagCreatePairsOff[bool] = False
    """print JSON at the end: the run as `berdiff runs` lists it, or with --dry-run the estimate and all settings"""


def usage() -> str:
    lines = ["usage: berdiff train RECIPE --data STORE --out RUN [OPTIONS]", "", "recipes:"]
    for recipe in (RECIPES[name] for name in MAIN):
        lines += ["", f"  {recipe.name}", f"    {recipe.summary}", f"    cost: {recipe.cost}"]
    lines += ["", f"`berdiff train --list` has all {len(RECIPES)}, those of the compared methods among them.", ""]
    lines += [f"methods (--model.method NAME trains another with a recipe): {', '.join(METHODS.names())}", ""]
    return "\n".join([*lines, "`berdiff train RECIPE [--model.method NAME] --help` lists every option."])


def all_recipes() -> str:
    """Ours, and a table of the compared methods by kind of recipe."""
    from berdiff.text_tables import as_text

    def state(recipe: Recipe | None) -> str:
        return "-" if recipe is None else "trained" if recipe.trained else "not trained"

    def cost(recipe: Recipe) -> str:
        return re.split(r"[,;] | \(", recipe.cost)[0]

    of_ours = [[recipe.name, state(recipe), cost(recipe)] for recipe in ours.RECIPES]
    others: dict[str, dict[str, Recipe]] = {}
    for recipe in compared.RECIPES:
        method, _, kind = recipe.name.rpartition("-")
        others.setdefault(method, {})[kind] = recipe
    kinds = ("cpu", "paper", "own")
    of_others = [[name, *(state(by.get(kind)) for kind in kinds), cost(by["cpu"])] for name, by in others.items()]
    return as_text(
        [
            (["recipe", "by us", "cost"], of_ours),
            (["METHOD", *(f"METHOD-{kind}" for kind in kinds), "cost of METHOD-cpu"], of_others),
        ],
        [
            "METHOD-paper: as the BerDiff paper states for all methods; METHOD-own: its authors' settings; for a GPU.",
            "`berdiff train RECIPE --help` says what a recipe costs, what to expect, and every option.",
        ],
    )


def parse(argv: list[str]) -> Train[Any]:
    """The flags of the recipe's method, or of the one that --model.method names: each has its own."""
    name, *rest = argv
    # a setting that a flag names is not planned, whatever its value
    given = {word[2:].partition("=")[0].replace("-", "_") for word in rest if word.startswith("--")}
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--model.method", dest="method")
    asked, rest = first.parse_known_args(rest)
    config = configuration(name, asked.method)
    config = replace(config, left_open=tuple(setting for setting in config.left_open if setting not in given))
    methods = f"Methods (--model.method NAME): {', '.join(METHODS.names())}"
    text = f"{RECIPES[name].about}\n\nAll recipes: `berdiff train --list`. {methods}"
    kind = Train[type(config.model)]
    return parse_arguments(kind, rest, f"train {name}", pairs=True, default=Train(config), description=text)


def command(argv: list[str]) -> None:
    if not argv or argv[0] in ("-h", "--help"):
        print(usage())
        return
    if argv[0] == "--list":
        print(all_recipes())
        return
    asked = parse(argv)
    config = check(asked.config)
    if asked.out is None and not asked.dry_run:
        raise InputError("--out: expected the run folder to write, found none", "missing")

    from berdiff.text_tables import show_pairs
    from berdiff.training import estimate, session  # torch comes in here
    from berdiff.training.stop import RunStopped

    try:
        if asked.out is None or asked.dry_run:
            config, notes = session.planned(config, asked.out)
            for line in notes:
                print(line, file=sys.stderr if asked.json else sys.stdout)
            found = estimate.estimate(config)
            if asked.json:
                return print_json({"config": as_plain(config), "estimate": found})
            return show_pairs([(name.replace("_", " "), str(value)) for name, value in found.items()])
        with redirect_stdout(sys.stderr) if asked.json else nullcontext():  # the JSON alone is the output
            if config.init is None and config.recipe in FIRST_STAGES:
                config = replace(config, init=str(_first_stage(config, asked.out, argv)))
            reason = session.train(config, asked.out)
    except RunStopped as stopped:
        print(f"berdiff train: {stopped}", file=sys.stderr)
        raise SystemExit(1) from None
    if asked.json and _is_first_process():
        from berdiff.training.run_folder import read_run, run_summary

        print_json(run_summary(read_run(asked.out)))
    leave_if_signalled(reason)


def _first_stage(config: TrainConfig[Any], out: Path, argv: list[str]) -> Path:
    """The run that a recipe of two stages trains on from; where it is not finished, it is trained now.

    Processes that have trained together once cannot do so again: after the first stage this command starts anew.
    """
    from berdiff.training import session
    from berdiff.training.run_folder import is_finished

    first, run = first_stage(config, out)
    if is_finished(run):
        return run
    environment = dict(os.environ)  # before those are added by which processes find each other
    leave_if_signalled(session.train(first, run))
    if not _is_first_process():
        raise SystemExit(0)
    sys.stdout.flush()
    words = ["train", *argv, *(["--quiet"] if is_quiet() else [])]
    os.execve(sys.executable, [sys.executable, "-m", "berdiff.cli.main", *words], environment)


def _is_first_process() -> bool:
    """Of several, each runs this command."""
    from torch import distributed

    several = distributed.is_available() and distributed.is_initialized()
    return not several or distributed.get_rank() == 0


def leave_if_signalled(reason: str) -> None:
    """Exit as the shell counts it where a signal ended the training: what was to follow a finished run does not."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if reason.endswith(number.name):
            raise SystemExit(128 + number)
