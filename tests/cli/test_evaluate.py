"""`berdiff evaluate` and `berdiff compare` from the command line: a real store, a real model folder, a run."""

import json

import pytest
import torch

from berdiff.cli.main import main
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.folder import save
from berdiff.methods.unet import UNet
from fakes import make_spec, make_store


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose model is the tiny network, untrained, and that says which store and crop it was trained on."""
    base = tmp_path_factory.mktemp("cli")
    store = make_store(base, train=2, val=0, size=24)
    torch.manual_seed(0)
    save(BerDiff("fast-tiny", T=20).build(make_spec()), base / "run" / "model")
    config = {"loop": {}, "data": {"crop": 16, "store": str(store)}}
    (base / "run" / "config.json").write_text(json.dumps(config))
    save(UNet("fast-tiny").build(make_spec()), base / "unet")
    return base / "run"


QUICK = ["--samples", "4", "--batch-size", "3"]


def test_a_run_is_evaluated_as_it_was_trained_and_compared(run, tmp_path, capsys):
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    assert main(["evaluate", str(run), "--out", a, "--steps", "2", *QUICK]) == 0
    shown, printed = capsys.readouterr()
    assert "device: " in printed
    assert "GED 4, unbiased" in shown
    assert "perfect sampler" in shown
    words = (
        "2 cases of 2 patients, split test of lidc-hdf5; 4 samples, ddim in 2 steps, seed 0; "
        "figures on the whole 24x24; the model sees the centre 16x16."
    )
    assert words in " ".join(shown.split())
    for heading in ("exact model", "distance, 1 - IoU, of", "agreement with a rater of", "P(finding), nodule"):
        assert heading in shown

    more = ["--steps", "20", "7", "--rule", "ddpm", "--posterior", "marginal", "--last-step", "sample", "--json"]
    assert main(["evaluate", str(run), "--out", b, *QUICK, *more, "--save-samples"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["settings"]["crop"], result["settings"]["device"]) == (16, printed.split()[1])
    assert result["settings"]["sampler"]["steps"] == [20, 7]
    assert result["settings"]["sampler"]["posterior"] == "marginal"
    assert (tmp_path / "b" / "samples").is_dir()

    assert main(["compare", a, b]) == 0
    assert "not the same in all: sampler.rule is ddim, ddpm" in capsys.readouterr().out
    assert main(["compare", a, b, "--json"]) == 0
    comparison = json.loads(capsys.readouterr().out)
    assert comparison["cases"] == 2
    assert {row["metric"] for row in comparison["rows"]} == set(result["metrics"]) - {"d_yy", "d_raters"}


def test_a_set_is_chosen_out_of_a_pool_and_compared(run, tmp_path, capsys):
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    assert main(["evaluate", str(run), "--out", a, "--steps", "2", *QUICK]) == 0
    capsys.readouterr()
    chosen = ["--steps", "2", "--set", "representative", "--pool", "6", "--json"]
    assert main(["evaluate", str(run), "--out", b, *QUICK, *chosen]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["settings"]["set"], result["settings"]["pool"]) == ("representative", 6)
    assert {"ged_4", "hm_iou_4", "ged_6_unbiased"} <= set(result["metrics"])
    (figures,) = result["finding"].values()
    assert set(figures) == {"ece", "ece_if_calibrated", "r2", "ged", "reliability"}
    assert main(["compare", a, b]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "GED, HM-IoU and D_max are of sets chosen by different rules" in shown
    assert "not the same in all: set is independent, representative" in shown


def test_bad_options_are_one_sentence_and_exit_code_2(run, tmp_path, capsys):
    broken, unet = tmp_path / "broken", str(run.parent / "unet")
    (broken / "model").mkdir(parents=True)
    for file in (run / "model").iterdir():
        (broken / "model" / file.name).write_bytes(file.read_bytes())
    (broken / "config.json").write_text("{}")
    for model, options, sentence in (
        (run, ["--split", "val"], "expected cases in the split 'val', found none"),
        (run, ["--split", "holdout"], "split: expected one of train, val, test or all, found 'holdout'"),
        (run, ["--sigma", "2"], "--sigma: expected a share of the maximum in [0, 1], found 2.0"),
        (run, ["--steps", "21"], "--steps: expected 1 <= steps <= T = 20, found 21"),
        (run, ["--crop", "25"], "--crop: expected at most 24x24, the size of the images, found 25x25"),
        (run, ["--crop", "18"], "the model cannot sample these images: image: expected height and width in multiples"),
        (
            run,
            ["--set", "systematic", "--pool", "1"],
            "--pool: expected at least 2, the masks to choose from it, found 1",
        ),
        (run, ["--device", "abacus"], "--device: expected auto or a device of this machine, found 'abacus'"),
        (run, ["--data", "nowhere"], "nowhere: expected a prepared store"),
        (unet, ["--steps", "5"], "--steps: expected no sampler options for the method unet, which has no steps"),
        (tmp_path / "none", [], "expected the folder of a run or of a model, or one of lidc, "),
        (broken, [], "config.json: loop: "),
    ):
        assert main(["evaluate", str(model), "--out", str(tmp_path / "e"), "--samples", "2", *options]) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith("berdiff evaluate: ")
        assert sentence in error
        assert not (tmp_path / "e").exists()
    assert main(["compare", str(tmp_path / "none"), str(tmp_path / "none")]) == 2
    assert "expected a finished evaluation" in capsys.readouterr().err
