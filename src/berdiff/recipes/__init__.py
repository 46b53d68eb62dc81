"""Training recipes: data under a name that says its cost and the figure to expect. Every setting is also a flag."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from berdiff.display import note
from berdiff.errors import InputError
from berdiff.methods.config import adopt, dropped, method_class
from berdiff.recipes import compared, ours
from berdiff.recipes.recipe import Recipe
from berdiff.training.config import TrainConfig, check

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in (*ours.RECIPES, *compared.RECIPES)}
MAIN = ("own", "demo", "lidc-cpu", "lidc-cpu-energy", "brats-cpu", "lidc-paper")
"""Those that most come for; all: `berdiff train --list`."""
FIRST_STAGES: dict[str, Callable[[TrainConfig[Any]], TrainConfig[Any]]] = {"lidc-cpu-energy": ours.before_energy}
"""Recipes that train on from another: from the configuration asked for, what is trained first without --init."""


def configuration(recipe: str, method: str | None = None) -> TrainConfig[Any]:
    """A recipe's, of another method where one is named."""
    if recipe not in RECIPES:
        known = f"{nearest(recipe, RECIPES)}; all: `berdiff train --list`"
        raise InputError(f"recipe: no recipe {recipe!r}; {known}", "name")
    config = RECIPES[recipe].config
    if method is None:
        return config
    model = adopt(method_class(method), config.model)
    if names := dropped(model, config.model):
        note(f"{method} does not take these settings of the recipe {recipe}: {', '.join(names)}")
    return replace(config, model=model)


def nearest(name: str, names: Iterable[str]) -> str:
    return f"the nearest are {', '.join(get_close_matches(name, [*names], cutoff=0))}"


def first_stage(config: TrainConfig[Any], out: Path) -> tuple[TrainConfig[Any], Path]:
    """What a training of two stages trains first, and the folder of that run, beside `out`; InputError where there is
    another run in it."""
    from berdiff.training import session  # needs torch

    first = session.with_absolute_store(check(FIRST_STAGES[config.recipe](config)))
    run = (out.parent / f"{out.name}-{first.recipe}").resolve()
    session.refuse_another(first, run)
    return first, run
