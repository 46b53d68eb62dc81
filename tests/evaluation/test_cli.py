"""`berdiff evaluate` and `berdiff compare` from the command line: a real store, a real model folder, a run."""

import json

import h5py
import numpy as np
import pytest
import torch

from berdiff.cli.main import main
from berdiff.evaluation.models import open_model


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(store, run): twelve tiny slices of six patients, and a run whose model is the tiny network, untrained."""
    from berdiff.data.prepare import prepare
    from berdiff.diffusion.schedule import make_schedule
    from berdiff.methods.berdiff import BerDiff
    from berdiff.methods.folder import save
    from berdiff.networks.build import make_network

    base = tmp_path_factory.mktemp("cli")
    rng = np.random.default_rng(0)
    with h5py.File(base / "data.hdf5", "w") as file:
        for split, patients in (("train", "ab"), ("test", "cdef")):
            group = file.create_group(split)
            group["images"] = rng.integers(256, size=(2 * len(patients), 24, 24), dtype=np.uint8)
            masks = np.zeros((2 * len(patients), 24, 24, 4), np.uint8)
            masks[:, 8:16, 8:16] = rng.integers(2, size=(2 * len(patients), 8, 8, 4))
            group["labels"] = masks
            group["uids"] = np.array([p for p in patients for _ in range(2)], dtype="S")
    prepare("lidc-hdf5", base / "data.hdf5", base / "store.zarr")
    torch.manual_seed(0)
    save(BerDiff(make_network("tiny"), make_schedule("linear", 20)), base / "run" / "model")
    config = {"data": {"crop": 16, "store": str(base / "store.zarr")}}
    (base / "run" / "config.json").write_text(json.dumps(config))
    return base / "store.zarr", base / "run"


QUICK = ["--samples", "4", "--steps", "2", "--batch-size", "3"]


def test_a_run_is_evaluated_as_it_was_trained_and_compared(made, tmp_path, capsys):
    _, run = made
    assert main(["evaluate", str(run), "--out", str(tmp_path / "a"), *QUICK]) == 0
    shown = capsys.readouterr().out
    assert "GED 4, unbiased" in shown
    assert "perfect sampler" in shown
    assert "8 cases of 4 patients, split test of lidc-hdf5, centre 16x16; 4 samples, ddim in 2 steps" in " ".join(
        shown.split()
    )
    assert {f.name for f in (tmp_path / "a").iterdir()} == {"settings.json", "metrics.json", "per_case.csv", "table.md"}

    more = ["--sampler", "ddpm", "--posterior", "marginal", "--last-step", "sample", "--save-samples", "--json"]
    assert main(["evaluate", str(run), "--out", str(tmp_path / "b"), *QUICK, *more]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["settings"]["crop"] == 16
    assert result["settings"]["sampler"]["posterior"] == "marginal"
    assert (tmp_path / "b" / "samples").is_dir()

    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert "not the same in all: sampler.rule is ddim, ddpm" in capsys.readouterr().out
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json"]) == 0
    comparison = json.loads(capsys.readouterr().out)
    assert comparison["cases"] == 8
    assert {row["metric"] for row in comparison["rows"]} == set(result["metrics"])


def test_a_model_in_a_run_knows_the_run_and_one_by_itself_does_not(made, tmp_path):
    store, run = made
    for path in (run, run / "model"):
        opened = open_model(path)
        assert (opened.name, opened.crop, opened.store) == ("run", 16, str(store))
    copied = tmp_path / "copied"
    copied.mkdir()
    for file in (run / "model").iterdir():
        (copied / file.name).write_bytes(file.read_bytes())
    opened = open_model(copied)
    assert (opened.name, opened.crop, opened.store) == ("copied", None, None)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--split", "val"], "expected cases in the split 'val', found none"),
        (["--split", "holdout"], "split: expected one of train, val, test or all, found 'holdout'"),
        (["--sigma", "2"], "--sigma: expected a share of the largest value in [0, 1], found 2.0"),
        (["--steps", "21"], "--steps: expected 1 <= steps <= T = 20, found 21"),
        (["--crop", "25"], "--crop: expected 1 to 24, the size of the images, found 25"),
        (["--crop", "18"], "the model cannot sample these images: image: expected height and width in multiples of 4"),
        (["--limit", "0"], "--limit: expected at least 1 case, found 0"),
        (["--device", "abacus"], "--device: expected a device of this machine, found 'abacus'"),
        (["--data", "nowhere"], "nowhere: expected a prepared store"),
    ],
)
def test_bad_options_are_one_sentence_and_exit_code_2(made, tmp_path, capsys, options, sentence):
    assert main(["evaluate", str(made[1]), "--out", str(tmp_path / "e"), "--samples", "2", *options]) == 2
    error = capsys.readouterr().err
    assert error.startswith("berdiff evaluate: ")
    assert sentence in error
    assert "Traceback" not in error


def test_bad_folders(made, tmp_path, capsys):
    assert main(["evaluate", str(tmp_path / "none"), "--out", str(tmp_path / "e")]) == 2
    assert "expected the folder of a run or of a model or one of the names lidc, " in capsys.readouterr().err
    broken = tmp_path / "broken"
    (broken / "model").mkdir(parents=True)
    (broken / "config.json").write_text("{}")
    assert main(["evaluate", str(broken), "--out", str(tmp_path / "e")]) == 2
    assert "expected the configuration of a run with data.crop and data.store" in capsys.readouterr().err
    assert main(["compare", str(tmp_path / "none"), str(tmp_path / "none")]) == 2
    assert "expected a finished evaluation" in capsys.readouterr().err
