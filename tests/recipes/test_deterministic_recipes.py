"""The recipes of table 4 take a step on a small BraTS; their settings are in tests/golden."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from brats_writer import case_folder

from berdiff.data.prepare import prepare
from berdiff.data.sources.brats import Options
from berdiff.recipes import RECIPES
from berdiff.training.session import open_trainer

ONE_PROCESS = {"accelerator": "cpu", "devices": "1", "threads": 1}


@pytest.fixture(scope="module")
def brats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four sequences of one patient, resized to 64x64."""
    folder = tmp_path_factory.mktemp("brats")
    prepare("brats", case_folder(folder / "data"), folder / "brats.zarr", Options(bottom=0, top=0, size=(64, 64)))
    return folder / "brats.zarr"


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
