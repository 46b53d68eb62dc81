"""A model saved and loaded is the same model; a folder that is not one is refused in a sentence."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from berdiff.data.input_spec import InputSpec
from berdiff.diffusion.random import sample_generators
from berdiff.diffusion.sampler import GaussianSampler, Sampler
from berdiff.methods import folder
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.gaussian import GaussianDiffusion
from berdiff.methods.hprobunet import HierarchicalProbUNet
from berdiff.methods.jprounet import JProUNet
from berdiff.methods.mose import MoSE
from berdiff.methods.mose import network as mose
from berdiff.methods.probunet import ProbUNet
from berdiff.methods.ssn import SSN
from berdiff.methods.ssn import network as ssn
from berdiff.methods.unet import UNet
from fakes import make_spec
from refusals import refused

SPEC = make_spec((16, 24), channels=("t1", "t2"), targets=("core",), rule="window", window=(-1000.0, 400.0))
CONFIGS = (
    BerDiff("fast-tiny", T=50, prediction="mask", lambda_kl=0.0, masks_per_image=8, sampler=Sampler(steps=(50, 20, 5))),
    GaussianDiffusion("fast-tiny", "cosine", T=50, sampler=GaussianSampler(steps=4, sigma=0.0)),
    UNet("fast-tiny"),
)


def awake(config, spec: InputSpec = SPEC):
    torch.manual_seed(0)
    model = config.build(spec)
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.1)
    return model.eval()


def assert_same_masks(one, two) -> None:
    image = torch.rand(2, 2, 16, 16, generator=torch.Generator().manual_seed(0))
    first, second = (m.sample(image, 3, sample_generators(0, ["a", "b"], 3)) for m in (one, two))
    assert 0 < float(first.float().mean()) < 1
    assert float((first != second).float().mean()) < 0.01  # another memory format: rounding may turn a pixel


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("run") / "model"
    folder.save(awake(CONFIGS[0]), path)
    return path


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    return shutil.copytree(saved, tmp_path / "model")


def change(path: Path, *keys: str, value: object) -> None:
    """One entry of config.json; `...` removes it."""
    content = json.loads((path / "config.json").read_text())
    place = content
    for key in keys[:-1]:
        place = place[key]
    if value is ...:
        del place[keys[-1]]
    else:
        place[keys[-1]] = value
    (path / "config.json").write_text(json.dumps(content))


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.method)
def test_round_trip(config, tmp_path: Path):
    model = awake(config)
    folder.save(model, tmp_path / "model")
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == ["config.json", "model.safetensors"]
    assert json.loads((tmp_path / "model/config.json").read_text())["format"] == 2
    again = folder.load(tmp_path / "model")
    assert (again.config, again.input_spec, again.training) == (config, SPEC, False)
    assert again.weights_sha256 == folder.sha256(tmp_path / "model/model.safetensors")
    for name, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], value)
    assert_same_masks(model, again)


def test_the_sampler_of_now_and_other_weights_are_saved(saved: Path, tmp_path: Path):
    model = folder.load(saved)
    model.sampler = Sampler(steps=7)
    zeros = {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
    folder.save(model, tmp_path, zeros)
    again = folder.load(tmp_path)
    assert again.sampler == again.config.sampler == Sampler(steps=7)
    assert again.config == replace(model.config, sampler=Sampler(steps=7))
    assert not any(bool(value.any()) for value in again.state_dict().values())


def test_a_model_by_its_folder_its_run_or_its_bundled_name(saved: Path, tmp_path: Path, monkeypatch):
    assert folder.resolve(saved) == folder.resolve(saved.parent) == saved
    assert set(folder.bundled()) >= {"lidc", "lidc-readers", "lidc-unet"}
    shutil.copytree(saved, tmp_path / "lidc")
    monkeypatch.setattr(folder, "BUNDLED", tmp_path)
    monkeypatch.chdir(tmp_path.parent)
    assert folder.resolve("lidc") == tmp_path / "lidc"
    for wrong in ("lidk", "../nowhere/lidc"):
        with refused(f"{wrong}:"):
            folder.resolve(wrong)


# --- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "value", "named"),
    [
        (("format",), 99, "config.json: format:"),
        (("format",), ..., "config.json: format:"),
        (("model", "method"), "magic", "'magic'"),
        (("model", "pace"), 3, "'pace'"),
        (("model", "T"), 0, "config.json: model.T:"),
        (("model", "sampler", "sigma"), 3.0, "config.json: model.sampler.sigma:"),
        (("model", "preset"), "tiny", "/model: "),
        (("model", "preset"), "huge", "'huge'"),
        (("model",), [], "config.json: model:"),
        (("input_spec", "size"), [64], "config.json: input_spec.size:"),
        (("input_spec", "targets"), [], "targets:"),
        (("input_spec", "channels"), ["t1", "t1"], "channels:"),
        (("weights_sha256",), "0" * 64, "model.safetensors:"),
    ],
)
def test_a_configuration_that_does_not_fit_is_named(copy: Path, keys: tuple, value: object, named: str):
    change(copy, *keys, value=value)
    with refused(named):
        folder.load(copy)


def test_damaged_and_foreign_files_are_one_sentence(copy: Path, tmp_path: Path):
    with refused("nothing:"):
        folder.load(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with refused("empty:"):
        folder.load(tmp_path / "empty")
    weights = copy / "model.safetensors"
    good = weights.read_bytes()
    weights.write_bytes(good[:-5] + bytes([good[-5] ^ 1]) + good[-4:])
    with refused("model.safetensors:"):
        folder.load(copy)
    weights.write_bytes(b"not weights at all")
    change(copy, "weights_sha256", value=folder.sha256(weights))  # somebody "mended" it
    with refused(f"{copy}:"):
        folder.load(copy)
    weights.unlink()
    with refused(f"{copy}:", "model.safetensors"):
        folder.load(copy)
    weights.write_bytes(good)
    for text in ("{", "[]", '"model"', "\xff", "[" * 100_000):
        (copy / "config.json").write_text(text, encoding="latin-1")
        with refused("config.json:"):
            folder.load(copy)


def test_weights_are_copied_between_models_of_one_network(saved: Path, tmp_path: Path):
    fresh = BerDiff("fast-tiny", T=50).build(SPEC)
    folder.copy_weights(fresh, str(saved))
    for name, value in folder.load(saved).state_dict().items():
        assert torch.equal(fresh.state_dict()[name], value)
    for other in (BerDiff("tiny").build(SPEC), BerDiff("fast-tiny").build(make_spec())):
        with refused("--init:"):
            folder.copy_weights(other, str(saved))
    with refused("nowhere:"):
        folder.copy_weights(fresh, str(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("config", "own"),
    [
        (SSN("tiny", mean_steps=9), {"steps"}),
        (MoSE("tiny", cap_steps=9), {"steps"}),
        (ProbUNet("tiny", beta_warmup=9), {"objective.steps"}),
        (JProUNet("tiny", beta_warmup=9), {"objective.steps"}),
        (HierarchicalProbUNet("tiny", nu=0.0), {f"objective.{name}" for name in ("log_lambda", "average", "updates")}),
    ],
    ids=lambda value: getattr(value, "method", ""),
)
def test_a_new_training_from_other_weights_begins_its_own_schedules(config, own: set[str], tmp_path, monkeypatch):
    """Everything else belongs to the model, BatchNorm's statistics too; a folder that is opened has all of it."""
    for presets in (ssn.PRESETS, mose.PRESETS):
        monkeypatch.setitem(presets, "tiny", replace(presets["tiny"], norm="batch"))
    trained, fresh = config.build(make_spec()), config.build(make_spec())
    with torch.no_grad():
        for value in trained.state_dict().values():
            value.add_(1)
    before = {name: value.clone() for name, value in fresh.state_dict().items()}
    folder.save(trained, tmp_path)
    folder.copy_weights(fresh, str(tmp_path))
    theirs, found = folder.load(tmp_path).state_dict(), fresh.state_dict()
    assert {name for name, value in found.items() if not torch.equal(value, theirs[name])} == own
    assert all(torch.equal(found[name], before[name]) for name in own)
    assert any(name.endswith("running_mean") for name in found) == isinstance(config, SSN | MoSE)


