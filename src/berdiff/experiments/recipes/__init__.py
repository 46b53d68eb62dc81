"""Training recipes: small functions that state their command, cost and expected figure. Every field is also a flag.

One file per family of methods; each names its functions in `RECIPES`.
"""

from collections.abc import Callable
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
from berdiff.training.config import TrainConfig

_FAMILIES = (own, bernoulli, brats, latent, adversarial, joint, deterministic, diffusion, autoregressive, one_pass)

RECIPES: dict[str, Callable[[], TrainConfig[Any]]] = {
    recipe.__name__.replace("_", "-"): recipe for family in _FAMILIES for recipe in family.RECIPES
}
FIRST_STAGES: dict[str, Callable[[TrainConfig[Any]], TrainConfig[Any]]] = bernoulli.FIRST_STAGES
"""Recipes that train on from another: from the configuration asked for, what is trained first without --init."""
