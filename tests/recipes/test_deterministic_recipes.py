"""The recipes of table 4: the paper's statement, the authors' settings, and two cores on a small BraTS."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from brats_writer import case_folder

from berdiff.data.prepare import prepare
from berdiff.data.sources.brats import Options
from berdiff.recipes import RECIPES
from berdiff.training.engine import learning_rate
from berdiff.training.session import open_trainer

METHODS = ("unet", "nnunet", "transunet", "swinunetr", "mednext")
CONFIGS = {name: recipe.config for name, recipe in RECIPES.items() if name.rpartition("-")[0] in METHODS}
ONE_PROCESS = {"accelerator": "cpu", "devices": "1", "threads": 1}


@pytest.fixture(scope="module")
def brats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four sequences of one patient, resized to 64x64."""
    folder = tmp_path_factory.mktemp("brats")
    prepare("brats", case_folder(folder / "data"), folder / "brats.zarr", Options(bottom=0, top=0, size=(64, 64)))
    return folder / "brats.zarr"


def test_recipes_are_of_their_method_and_of_whole_slices():
    assert len(CONFIGS) == 14
    for name, config in CONFIGS.items():
        assert config.model.method == name.partition("-")[0]
        assert config.model.answer == "mask"
        assert config.data.crop is None, "the centre of a BraTS slice misses most of a tumour"


@pytest.mark.parametrize("method", METHODS)
def test_the_papers_statement_and_the_budget_of_two_cores(method: str):
    paper, cpu = RECIPES[f"{method}-paper"].config, RECIPES[f"{method}-cpu"].config
    optim = paper.optim
    assert (optim.kind, optim.lr, optim.decay, paper.loop.batch_size) == ("adamw", 1e-4, "constant", 32)
    assert paper.model.preset in ("paper", "paper-224")
    assert cpu.loop.max_cpu_minutes == 40
    assert learning_rate(cpu.optim, 500, used=1.0) == 0
    assert learning_rate(cpu.optim, cpu.optim.warmup_steps) == cpu.optim.lr
    assert cpu.model.preset == "small"


def test_the_authors_optimisers():
    nnunet, transunet = CONFIGS["nnunet-own"].optim, CONFIGS["transunet-own"].optim
    assert (nnunet.kind, nnunet.momentum, nnunet.nesterov) == ("sgd", 0.99, True)
    assert (transunet.kind, transunet.momentum, transunet.nesterov) == ("sgd", 0.9, False)
    for config in (CONFIGS["nnunet-own"], CONFIGS["transunet-own"], CONFIGS["mednext-own"]):
        assert config.optim.decay == "poly"
        assert config.optim.decay_steps == config.loop.max_steps
        assert learning_rate(config.optim, config.loop.max_steps // 2) == pytest.approx(
            config.optim.lr * 0.5**0.9, rel=1e-4
        )
    assert CONFIGS["swinunetr-own"].model.lambda_bce == 0
    assert all(config.optim.ema_decay == 0 for name, config in CONFIGS.items() if name.endswith("own"))


def _step(recipe: str, brats: Path) -> None:
    """One step on two slices by the recipe, in one process: every loss is finite, every weight moves."""
    config = RECIPES[recipe].config
    config = replace(
        config,
        data=replace(config.data, store=str(brats), split="all"),
        loop=replace(config.loop, batch_size=2),
        validation=replace(config.validation, every=0),
        engine=replace(config.engine, **ONE_PROCESS),
    )
    trainer = open_trainer(config, Path())
    before = [p.detach().clone() for p in trainer.segmenter.parameters()]
    terms, norm, bad, _ = trainer.step(1, next(trainer.batches.after(0)))
    assert not bad
    assert all(torch.isfinite(term) for term in (*terms.values(), norm))
    assert terms.keys() == {"loss", "bce", "dice"}
    assert not any(torch.equal(p, old) for p, old in zip(trainer.segmenter.parameters(), before, strict=True))


def test_nnunet_takes_a_step_on_four_sequences(brats: Path):
    _step("nnunet-cpu", brats)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["transunet-cpu", "swinunetr-cpu", "mednext-cpu", "nnunet-own", "mednext-own"])
def test_the_others_take_a_step_too(recipe: str, brats: Path):
    _step(recipe, brats)
