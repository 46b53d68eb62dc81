"""The four lines of README: the recipe `own` plans itself from the store, and its model is as good in use as it says."""

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
from berdiff.experiments.recipes import RECIPES
from berdiff.experiments.recipes.own import LEFT_OPEN
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


def four_lines(place: Path, *options: str) -> tuple[float, float, int]:
    """(Dice by `evaluate`, Dice by `segment`, number of test cases) of the commands of README in a folder with mine/.

    The new images are those of the test cases. As in an evaluation, a mask is what more than half of the samples mark,
    and the truth what more than half of the raters do.
    """
    store, run, evaluation = str(place / "mine.zarr"), str(place / "runs/mine"), place / "evals/mine"
    assert main(["data", "prepare", "folder", str(place / "mine"), store, "--patient", r"^(p\d+)"]) == 0
    assert main(["train", "own", "--data", store, "--out", run, *options]) == 0
    assert main(["evaluate", run, "--out", str(evaluation), "--device", "cpu"]) == 0
    cases = open_store(store).cases
    names = cases.case[cases.split == "test"]
    (place / "new-images").mkdir()
    for name in names:
        shutil.copy(place / f"mine/images/{name}.png", place / "new-images")
    results = place / "results"
    segment = ["segment", run, str(place / "new-images"), "--out", str(results), "--write", "samples"]
    assert main([*segment, "--device", "cpu"]) == 0
    dice = [_dice(place / "mine/masks", name, results / name / "samples") for name in names]
    metrics = json.loads((evaluation / "metrics.json").read_text())["metrics"]
    return metrics["dice_slice"]["value"], float(np.mean(dice)), len(names)


def _dice(masks: Path, name: str, samples: Path) -> float:
    files = (sorted(masks.glob(f"{name}_*.png")), sorted(samples.glob("*.png")))
    truth, mask = (np.mean([np.asarray(Image.open(file)) > 0 for file in of], 0) > 0.5 for of in files)
    return float(2 * (mask & truth).sum() / (mask.sum() + truth.sum())) if mask.any() or truth.any() else 1.0


@pytest.mark.parametrize(
    ("size", "seen", "steps"),
    [((32, 48), ((32, 48), False), 40), ((44, 44), ((40, 40), True), 40), ((80, 168), ((80, 80), True), 12)],
    ids=["whole", "no multiple of the stride", "large"],
)
def test_evaluate_and_segment_agree(tmp_path: Path, size, seen, steps: int) -> None:
    """To the bit here: a case and its file have one name, which seeds the noise."""
    write_folder(tmp_path / "mine", *spots(size))
    evaluated, segmented, count = four_lines(tmp_path, *SMALL, "--max-steps", str(steps))
    assert count >= 3
    assert segmented == pytest.approx(evaluated, abs=1e-6)
    for of in ("runs/mine", "runs/mine/model"):
        model = berdiff.load(tmp_path / of)
        assert (model.size, model.input_spec.patches) == seen
        assert model.crop is None


