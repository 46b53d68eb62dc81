"""`import berdiff`: what it offers, in the caller's own process, with settings as keywords."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import berdiff
from berdiff import api
from berdiff.data.store import Store
from berdiff.errors import InputError
from berdiff.evaluation.compare import Comparison, Evaluation
from berdiff.inference.model import Model
from berdiff.methods import folder
from berdiff.training import session
from fakes import make_store

NAMES = ["compare", "evaluate", "load", "models", "prepare", "segment", "train"]
TINY = {"loop.batch_size": 2, "model.masks_per_image": 1, "data.crop": None, "validation.every": 0}


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    return make_store(tmp_path_factory.mktemp("store"), train=4, val=2)


@pytest.fixture(scope="module")
def run(store, tmp_path_factory):
    return berdiff.train("demo", store, out=tmp_path_factory.mktemp("runs") / "tiny", max_steps=4, overrides=TINY)


def test_tab_completion_finds_the_functions_before_anything_is_imported():
    code = f"""
import berdiff, sys
assert [name for name in dir(berdiff) if name[0] != "_"] == {NAMES}
assert "torch" not in sys.modules
assert berdiff.load.__module__ == "berdiff.inference.model" and "torch" in sys.modules
assert not hasattr(berdiff, "lode")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_every_function_is_documented_and_typed(name: str):
    function = getattr(berdiff, name)
    signature = inspect.signature(function)
    assert len(inspect.getdoc(function) or "") > 40
    assert signature.return_annotation is not inspect.Signature.empty
    assert all(of.annotation is not inspect.Parameter.empty for of in signature.parameters.values())


def test_the_bundled_models_say_what_they_know():
    found = berdiff.models()
    assert list(found) == folder.bundled()
    assert all("64x64 pixels" in words and "\n" not in words for words in found.values())


def test_prepare_gives_the_store(tmp_path: Path):
    for name in ("images", "masks"):
        (tmp_path / "mine" / name).mkdir(parents=True)
        for number in range(5):
            array = np.full((16, 16), 10 * number if name == "images" else 0, np.uint8)
            array[2:6, 2:6] = 255
            Image.fromarray(array).save(tmp_path / "mine" / name / f"p{number}_x.png")
    found = berdiff.prepare("folder", tmp_path / "mine", tmp_path / "s.zarr", patient=r"^(p\d)", test=0.4, val=0.2)
    assert isinstance(found, Store)
    assert len(found.indices("test")) == 2
    assert "5 cases of 5 patients (train 2, val 1, test 2)" in repr(found)
    for wrong, name in (({"patent": "p"}, "patent"), ({"tails": -1.0}, "tails"), ({"seed": -1}, "seed")):
        with pytest.raises(InputError, match=f"^{name}: "):
            berdiff.prepare("folder", tmp_path / "mine", tmp_path / "other.zarr", **wrong)
    with pytest.raises(InputError, match=r"^path: "):
        berdiff.prepare("folder", None, tmp_path / "other.zarr")
    assert not (tmp_path / "other.zarr").exists()


def test_training_is_in_this_process_on_one_device(run, store):
    assert torch.get_num_threads() == THREADS, "the recipe's one thread is not the caller's"
    assert (run.config["engine"]["devices"], run.config["loop"]["batch_size"]) == ("1", 2)
    assert "4 steps" in repr(run)
    assert len(repr(run).splitlines()) <= 4
    model = run.model("cpu")
    assert isinstance(model, Model)
    for words in ("tiny", "berdiff (fast-tiny)", "16x16 pixels of ct", "marks nodule", str(store)):
        assert words in repr(model)
    assert len(repr(model).splitlines()) <= 4


THREADS = torch.get_num_threads()


def test_a_script_without_a_main_guard_runs_once(store, tmp_path: Path):
    """The recipe's own two devices would start it a second time."""
    script = tmp_path / "script.py"
    script.write_text(
        f"""
import berdiff
with open("begun.txt", "a") as file:
    file.write("begun\\n")
run = berdiff.train("demo", {str(store)!r}, out="run", max_steps=2, overrides={TINY!r})
with open("begun.txt", "a") as file:
    file.write(run.folder.name)
"""
    )
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "begun.txt").read_text().splitlines() == ["begun", "run"]


def test_several_devices_need_a_program_that_can_be_started_again(store, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    with pytest.raises(InputError, match=r"^devices: .* notebook"):
        berdiff.train("demo", store, out=tmp_path / "run", devices=2)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"recipe": "dem"}, "recipe: .*demo"),
        ({"method": "unett"}, "method"),
        ({"max_steps": 0}, "max_steps"),
        ({"max_minutes": "5"}, "max_minutes"),
        ({"seed": -1}, "seed"),
        ({"overrides": {"loop.batchsize": 4}}, "overrides: .*loop.batch_size"),
        ({"overrides": {"loop.batch_size": 0}}, "loop.batch_size"),
        ({"overrides": {"data.crop": 3}}, "data.crop"),
        ({"overrides": {"optim.kind": "sgd"}}, "optim.momentum"),
    ],
)
def test_a_wrong_setting_is_called_by_its_keyword(settings, name: str, store, tmp_path: Path):
    asked = {"recipe": "demo", "overrides": TINY, **settings}
    with pytest.raises(InputError, match=f"^{name}") as refused:
        berdiff.train(data=store, out=tmp_path / "run", **asked)
    assert " --" not in str(refused.value).replace("train --help", "")
    assert not (tmp_path / "run").exists()


