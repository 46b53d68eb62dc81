"""Recipes are valid, survive JSON, and state what they cost; every compared method has all of its kinds."""

from pathlib import Path

import pytest

from berdiff.methods.config import METHODS
from berdiff.recipes import RECIPES
from berdiff.training.config import check, dump, load
from reproduce.tables.methods import BRATS_COMPARED, LIDC_COMPARED

DOCS = Path(__file__).parents[2] / "docs/methods"
COMPARED = {f"{row.recipe}" for row in (*LIDC_COMPARED, *BRATS_COMPARED)}  # by their recipes, CCDM's among them
# the paper's own two kernels: their -paper recipes are lidc-paper and brats-paper, the Gaussian one a row of table 2
KERNELS = {recipe for recipe in COMPARED if recipe.startswith(("berdiff", "gaussian"))}


def test_recipes_are_valid_survive_json_and_state_command_cost_and_figure(tmp_path: Path) -> None:
    for name, recipe in RECIPES.items():
        config = recipe.config
        assert config.recipe == recipe.name == name
        (tmp_path / "config.json").write_text(dump(check(config)))
        assert load(tmp_path / "config.json") == config
        assert f"\n\ncommand: berdiff train {name} " in recipe.about
        assert f"\n\ncost: {recipe.cost}\n\nexpected: {recipe.expected}" in recipe.about
        assert recipe.summary.endswith(".")
        assert ("not yet trained by us" in recipe.about) != recipe.trained


@pytest.mark.parametrize("recipe", sorted(COMPARED))
def test_a_compared_method_has_its_recipes_and_a_page(recipe: str) -> None:
    method = recipe.removesuffix("-brats")
    kinds = {f"{recipe}-cpu"}
    if recipe not in KERNELS:
        kinds |= {f"{recipe}-paper"}
        assert (DOCS / f"{method}.md").is_file()
    if recipe not in KERNELS | {"unet"}:  # which have no authors of their own
        kinds |= {f"{method}-own"}
    assert kinds <= RECIPES.keys()
    methods = {RECIPES[kind].config.model.method for kind in kinds}
    assert methods == {"berdiff" if method == "ccdm" else method.partition("-")[0]}


def test_every_method_is_compared() -> None:
    """So that one without its row, and so without the checks above, is noticed."""
    ours = {name for name, place in METHODS.ours.items() if place.startswith("berdiff.")}
    assert {RECIPES[f"{recipe}-cpu"].config.model.method for recipe in COMPARED} == ours
