"""A run that begins from the weights of another model."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from berdiff.data.store import open_store
from berdiff.diffusion.schedule import linear
from berdiff.errors import InputError
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.folder import save
from berdiff.networks.build import make_network
from berdiff.training.config import ModelConfig
from berdiff.training.session import make_segmenter

from .standin import small_config


def test_the_weights_are_the_others_and_all_else_is_as_asked(store: Path, tmp_path: Path) -> None:
    other = BerDiff(make_network("fast-tiny"), linear(20))
    save(other, tmp_path / "other")
    model = ModelConfig(preset="fast-tiny", schedule="power2.5", target="mask", init=str(tmp_path / "other"))
    made = make_segmenter(replace(small_config(store), model=model), open_store(str(store)), (16, 16))
    assert made.schedule.name == "power2.5"
    assert made.target == "mask"
    assert made.training
    for name, value in other.state_dict().items():
        assert torch.equal(made.state_dict()[name], value), name


@pytest.mark.parametrize(
    ("init", "said"),
    [
        ("other", "--model.init: expected a model with the network"),
        ("nowhere", "nowhere: expected the folder of a run"),
    ],
)
def test_another_network_or_none_is_refused(init: str, said: str, store: Path, tmp_path: Path) -> None:
    save(BerDiff(make_network("tiny"), linear(20)), tmp_path / "other")
    model = ModelConfig(preset="fast-tiny", init=str(tmp_path / init))
    with pytest.raises(InputError, match=said):
        make_segmenter(replace(small_config(store), model=model), open_store(str(store)), (16, 16))