def test_what_follows_an_interrupted_training_does_not(store, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(session, "train", lambda config, run: "stopped by SIGINT")
    with pytest.raises(KeyboardInterrupt):
        berdiff.train("demo", store, out=tmp_path / "run")


def test_a_recipe_of_two_stages_trains_both(store, tmp_path: Path, monkeypatch):
    trained = []

    def pretend(config, out):
        trained.append((config.recipe, config.init, out.name, config.engine.devices))
        out.mkdir(exist_ok=True)
        (out / "config.json").write_text('{"loop": {}}')
        (out / "stats.jsonl").write_text('{"kind": "end", "step": 1, "reason": "finished: 1 steps"}\n')
        return "finished: 1 steps"

    monkeypatch.setattr(session, "train", pretend)
    monkeypatch.setattr(session, "refuse_another", lambda config, run: None)
    berdiff.train("lidc-cpu-energy", store, out=tmp_path / "run")
    first = tmp_path / f"run-{trained[0][0]}"
    assert [found[1:] for found in trained] == [(None, first.name, "1"), (str(first), "run", "1")]
    berdiff.train("lidc-cpu-energy", store, out=tmp_path / "run")
    assert len(trained) == 3, "the first is finished"


def test_evaluations_and_their_differences_are_tables(run, store, tmp_path: Path):
    one = berdiff.evaluate(run.folder, samples=2, split="all", out=tmp_path / "one", device="cpu")
    assert isinstance(one, Evaluation)
    assert (tmp_path / "one/metrics.json").is_file()
    assert one.metrics["ged_2"] == one.result["metrics"]["ged_2"]["value"]
    assert "GED 2" in repr(one)
    assert "<table>" in one._repr_html_()
    other = berdiff.evaluate(run.model("cpu"), Store.open(store), samples=2, split="all", sampler={"steps": 2})
    assert other.result["settings"]["sampler"]["steps"] == 2
    found = berdiff.compare(tmp_path / "one", other)
    assert isinstance(found, Comparison)
    assert found.result["evaluations"] == ["one", "tiny"]
    assert found.result["cases"] == len(Store.open(store))
    assert "minus one" in repr(found)
    assert "<table>" in found._repr_html_()
    assert berdiff.compare(one, one).result["evaluations"] == ["one (1)", "one (2)"]
    for settings, name in (
        ({"samples": 0}, "samples"),
        ({"smples": 2}, "smples"),
        ({"sampler": {"steps": 0}}, "steps"),
    ):
        with pytest.raises(InputError, match=f"^{name}:"):
            berdiff.evaluate(run.model("cpu"), store, **settings)
    with pytest.raises(InputError):
        berdiff.compare(one)


def test_segment_gives_a_result_or_fills_a_folder(run, tmp_path: Path):
    model, rng = run.model("cpu"), np.random.default_rng(0)
    for name in "ab":
        Image.fromarray(rng.integers(0, 255, (16, 16), dtype=np.uint8)).save(tmp_path / f"{name}.png")
    (tmp_path / "c.png").write_bytes(b"no picture")
    alone = berdiff.segment(model, tmp_path / "a.png", n=3, seed=5)
    paths, out = sorted(tmp_path.glob("*.png")), tmp_path / "out"
    outcome = berdiff.segment(model, paths, n=3, out=out, write=("nifti", "json"), seed=5, center=(8, 8), steps=2)
    assert (outcome.done, list(outcome.failed)) == (["a", "b"], ["c"])
    assert (out / "a/result.json").is_file()
    assert "2 segmented, 0 found done, 1 failed" in repr(outcome)
    assert berdiff.segment(model, paths, n=3, out=out, write=("nifti", "json"), seed=5, center=(8, 8), steps=2).skipped
    same = berdiff.segment(str(run.folder), tmp_path / "a.png", n=3, seed=5)
    np.testing.assert_array_equal(alone.pool, same.pool)
    with pytest.raises(InputError, match=r"c\.png"):
        berdiff.segment(model, tmp_path / "c.png", out=tmp_path / "none")
    for options, name in (({"foo": 1}, "foo"), ({"slices": "x"}, "slices"), ({"n": 0}, "n"), ({"pool": 0}, "pool")):
        with pytest.raises(InputError, match=f"^{name}:"):
            berdiff.segment(model, paths, out=tmp_path / "none", **options)
    with pytest.raises(InputError, match=r"^write:"):
        berdiff.segment(model, paths[0], write=("json",))
    assert not (tmp_path / "none").exists()


def test_all_but_the_first_of_several_processes_end_with_the_training(store, tmp_path: Path, monkeypatch):
    ranks = iter((None, 1))
    monkeypatch.setattr(session, "train", lambda config, run: "finished: 1 steps")
    monkeypatch.setattr(api, "_rank", lambda: next(ranks))
    monkeypatch.setattr(sys, "argv", [os.fspath(Path(__file__))])
    monkeypatch.delattr(sys, "ps1", raising=False)
    with pytest.raises(SystemExit) as left:
        berdiff.train("demo", store, out=tmp_path / "run", devices=2)
    assert left.value.code == 0
    monkeypatch.setattr(api, "_rank", lambda: 0)
    with pytest.raises(InputError, match="several devices before"):
        berdiff.train("demo", store, out=tmp_path / "run")
    monkeypatch.setattr(api, "_rank", lambda: None)
    with pytest.raises(InputError, match=r"^devices: lidc-cpu-energy"):
        berdiff.train("lidc-cpu-energy", store, out=tmp_path / "run", devices=2)
