"""The four lines of README: the recipe `own` plans itself from the store; its model is as good in use as evaluated."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

import berdiff
from berdiff.cli.main import main
from berdiff.cli.train import parse
from berdiff.data.store import open_store
from berdiff.recipes import RECIPES
from berdiff.recipes.ours import LEFT_OPEN
from berdiff.training.config import load
from berdiff.training.session import planned

from .small import weight_files

RATERS = ("alice", "bob", "carol")
SMALL = ["--model.preset", "fast-tiny", "--engine.accelerator", "cpu", "--engine.devices", "1"]
SMALL += ["--validation.every", "0", "--optim.lr", "0.01", "--optim.ema-decay", "0.9"]


def write_folder(folder: Path, images: np.ndarray, masks: np.ndarray, raters=RATERS) -> None:
    """images (N, H, W) uint8 and masks (N, R, H, W) in the layout of README: one image per patient."""
    for part in ("images", "masks"):
        (folder / part).mkdir(parents=True)
    for number, (image, of_raters) in enumerate(zip(images, masks, strict=True)):
        case = f"p{number:02d}_a"
        Image.fromarray(image).save(folder / "images" / f"{case}.png")
        for rater, mask in zip(raters, of_raters, strict=True):
            Image.fromarray(mask * np.uint8(255)).save(folder / "masks" / f"{case}_{rater}.png")


def spots(size: tuple[int, int], count: int = 20, empty: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """A bright disc anywhere, at the edges too; each rater draws it larger than the one before, or with `empty` the
    last one nothing."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[: size[0], : size[1]]
    cy, cx = (rng.uniform(0, side, (count, 1, 1)) for side in size)
    distance = np.hypot(y - cy, x - cx)
    images = (60 + 120 * (distance < 9) + rng.normal(0, 5, distance.shape)).clip(0, 255).astype(np.uint8)
    masks = np.stack([distance < 8 + rater for rater in range(len(RATERS))], 1).astype(np.uint8)
    if empty:
        masks[:, -1] = 0
    return images, masks


def four_lines(place: Path, *options: str, samples: int = 16) -> tuple[float, float, int]:
    """(Dice by `evaluate`, Dice by `segment`, number of test cases) of the commands of README in a folder with mine/.

    The new images are those of the test cases. As in an evaluation, a mask is what more than half of the samples mark,
    and the truth what more than half of the raters do.
    """
    store, run, evaluation = str(place / "mine.zarr"), str(place / "runs/mine"), place / "evals/mine"
    assert main(["data", "prepare", "folder", str(place / "mine"), store, "--patient", r"^(p\d+)"]) == 0
    assert main(["train", "own", "--data", store, "--out", run, *options]) == 0
    use = ["--samples", str(samples), "--device", "cpu"]
    assert main(["evaluate", run, "--out", str(evaluation), *use]) == 0
    cases = open_store(store).cases
    names = cases.case[cases.split == "test"]
    (place / "new-images").mkdir()
    for name in names:
        shutil.copy(place / f"mine/images/{name}.png", place / "new-images")
    results = place / "results"
    assert main(["segment", run, str(place / "new-images"), "--out", str(results), "--write", "samples", *use]) == 0
    dice = [_dice(place / "mine/masks", name, results / name / "samples") for name in names]
    metrics = json.loads((evaluation / "metrics.json").read_text())["metrics"]
    return metrics["dice_slice"]["value"], float(np.mean(dice)), len(names)


def _dice(masks: Path, name: str, samples: Path) -> float:
    files = (sorted(masks.glob(f"{name}_*.png")), sorted(samples.glob("*.png")))
    truth, mask = (np.mean([np.asarray(Image.open(file)) > 0 for file in of], 0) > 0.5 for of in files)
    return float(2 * (mask & truth).sum() / (mask.sum() + truth.sum())) if mask.any() or truth.any() else 1.0


