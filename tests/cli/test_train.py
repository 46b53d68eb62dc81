"""`berdiff train` as a user gives it, with real networks at their smallest."""

import json
import os
import sys
from pathlib import Path

import pytest
import torch

from berdiff.cli.main import main
from berdiff.cli.train import parse
from berdiff.errors import InputError
from berdiff.methods import folder as model_folder
from berdiff.methods.gaussian import GaussianDiffusion
from berdiff.methods.unet import UNet
from berdiff.recipes import MAIN, RECIPES
from berdiff.training import estimate as estimates
from berdiff.training import session
from berdiff.training.run_folder import read_run
from berdiff.training.stop import RunStopped
from fakes import make_store

TINY = ["--loop.batch-size", "4", "--data.crop", "None", "--loop.log-every", "1", "--validation.samples", "2"]
TINY += ["--validation.cases", "2", "--validation.every", "2", "--engine.accelerator", "cpu", "--engine.devices", "1"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("store"))


def test_train_resume_and_load(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    run = tmp_path / "run"
    command = ["train", "demo", "--data", str(store), "--out", str(run), "--model.sampler.steps", "2", *TINY]
    assert main([*command, "--max-steps", "2"]) == 0
    assert main([*command, "--max-steps", "4"]) == 0
    assert "resuming after step 2" in capsys.readouterr().out
    assert main([*command, "--max-steps", "4", "--json"]) == 0
    printed = capsys.readouterr()
    row = json.loads(printed.out)
    assert (row["run"], row["step"], row["state"]) == ("run", 4, "finished: 4 steps")
    assert "4 steps" in printed.err
    assert json.loads((run / "config.json").read_text())["recipe"] == "demo"
    segmenter = model_folder.load(run)
    assert segmenter.sampler is not None
    assert segmenter.sampler.steps == 2
    assert segmenter.sample(torch.rand(1, 1, 16, 16), 2, torch.Generator()).shape == (1, 2, 1, 16, 16)
    assert main([*command, "--optim.lr", "3"]) == 2
    assert "--optim.lr: 0.002 -> 3.0" in capsys.readouterr().err


def test_validation_gives_the_figures_of_an_evaluation(store: Path, tmp_path: Path, capsys) -> None:
    run, data = str(tmp_path / "run"), ["--data", str(store)]
    assert main(["train", "demo", *data, "--out", run, *TINY, "--model.method", "unet", "--max-steps", "2"]) == 0
    evaluate = ["evaluate", run, *data, "--split", "val", "--samples", "2", "--limit", "2", "--device", "cpu"]
    assert main([*evaluate, "--out", str(tmp_path / "evaluation")]) == 0
    metrics = json.loads((tmp_path / "evaluation/metrics.json").read_text())["metrics"]
    (row,) = read_run(run).of_kind("validation")
    assert row["ged"] == pytest.approx(metrics["ged_2"]["value"], abs=1e-12)
    assert row["hm_iou"] == pytest.approx(metrics["hm_iou_2"]["value"], abs=1e-12)


BOTH_STAGES = ["--model.preset", "fast-tiny", "--model.sampler.steps", "2", "--data.crop", "None"]
BOTH_STAGES += ["--engine.accelerator", "cpu", "--engine.devices", "1"]


def energy_command(store: Path, run: Path) -> list[str]:
    own = ["--loop.batch-size", "4", "--validation.every", "0", "--max-steps", "2"]
    return ["train", "lidc-cpu-energy", "--data", str(store), "--out", str(run), *BOTH_STAGES, *own]


def test_a_recipe_of_two_stages_trains_the_first_and_starts_anew(store: Path, tmp_path: Path, monkeypatch) -> None:
    """As after a fork: `execve` does not come back."""
    begun, started = [], []

    def execve(program: str, words: list[str], environment: dict[str, str]) -> None:
        started.append((program, words, environment))
        raise SystemExit(0)

    monkeypatch.setattr(session, "train", lambda config, run: begun.append((config, run)) or "finished: 10000 steps")
    monkeypatch.setattr(os, "execve", execve)
    command = [*energy_command(store, tmp_path / "runs/mine"), "--seed", "3"]
    with pytest.raises(SystemExit) as ended:
        main([*command, "--quiet"])
    assert ended.value.code == 0
    ((config, run),) = begun
    assert run == tmp_path / "runs/mine-lidc-cpu"
    assert (config.recipe, config.seed, config.data.store) == ("lidc-cpu", 3, str(store))
    assert (config.model.preset, config.model.energy, config.loop.max_steps) == ("fast-tiny", 0, 10_000)
    ((program, words, environment),) = started
    assert (program, words[:3]) == (sys.executable, [sys.executable, "-m", "berdiff.cli.main"])
    assert words[3:] == [*command, "--quiet"]
    assert environment == dict(os.environ)


def test_a_recipe_of_two_stages_begins_from_a_finished_first_one(store: Path, tmp_path: Path, capsys) -> None:
    run, first = tmp_path / "mine", tmp_path / "mine-lidc-cpu"
    own = ["train", "lidc-cpu", "--data", str(store), "--out", str(first), "--max-steps", "1", *BOTH_STAGES]
    assert main([*own, "--seed", "1"]) == 0
    assert main(energy_command(store, run)) == 2
    assert "--seed: 1 -> 0" in capsys.readouterr().err
    assert not run.exists()
    assert main([*energy_command(store, run), "--seed", "1"]) == 0
    assert json.loads((run / "config.json").read_text())["init"] == str(first)
    assert read_run(run).rows[-1]["reason"] == "finished: 2 steps"


def test_another_method_with_a_recipe_has_its_own_flags() -> None:
    unet = parse(["lidc-cpu", "--model.method", "unet", "--model.preset", "small"]).config
    assert unet.model == UNet(preset="small")
    assert unet.loop == RECIPES["lidc-cpu"].config.loop
    gaussian = parse(["lidc-cpu", "--model.method=gaussian", "--model.sampler.sigma", "0.5"]).config.model
    assert isinstance(gaussian, GaussianDiffusion)
    assert (gaussian.preset, gaussian.schedule, gaussian.masks_per_image) == ("fast", "power2.5", 4)
    assert gaussian.sampler.sigma == 0.5
    assert parse(["lidc-paper", "--model.method", "gaussian"]).config.model.sampler.sigma == 0  # eta, as is usual
    assert parse(["lidc-paper", "--model.method", "probunet"]).config.model.preset == "paper"
    with pytest.raises(SystemExit):  # what a method does not have is no flag of it
        parse(["lidc-cpu", "--model.method", "unet", "--model.T", "5"])
    with pytest.raises(InputError, match=r"method: expected one of berdiff, .*, found 'none'"):
        parse(["lidc-cpu", "--model.method", "none"])


def test_usage_lists_recipes_and_methods(capsys: pytest.CaptureFixture) -> None:
    assert main(["train", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--model.method NAME" in shown
    assert "berdiff, gaussian, unet" in shown
    assert all(f"\n  {name}\n" in shown for name in MAIN)
    assert "car-own" not in shown
    assert main(["train", "--list"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert rows["lidc-paper"].split()[1:3] == ["not", "trained"]
    assert rows["unet"].split()[1:5] == ["trained", "not", "trained", "-"]  # it has no authors of its own
    assert all(name in rows or name.rpartition("-")[0] in rows for name in RECIPES)


def test_dry_run_needs_no_out_and_writes_nothing(store: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["train", "demo", "--data", str(store), *TINY, "--dry-run", "--max-steps", "7"]
    assert main([*command, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["config"]["model"]["method"] == "berdiff"
    assert shown["config"]["loop"]["max_steps"] == 7
    found = shown["estimate"]
    assert found["parameters"] > 100_000
    assert found["slices_at_once"] == 4
    assert 0 < found["memory_needed_gb"] < found["memory_free_gb"]
    assert found["fits"] == "yes"
    assert found["seconds_per_step"] > 0
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "parameters " in shown
    assert "fits                    yes\n" in shown
    assert not list(tmp_path.iterdir())


def test_dry_run_counts_what_a_validation_does_once_per_case_once(store: Path, monkeypatch, capsys) -> None:
    """250 steps of 16 masks were taken for 4,000 encodings of the image: hours for what takes minutes."""

    now = [0.0]

    def seconds(work) -> float:
        before = now[0]
        work()
        return now[0] - before or 1e-9  # a training step takes none

    def draw(segmenter, images, names, n, sampler, *others) -> None:
        now[0] += 0.010 + 0.001 * n * sampler.steps

    monkeypatch.setattr(estimates, "_seconds", seconds)
    monkeypatch.setattr(estimates, "sample_cases", draw)
    options = ["--validation.cases", "3", "--validation.samples", "16", "--model.sampler.steps", "250", "--json"]
    assert main(["train", "demo", "--data", str(store), *TINY, *options, "--dry-run"]) == 0
    found = json.loads(capsys.readouterr().out)["estimate"]["seconds_per_validation"]
    assert found == pytest.approx(3 * (0.010 + 0.001 * 16 * 250), abs=0.06)


def test_dry_run_of_a_batch_that_does_not_fit(store: Path, monkeypatch, capsys: pytest.CaptureFixture) -> None:
    """The batch of 0.1.0 was tried as a whole, and the kernel killed it. Here 3 slices fit beside torch, not 64."""
    used, kept = estimates.used_memory, []
    command = ["train", "demo", "--data", str(store), *TINY, "--loop.batch-size", "64", "--dry-run"]
    measure = estimates._measure
    monkeypatch.setattr(estimates, "_measure", lambda *args: kept.append(measure(*args)) or kept[-1])
    assert main(command) == 0
    capsys.readouterr()
    (of_slice, _), weights = kept[0], 2**23
    monkeypatch.setattr(estimates, "free_memory", lambda device: used(device) + weights + 3 * of_slice)
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "fits                    no: --loop.accumulate " in shown
    assert " GB for the same batch\n" in shown
    monkeypatch.setattr(estimates, "free_memory", lambda device: of_slice / 10)
    assert main(command) == 2
    assert "--dry-run: one image alone takes over" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["no-such-recipe"], "recipe: no recipe"),
        (["demo"], "--out: expected the run folder to write, found none"),
        (["demo", "--out", "x", "--data", "nowhere"], "nowhere: expected a prepared store"),
        (["demo", "--out", "x", "--loop.batch-size", "0"], "--loop.batch-size: expected at least 1, found 0"),
        (["demo", "--out", "x", "--data", "STORE", "--data.crop", "17"], "crop: "),
        (
            ["demo", "--out", "x", "--data", "STORE", "--data.crop", "10"],
            "--data.crop: expected sides in multiples of 8",
        ),
        (
            ["ssn-cpu", "--dry-run", "--data", "STORE", "--data.crop", "16"],
            "--model: size: expected at least 32 pixels",
        ),
        (["demo", "--out", "x", "--data", "STORE", *TINY, "--model.preset", "huge"], "expected one of paper-128, "),
        (
            ["demo", "--out", "x", "--data", "STORE", "--engine.strategy", "magic"],
            "--engine: expected settings that fit",
        ),
        (["demo", "--out", "x", "--engine.accelerator", "gpu"], "--engine: expected settings that fit"),
    ],
)
def test_bad_input_is_one_sentence(store: Path, options, words: str, capsys, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", *(str(store) if option == "STORE" else option for option in options)]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not (tmp_path / "x").exists()


def test_a_run_that_did_not_finish_does_not_look_like_one_that_did(monkeypatch, capsys: pytest.CaptureFixture) -> None:
    def full(config, run):
        raise RunStopped("no room on the disk")

    for train, code in (
        (lambda config, run: "stopped by SIGINT", 130),
        (lambda config, run: "stopped by SIGTERM", 143),
        (full, 1),
    ):
        monkeypatch.setattr(session, "train", train)
        with pytest.raises(SystemExit) as left:
            main(["train", "demo", "--out", "x"])
        assert left.value.code == code
    assert capsys.readouterr().err == "berdiff train: no room on the disk\n"
