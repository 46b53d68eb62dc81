"""Training recipes: small functions that state their command, cost and expected figure. Every field is also a flag.

One file per family of methods; each names its functions in `RECIPES`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from berdiff.experiments.recipes import (
    adversarial,
    autoregressive,
    bernoulli,
    brats,
    deterministic,
    diffusion,
    joint,
    latent,
    one_pass,
    own,
)
from berdiff.training.config import TrainConfig, check

_FAMILIES = (own, bernoulli, brats, latent, adversarial, joint, deterministic, diffusion, autoregressive, one_pass)

RECIPES: dict[str, Callable[[], TrainConfig[Any]]] = {
    recipe.__name__.replace("_", "-"): recipe for family in _FAMILIES for recipe in family.RECIPES
}
FIRST_STAGES: dict[str, Callable[[TrainConfig[Any]], TrainConfig[Any]]] = bernoulli.FIRST_STAGES
"""Recipes that train on from another: from the configuration asked for, what is trained first without --init."""


def first_stage(config: TrainConfig[Any], out: Path) -> tuple[TrainConfig[Any], Path]:
    """What a training of two stages trains first, and the folder of that run, beside `out`; InputError where there is
    another run in it."""
    from berdiff.training import session  # needs torch

    first = session.with_absolute_store(check(FIRST_STAGES[config.recipe](config)))
    run = (out.parent / f"{out.name}-{first.recipe}").resolve()
    session.refuse_another(first, run)
    return first, run
