"""Training recipes: data under a name that says its cost and the figure to expect. Every setting is also a flag."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from berdiff.recipes import compared, ours
from berdiff.recipes.recipe import Recipe
from berdiff.training.config import TrainConfig, check

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in (*ours.RECIPES, *compared.RECIPES)}
MAIN = ("own", "demo", "lidc-cpu", "lidc-cpu-energy", "brats-cpu", "lidc-paper")
"""Those that most come for; `berdiff train --list` has all."""
FIRST_STAGES: dict[str, Callable[[TrainConfig[Any]], TrainConfig[Any]]] = {"lidc-cpu-energy": ours.before_energy}
"""Recipes that train on from another: from the configuration asked for, what is trained first without --init."""


def first_stage(config: TrainConfig[Any], out: Path) -> tuple[TrainConfig[Any], Path]:
    """What a training of two stages trains first, and the folder of that run, beside `out`; InputError where there is
    another run in it."""
    from berdiff.training import session  # needs torch

    first = session.with_absolute_store(check(FIRST_STAGES[config.recipe](config)))
    run = (out.parent / f"{out.name}-{first.recipe}").resolve()
    session.refuse_another(first, run)
    return first, run
