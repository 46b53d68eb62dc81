"""The trainer with real networks: which readers a batch holds, one encoding for many masks, and constant memory."""

import json
from dataclasses import replace
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import torch

from berdiff.diffusion.losses import TARGETS
from berdiff.diffusion.sampling import sample_generators
from berdiff.diffusion.schedule import SCHEDULES
from berdiff.methods.folder import load
from berdiff.training.config import ModelConfig, TrainConfig, dump
from berdiff.training.config import load as load_config
from berdiff.training.runs import read_rows
from berdiff.training.session import open_session, train

from .standin import make_standin, make_store, small_config, weight_files

ENCODE_ONCE = ModelConfig(
    preset="fast-tiny",
    schedule="power2.5",
    T=100,
    target="prior",
    lambda_kl=0.0,
    time_sampling="stratified",
    masks_per_image=6,
)
PAPER = ModelConfig(preset="tiny", T=100)


def config_of(store: Path, model: ModelConfig, **loop) -> TrainConfig:
    config = small_config(store, **{"batch_size": 2, **loop})
    return replace(config, model=model, validation=replace(config.validation, every=0))


@pytest.mark.parametrize(("masks_per_image", "raters", "count"), [(1, "random", 1), (2, "repeat", 3), (6, "repeat", 3)])
def test_all_readers_come_along_only_where_masks_share_an_encoding(
    store: Path, masks_per_image: int, raters: str, count: int
) -> None:
    session = open_session(config_of(store, replace(ENCODE_ONCE, masks_per_image=masks_per_image)))
    assert session.batches.dataset.raters == raters
    assert session.segmenter.masks_per_image == masks_per_image
    (batch,) = session.batches.make(0)
    assert batch.masks.shape == (2, count, 1, 16, 16)


def test_a_run_begun_before_these_settings_goes_on_as_it_was(tmp_path: Path) -> None:
    plain = json.loads(dump(TrainConfig()))
    del plain["model"]["masks_per_image"], plain["data"]["shift"]
    (tmp_path / "config.json").write_text(json.dumps(plain))
    assert load_config(tmp_path / "config.json") == TrainConfig()
    assert (TrainConfig().model.masks_per_image, TrainConfig().data.shift) == (1, 4)


def test_the_command_line_offers_what_there_is() -> None:
    hints = get_type_hints(ModelConfig)
    assert get_args(hints["schedule"]) == tuple(SCHEDULES)
    assert get_args(hints["target"]) == TARGETS


def test_the_shift_of_the_configuration_reaches_the_data(store: Path) -> None:
    config = config_of(store, PAPER)
    still = replace(config, data=replace(config.data, shift=0))
    shifts = [open_session(c, make_standin).batches.dataset.shift for c in (config, still)]
    assert shifts == [4, 0]


def test_it_trains_resumes_and_its_folder_samples(store: Path, tmp_path: Path) -> None:
    config = config_of(store, ENCODE_ONCE, max_steps=6, checkpoint_every=3, log_every=2)
    train(config, tmp_path / "whole")
    train(replace(config, loop=replace(config.loop, max_steps=3)), tmp_path / "parts")
    train(config, tmp_path / "parts")
    assert weight_files(tmp_path / "parts") == weight_files(tmp_path / "whole")
    rows = read_rows(tmp_path / "whole/stats.jsonl")
    assert {"loss", "bce"} <= set(rows[0])
    assert "kl" not in rows[0]
    model = load(tmp_path / "whole")
    assert model.config()["masks_per_image"] == 6
    masks = model.sample(torch.rand(1, 1, 16, 16), 3, sample_generators(0, ["a"], 3))
    assert masks.shape == (1, 3, 1, 16, 16)


@pytest.mark.slow
@pytest.mark.parametrize("model", [ENCODE_ONCE, PAPER], ids=lambda model: model.preset)
def test_memory_stays_constant_with_a_real_network(tmp_path: Path, model: ModelConfig) -> None:
    """From step 100 to 500. A graph, a batch or a mask kept a step would be 400 of them."""
    store = make_store(tmp_path, size=32)
    config = config_of(store, model, max_steps=500, checkpoint_every=10_000, log_every=100)
    train(config, tmp_path / "run")
    memory = {
        row["step"]: row["memory_mb"] for row in read_rows(tmp_path / "run/stats.jsonl") if row["kind"] == "train"
    }
    assert memory[500] - memory[100] < 8, memory  # megabytes; one mask of each step alone would be 3
