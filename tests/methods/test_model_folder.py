"""A model saved and loaded is the same model; a folder that is not one is refused in a sentence."""

import json
import shutil

import pytest
import torch

from berdiff.diffusion.sampling import Sampler, sample_generators
from berdiff.diffusion.schedule import cosine
from berdiff.errors import InputError
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.folder import load, resolve, save
from berdiff.networks.build import make_network


@pytest.fixture(scope="module")
def model() -> BerDiff:
    torch.manual_seed(0)
    net = make_network("tiny", image_channels=2)
    for p in net.parameters():
        torch.nn.init.normal_(p, std=0.1)
    return BerDiff(net, cosine(50), target="mask", lambda_kl=0.0, sampler=Sampler(steps=(50, 20, 5))).eval()


@pytest.fixture
def folder(model: BerDiff, tmp_path):
    save(model, tmp_path / "model")
    return tmp_path / "model"


def test_round_trip(model: BerDiff, folder):
    again = load(folder)
    assert again.config() == model.config()
    assert not again.training
    image = torch.rand(2, 2, 16, 16)
    one, two = (m.sample(image, 3, sample_generators(0, ["a", "b"], 3)) for m in (model, again))
    torch.testing.assert_close(one, two, rtol=0, atol=0)
    assert sorted(p.name for p in folder.iterdir()) == ["config.json", "model.safetensors"]


def test_about_goes_with_the_weights(model: BerDiff, tmp_path):
    about = {"size": [64, 48], "channels": ["ct"], "targets": ["nodule"], "window": [-1000, 400], "notes": ["a note"]}
    save(model, tmp_path / "model", about)
    again = load(tmp_path / "model")
    assert again.about == about
    save(again, tmp_path / "copy")  # and stays with them
    assert load(tmp_path / "copy").about == about
    save(model, tmp_path / "bare")
    assert load(tmp_path / "bare").about == {}


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ("all", r"config\.json: expected an object under about, found str"),
        ({"size": [64]}, r"expected about\.size to be \[height, width\], found \[64\]"),
        ({"size": [64, -1]}, r"expected about\.size"),
        ({"window": [400, -1000]}, r"expected about\.window to be \[low, high\]"),
        ({"targets": "nodule"}, r"expected about\.targets to be a list of names, found 'nodule'"),
        ({"scale": "eval"}, r"expected about\.scale to be one of auto, dtype"),
    ],
)
def test_about_of_another_kind_is_named(folder, about, message):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"about": about}))
    with pytest.raises(InputError, match=message):
        load(folder)


def test_a_model_by_its_folder_its_run_or_its_bundled_name(folder, tmp_path, monkeypatch):
    run = tmp_path  # the model lies in RUN/model
    assert resolve(folder) == folder
    assert resolve(run) == folder
    weights = tmp_path / "weights"
    shutil.copytree(folder, weights / "lidc")
    monkeypatch.setattr("berdiff.methods.folder.WEIGHTS", weights)
    assert resolve("lidc") == weights / "lidc"
    with pytest.raises(InputError, match="lidk: expected the folder of a run or of a model or one of the names lidc"):
        resolve("lidk")
    with pytest.raises(InputError):
        resolve("../weights/lidc")


def test_weights_that_changed_are_noticed(folder):
    weights = folder / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-5] ^= 1
    weights.write_bytes(data)
    with pytest.raises(InputError, match=r"model\.safetensors: expected the weights that config\.json names"):
        load(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 99}, "expected a model of format 1, found 99"),
        ({"method": "magic"}, "method: expected one of berdiff, gaussian, unet, found 'magic'"),
        ({"network": {"preset": "small", "image_channels": 2, "targets": 1}}, "expected weights that fit"),
        ({"schedule": {"name": "linear", "T": 0}}, "T: expected a whole number of steps of at least 1, found 0"),
        ({"sampler": {"pace": 3}}, "expected a complete configuration"),
    ],
)
def test_a_configuration_that_does_not_fit_is_named(folder, change, message):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(InputError, match=message):
        load(folder)


def test_not_a_model_folder(folder, tmp_path):
    with pytest.raises(InputError, match=r"nothing: expected the folder of a run or of a model.*, found none"):
        load(tmp_path / "nothing")
    (folder / "config.json").write_text("{")
    with pytest.raises(InputError, match="expected JSON"):
        load(folder)
