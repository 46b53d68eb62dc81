"""Recipes are valid, survive JSON, and state what they cost."""

from pathlib import Path

from berdiff.experiments.recipes import RECIPES
from berdiff.experiments.recipes.bernoulli import brats_paper, lidc_cpu, lidc_paper, lidc_paper_long
from berdiff.methods.config import method_class
from berdiff.training.config import check, dump, load


def test_recipes_are_valid_survive_json_and_state_command_cost_and_figure(tmp_path: Path) -> None:
    for name, recipe in RECIPES.items():
        config = recipe()
        assert config.recipe == name
        (tmp_path / "config.json").write_text(dump(check(config)))
        assert load(tmp_path / "config.json") == config
        text = recipe.__doc__ or ""
        assert f"command: berdiff train {name} " in text
        assert "cost: " in text
        assert "expected: " in text


def test_paper_settings() -> None:
    for config, lr, steps in (
        (lidc_paper(), 5e-5, 21_000),
        (lidc_paper_long(), 5e-5, 86_500),
        (brats_paper(), 1e-4, None),
    ):
        assert (config.optim.lr, config.optim.decay, config.optim.warmup_steps) == (lr, "constant", 0)
        assert (config.loop.batch_size, config.model.T, config.model.schedule) == (32, 1000, "linear")
        assert config.model == method_class("berdiff")(preset=config.model.preset)  # the defaults are the paper's
        assert steps in (None, config.loop.max_steps)
    assert lidc_cpu().data.crop == 64
