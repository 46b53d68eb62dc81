"""A training on patches of larger images: it resumes to the bit; validation, evaluation and use see whole images."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import berdiff
from berdiff.cli.main import main
from berdiff.data.store import open_store
from berdiff.diffusion.random import sample_generators
from berdiff.diffusion.sampler import Sampler
from berdiff.errors import InputError
from berdiff.evaluation.core import sample_cases
from berdiff.evaluation.evaluate import evaluate
from berdiff.evaluation.settings import EvaluationSettings
from berdiff.inference.settings import SegmentSettings
from berdiff.methods.berdiff import BerDiff
from berdiff.networks.build import NETWORKS
from berdiff.training.config import DataConfig, check
from berdiff.training.run_folder import read_rows
from berdiff.training.session import open_trainer, train
from fakes import StandIn, make_store
from refusals import refused

from .small import small_config, weight_files

SIDE, PATCH = 40, 16
MODEL = BerDiff(preset="ten-lines", T=10, prediction="mask", sampler=Sampler(steps=2))


@pytest.fixture(scope="module", autouse=True)
def _ten_lines():
    """A network of one convolution, as an entry point would bring it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(NETWORKS.ours, "ten-lines", "fakes:TenLines")
        yield


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("large"), size=SIDE)


def patches(store: Path, model=MODEL, **data):
    config = small_config(store, model, max_steps=8)
    config = replace(config, validation=replace(config.validation, every=4, cases=3, samples=2))
    return replace(config, data=replace(config.data, patch=PATCH, **data))


@pytest.fixture(scope="module")
def run(large: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "run"
    assert train(patches(large), out) == "finished: 8 steps"
    return out


def test_it_sees_patches_and_resumes_to_the_bit(large: Path, run: Path, tmp_path: Path) -> None:
    trainer = open_trainer(patches(large), tmp_path / "unused")
    (batch,) = trainer.batches.make(0)
    assert batch.image.shape == (4, 1, PATCH, PATCH)
    config = patches(large)
    train(replace(config, loop=replace(config.loop, max_steps=4)), tmp_path / "run")
    train(config, tmp_path / "run")
    assert weight_files(tmp_path / "run") == weight_files(run)
    with pytest.raises(InputError, match=r"--data\.foreground: 0\.33 -> 0\.5"):
        train(patches(large, foreground=0.5), tmp_path / "run")


def test_what_is_outside_a_patch_is_still_validated(large: Path, run: Path, tmp_path: Path) -> None:
    """Figures of the validation are those of an evaluation of whole images, from the run, its model or its best."""
    rows = [row for row in read_rows(run / "stats.jsonl") if row["kind"] == "validation"]
    assert [row["step"] for row in rows] == [4, 8]
    model = berdiff.load(run)
    assert (model.size, model.crop, model.input_spec.patches) == ((PATCH, PATCH), None, True)
    settings = EvaluationSettings(split="val", samples=2, limit=3, batch_size=2)
    figures = evaluate(model, open_store(large), tmp_path / "e", settings)["metrics"]
    assert figures["ged_2"]["value"] == pytest.approx(rows[-1]["ged"])
    assert berdiff.load(run / "best").crop is None
    copied = tmp_path / "elsewhere"
    copied.mkdir()
    for path in (run / "model").iterdir():
        (copied / path.name).write_bytes(path.read_bytes())
    assert berdiff.load(copied).crop is None


def test_tiles_join_in_evaluation_as_in_segmentation(large: Path, run: Path) -> None:
    """The same masks by three ways; and they are one diffusion over tiles, not the network over all of the image."""
    model, store = berdiff.load(run), open_store(large)
    index = int(store.indices("test")[0])
    name, images = str(store.cases.case[index]), torch.from_numpy(store.read([index])[0])
    by_evaluation = sample_cases(model.segmenter, images, [name], 3)
    (by_case,) = model.case_results(store, [index], SegmentSettings(samples=3))
    by_hand = model.segmenter.tiled((PATCH, PATCH), 0.25).sample(images, 3, sample_generators(0, [name], 3, "cpu"))
    assert by_evaluation.shape == (1, 3, 1, SIDE, SIDE)
    assert torch.equal(by_evaluation, by_hand)
    assert by_case.region is None
    np.testing.assert_array_equal(by_case.samples, by_evaluation[0].numpy())
    array = model.segment(images[0, 0].numpy(), n=3, name=name)
    np.testing.assert_array_equal(array.samples, by_evaluation[0].numpy())


def test_what_cannot_work_is_refused(large: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for data, where, code in (
        (DataConfig(patch=8, crop=8), "--data.patch", "conflict"),
        (DataConfig(patch=0), "--data.patch", "value"),
        (DataConfig(patch=8, foreground=1.2), "--data.foreground", "value"),
    ):
        with refused(where, code=code):
            check(replace(patches(large), data=data))
    command = ["train", "demo", "--data", str(large), "--out", str(tmp_path / "run"), "--data.crop", "None"]
    for side, sentence in (("64", "patch: "), ("12", "--data.patch: ")):
        assert main([*command, "--data.patch", side]) == 2
        assert sentence in capsys.readouterr().err
    with refused("--data.patch", "stand-in"):
        train(patches(large, StandIn()), tmp_path / "run")
    assert not (tmp_path / "run").exists()