def test_a_model_folder_is_replaced_as_a_whole(tmp_path: Path):
    """Whoever reads it meanwhile has one model or the other; other files stay; the umask decides who may read."""
    before = os.umask(0o022)
    try:
        folder.save(awake(CONFIGS[2]), tmp_path / "model")
        (tmp_path / "model" / "README.md").write_text("a card")
        folder.save(awake(CONFIGS[0]), tmp_path / "model")
    finally:
        os.umask(before)
    assert folder.load(tmp_path / "model").config == CONFIGS[0]
    assert (tmp_path / "model" / "README.md").read_text() == "a card"
    assert {oct(path.stat().st_mode & 0o777) for path in (tmp_path / "model").iterdir()} == {"0o644"}


def test_a_folder_that_is_replaced_while_it_is_read_is_read_again(tmp_path: Path, monkeypatch):
    folder.save(awake(CONFIGS[2]), tmp_path / "model")
    times, other = [], awake(CONFIGS[0])
    torch.nn.init.zeros_(next(other.parameters()))

    def replaced_meanwhile(file: Path, read=folder.read_config):
        found = read(file)
        if not times:
            folder.save(other, tmp_path / "model")
        times.append(file)
        return found

    monkeypatch.setattr(folder, "read_config", replaced_meanwhile)
    assert folder.load(tmp_path / "model").config == CONFIGS[0]
    assert len(times) == 2


def test_the_card_of_lidc_says_where_it_is_known_to_fail():
    path = folder.resolve("lidc")
    _, spec, _ = folder.read_config(path / folder.CONFIG)
    assert any("normal lung" in note for note in spec.notes)
    card = (path / "README.md").read_text(encoding="utf-8")
    assert all(note in card for note in spec.notes)


def test_a_folder_of_0_1_0_names_the_version_that_reads_it(copy: Path):
    change(copy, "format", value=1)
    with refused("config.json:"):
        folder.load(copy)