@pytest.mark.parametrize(
    ("size", "seen", "steps"),
    [((32, 48), ((32, 48), False), 40), ((44, 44), ((40, 40), True), 40), ((80, 168), ((80, 80), True), 60)],
    ids=["whole", "no multiple of the stride", "large"],
)
def test_evaluate_and_segment_agree(tmp_path: Path, size, seen, steps: int) -> None:
    """To the bit here: a case and its file have one name, which seeds the noise."""
    write_folder(tmp_path / "mine", *spots(size))
    evaluated, segmented, count = four_lines(tmp_path, *SMALL, "--max-steps", str(steps), samples=4)
    assert count >= 3
    assert evaluated > 0.05  # else nothing is compared
    assert segmented == pytest.approx(evaluated, abs=1e-6)
    for of in ("runs/mine", "runs/mine/model"):
        model = berdiff.load(tmp_path / of)
        assert (model.size, model.input_spec.patches) == seen
        assert model.crop is None


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Discs anywhere in 48x48, so also at the edges; one of three raters marks nothing."""
    place = tmp_path_factory.mktemp("own")
    write_folder(place / "mine", *spots((48, 48), empty=True))
    assert main(["data", "prepare", "folder", str(place / "mine"), str(place / "mine.zarr")]) == 0
    return place / "mine.zarr"


def test_the_plan_is_printed_with_its_reasons_and_kept_in_the_run(store: Path, tmp_path: Path, capsys) -> None:
    run = tmp_path / "run"
    command = ["train", "own", "--data", str(store), "--out", str(run), *SMALL, "--max-steps", "2"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    config = load(run / "config.json")
    assert config.left_open == ()
    assert (config.data.patch, config.data.crop, config.loop.batch_size) == (None, None, 16)
    assert (config.model.masks_per_image, config.model.hurdle) == (3, 0.05)
    for text in (shown, (run / "log.txt").read_text()):
        assert re.search(r"--model\.hurdle +0\.05 +33\.3 %", text)
        assert re.search(r"--loop\.batch-size +16 +\S", text)
        assert "--model.preset" not in text  # it was given


def test_a_resumed_run_keeps_its_plan_and_is_the_same_to_the_bit(store: Path, tmp_path: Path, monkeypatch, capsys):
    """Also where the plan would be another now."""

    def train(run: str, steps: int) -> int:
        here = ["--data", str(store), "--out", str(tmp_path / run), "--max-steps", str(steps)]
        return main(["train", "own", *here, *SMALL, "--optim.warmup-steps", "2"])

    assert train("whole", 4) == train("killed", 2) == 0
    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr("berdiff.training.plan.STEP_PIXELS", 2**10)
        patch.setattr("berdiff.training.session.facts_of", lambda *_: pytest.fail("it was planned again"))
        assert train("killed", 4) == 0
    shown = capsys.readouterr().out
    assert "resuming after step 2" in shown
    assert "planned from" not in shown
    whole, killed = (weight_files(tmp_path / run) for run in ("whole", "killed"))
    of_last = [name for name in whole if "step-00000004" in name or name.startswith("model")]
    assert len(of_last) > 3
    assert {name: whole[name] for name in of_last} == {name: killed[name] for name in of_last}
    assert main(["train", "own", "--data", str(store), "--out", str(tmp_path / "whole"), "--loop.batch-size", "2"]) == 2
    assert "--loop.batch-size: 16 -> 2" in capsys.readouterr().err


def test_a_flag_wins_over_the_plan_whatever_its_value() -> None:
    config = parse(["own", "--loop.batch_size", "8", "--model.hurdle=0", "--data.patch", "None"]).config
    assert set(LEFT_OPEN) - set(config.left_open) == {"loop.batch_size", "model.hurdle", "data.patch"}
    assert set(RECIPES["own"].config.left_open) == set(LEFT_OPEN)


def test_train_says_what_share_of_the_marked_pixels_a_crop_loses(store: Path, tmp_path: Path, capsys) -> None:
    opened = open_store(store)
    masks = opened.read(opened.indices("train"))[1]
    lost = 100 * (1 - masks[..., 16:32, 16:32].sum() / masks.sum())
    assert lost > 50
    small = ["--data", str(store), *SMALL, "--loop.batch-size", "2", "--max-steps", "1"]
    assert main(["train", "lidc-cpu", "--data.crop", "16", "--out", str(tmp_path / "crop"), *small]) == 0
    said = capsys.readouterr().out
    assert f"{lost:.1f} % of the marked pixels" in said
    assert "16x16" in said
    assert f"{len(masks)} cases" in said


@pytest.mark.parametrize("crop", [48, None])
def test_nothing_is_said_where_nothing_is_lost(store: Path, crop: int | None) -> None:
    config = RECIPES["lidc-cpu"].config
    config = replace(config, data=replace(config.data, store=str(store), crop=crop))
    assert planned(config, None) == (config, [])


CPU_MINUTES = 3  # of training on the cells


@pytest.mark.slow
def test_the_four_lines_on_cells_that_five_people_outlined(shared_data: Path, tmp_path: Path) -> None:
    """82 images of 128x128. With the centre 64x64 it was .799 by `evaluate` and .597 by `segment`."""
    write_cells(shared_data / "multirater/bubil_d1_d3_128.h5", tmp_path / "mine")
    evaluated, segmented, count = four_lines(tmp_path, "--max-cpu-minutes", str(CPU_MINUTES), "--engine.devices", "1")
    assert count == 16
    assert segmented == pytest.approx(evaluated, abs=0.01)
    assert evaluated > 0.6


def write_cells(file: Path, folder: Path) -> None:
    """Each person's outlines by one of the two programs, `PersonK_ImageJ`."""
    with h5py.File(file) as cells:
        names = cells["raters"][0].decode().split(",")
        chosen = [i for i, name in enumerate(names) if name.endswith("_ImageJ")]
        images, masks = cells["images"][:], np.moveaxis(cells["labels"][:][..., chosen], -1, 1)
    write_folder(folder, images, (masks > 0).astype(np.uint8), [names[i].partition("_")[0] for i in chosen])
