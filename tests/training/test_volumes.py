"""Stores of volumes: written, read, cut into patches, trained on, evaluated. The spheres are 16x16x16."""

from dataclasses import dataclass, replace
from typing import ClassVar

import nibabel as nib
import numpy as np
import pytest
import torch
import zarr
from scipy.spatial.transform import Rotation

from berdiff import metrics
from berdiff.cli.main import main
from berdiff.data.augment import augmented, crop, empty_window, random_patch, resized, zoomed
from berdiff.data.batches import Batches
from berdiff.data.case import Case, Reading
from berdiff.data.dataset import CaseDataset
from berdiff.data.input_spec import Intensity
from berdiff.data.prepare import prepare
from berdiff.data.sources import SOURCES
from berdiff.data.store import Store
from berdiff.data.verify import verify
from berdiff.diffusion.sampler import Sampler
from berdiff.errors import InputError
from berdiff.evaluation.evaluate import evaluate
from berdiff.evaluation.evaluation_folder import read_samples
from berdiff.evaluation.settings import EvaluationSettings
from berdiff.inference.model import load
from berdiff.inference.settings import SegmentSettings
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.config import METHODS
from berdiff.training.estimate import estimate
from berdiff.training.plan import Facts, plan
from berdiff.training.session import train
from fakes import StandIn, StandInSegmenter
from refusals import refused

from .small import small_config, train_until_killed, weight_files

SIZE = (16, 16, 16)
SPACING = (2.5, 0.7, 0.8)
METHODS.ours["everywhere"] = f"{__name__}:Everywhere"


@dataclass(frozen=True)
class Options:
    count: int = 12


@dataclass(frozen=True)
class Everywhere(StandIn):
    """The stand-in, which has no border to join at: a convolution sees a larger image as it sees a patch."""

    method: ClassVar[str] = "everywhere"

    def build(self, spec):
        return EverywhereSegmenter(self, spec)


class EverywhereSegmenter(StandInSegmenter):
    def tiled(self, size, overlap):
        return self


def read(path, options: Options) -> Reading:
    def cases():
        rng = np.random.default_rng(0)
        z, y, x = np.mgrid[:16, :16, :16]
        for i in range(options.count):
            centre, radius = rng.uniform(5, 11, 3), rng.uniform(2, 5, 3)[: 2 + i % 2]
            distance = np.sqrt((z - centre[0]) ** 2 + (y - centre[1]) ** 2 + (x - centre[2]) ** 2)
            masks = (distance < radius.reshape(-1, 1, 1, 1)).astype(np.uint8)[:, None]
            image = (rng.integers(0, 80, SIZE) + 150 * masks.max((0, 1))).astype(np.uint8)[None]
            split = ("train", "train", "val", "test")[i % 4]
            yield Case(f"case {i}", f"p{i}", image, masks, spacing=SPACING, split=split)

    about = {"channels": ("ct",), "targets": ("sphere",), "intensity": Intensity("dtype"), "dtype": "uint8"}
    about["spacing"] = SPACING
    return Reading(**about, raters=3, size=SIZE, total=options.count, cases=cases())  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    out = tmp_path_factory.mktemp("volumes") / "s.zarr"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SOURCES.ours, "spheres", __name__)  # this module is the source
        prepare("spheres", None, out)
    return out


@pytest.fixture
def store(address):
    return Store.open(address)


OPEN = ("data.patch", "loop.batch_size")


def config_of(address, **data):
    config = small_config(address, Everywhere(), batch_size=2, max_steps=5, checkpoint_every=2, log_every=1)
    validation = replace(config.validation, every=4, cases=2, samples=2, sheet_cases=1)
    return replace(config, data=replace(config.data, **data), validation=validation)


def test_what_is_written_is_read_and_verified(address, store):
    assert verify(address) == []
    assert (len(store), store.size, store.cases.spacing.tolist()) == (12, SIZE, [list(SPACING)] * 12)
    expected = list(read(None, Options()).cases)
    images, masks = store.read_stored([3, 8])
    for image, mask, case in zip(images, masks, (expected[3], expected[8]), strict=True):
        np.testing.assert_array_equal(image, case.image)
        np.testing.assert_array_equal(mask[: len(case.masks)], case.masks)
        assert not mask[len(case.masks) :].any()
    np.testing.assert_array_equal(zarr.open_array(str(address / "masks"))[3], masks[0])


def test_patches_lie_where_raters_marked_in_as_many_as_asked(store):
    """Every patch is a window of its case; about 2/3 are around a marked voxel, and then it is inside."""
    whole = CaseDataset(store, "train", "all")
    dataset, size = CaseDataset(store, "train", "all", patch=(4, 8, 6), foreground=1.0), (4, 8, 6)
    draws = [(epoch, item) for epoch in range(5) for item in range(len(dataset))]
    images, masks = dataset.batch(draws)
    assert images.shape == (len(draws), 1, *size)
    assert masks.flatten(1).any(1).all()
    for (_, item), image in zip(draws, images, strict=True):
        windows = np.lib.stride_tricks.sliding_window_view(whole[(0, item)][0][0].numpy(), size)
        assert (windows == image[0].numpy()).all((3, 4, 5)).any()
    rng, mask = np.random.default_rng(0), np.zeros((1, 1, 9, 30, 30), np.uint8)
    mask[..., 4, 15, 15] = 1
    inside = [mask[..., *random_patch(mask, (3, 5, 5), rng, 2 / 3)].any() for _ in range(900)]
    assert abs(np.mean(inside) - 2 / 3) < 0.08
    with pytest.raises(InputError, match="patch: expected one side or 3"):
        CaseDataset(store, "train", patch=(4, 4))


def test_augmentations_move_image_and_masks_together(store):
    image, masks = store.read([0])[0][0], store.read([0])[1][0][:2]
    both = image.copy()
    both[0] = masks[0, 0]
    for seed in range(20):
        moved, moved_masks = augmented(both, masks, SIZE, np.random.default_rng(seed), 2)
        np.testing.assert_array_equal(moved[0] > 0.5, moved_masks[0, 0] > 0)  # gain and offset aside
        larger, larger_masks = zoomed(both, masks, 1.3, np.random.default_rng(seed))
        assert larger.shape == both.shape
        np.testing.assert_array_equal(larger[0] > 0.5, larger_masks[0, 0] > 0)
    window = empty_window(masks, (5, 6, 7), np.random.default_rng(0))
    assert window is not None
    assert masks[..., *window].shape[2:] == (5, 6, 7)
    assert not masks[..., *window].any()
    assert empty_window(masks, SIZE, np.random.default_rng(0)) is None


def test_resizing_and_cropping_are_of_each_axis_by_itself():
    ramp = np.arange(8.0).reshape(8, 1, 1) + 10 * np.arange(6.0).reshape(6, 1) + 100 * np.arange(4.0)
    for axes in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
        size = tuple((16, 3, 4)[axis] for axis in axes)
        turned = resized(ramp.transpose(axes)[None], size)[0]
        np.testing.assert_allclose(turned, resized(ramp[None], (16, 3, 4))[0].transpose(axes), atol=1e-4)
    assert crop(ramp, (4, 2, 2)).tolist() == ramp[2:6, 2:4, 1:3].tolist()
    np.testing.assert_array_equal(crop(ramp, (10, 6, 4)), np.pad(ramp, [(1, 1), (0, 0), (0, 0)], "edge"))


@pytest.mark.parametrize("cut", [{"patch": (8, 8, 8)}, {"crop": (16, 16, 16)}], ids=["patches", "whole"])
def test_a_network_of_volumes_learns_resumes_is_evaluated_and_segments_a_scan(address, store, tmp_path, cut):
    """BerDiff's own network in 3D, from a store to masks on the grid of an oblique NIfTI file."""
    model = BerDiff("fast-tiny", T=20, sampler=Sampler(steps=2))
    config = replace(config_of(address, **cut), model=model)
    train(config, tmp_path / "whole")
    train_until_killed(config, tmp_path / "run", 4)
    train(config, tmp_path / "run")
    assert weight_files(tmp_path / "run") == weight_files(tmp_path / "whole")

    opened = load(tmp_path / "run", "cpu")
    asked = EvaluationSettings(samples=2, batch_size=2, device="cpu", save_samples=True)
    figures = evaluate(opened, store, tmp_path / "e", asked)["metrics"]
    assert all(np.isfinite(figures[name]["value"]) for name in ("ged_2", "hm_iou_2", "dice_volume"))
    chosen = store.indices("test")
    kept, settings = read_samples(tmp_path / "e"), SegmentSettings(2, batch_size=1)
    for result in opened.case_results(store, chosen, settings):
        np.testing.assert_array_equal(result.pool, kept[result.name].numpy(), "the masks of the evaluation")

    # twice as fine in two axes, a little larger, turned and oblique: it is resampled to the model's spacing
    turn = np.eye(4)
    turn[:3, :3] = Rotation.from_euler("xyz", [8, -5, 12], degrees=True).as_matrix() @ np.diag([0.4, -0.35, 2.5])
    turn[:3, 3] = 10, -20, 300
    values = np.random.default_rng(0).integers(0, 200, (40, 44, 18), dtype=np.uint8)
    path = tmp_path / "scan.nii.gz"
    nib.save(nib.Nifti1Image(values, turn), path)
    result = opened.segment(path, 2, seed=3)
    assert result.pool.shape == (2, 1, 18, 44, 40)
    assert result.pool.any()
    part = opened.segment(path, 2, seed=3, center=(9, 20, 20), extent=0)
    assert part.pool.shape[2:] == tuple(opened.segment(path, 2, box=(9, 20, 20, 10, 21, 21)).pool.shape[2:])
    assert part.pool.shape[2] == opened.size[0], "as deep as the network"

    main(["segment", str(tmp_path / "run"), str(path), "--out", str(tmp_path / "out"), "--samples", "2", "--seed", "3"])
    written = nib.load(next((tmp_path / "out").rglob("samples.nii.gz")))
    np.testing.assert_allclose(written.affine, turn, atol=1e-4)
    assert written.shape == (*values.shape, 2)
    stored = np.stack([result.grid.to_stored(mask) for mask in result.pool[:, 0]], -1)
    np.testing.assert_array_equal(np.asarray(written.dataobj), stored)

    with refused("image", code="shape"):
        opened.segment(np.zeros((32, 32)), 1)
    with refused("image", code="shape"):
        opened.segment(np.zeros((4, 32, 32)), 1, spacing_mm=SPACING)
    assert opened.segment(np.zeros((4, 32, 32)), 1, spacing_mm=SPACING, pad=True).pool.shape[2:] == (4, 32, 32)


def test_volumes_are_evaluated_as_a_whole(address, store, tmp_path):
    train(config_of(address, crop=(16, 16, 16)), tmp_path / "run")
    model = load(tmp_path / "run", "cpu")
    settings = EvaluationSettings(samples=3, batch_size=2, device="cpu", save_samples=True)
    result = evaluate(model, store, tmp_path / "e", settings)
    chosen = store.indices("test")
    masks, raters = torch.from_numpy(store.read_masks(chosen)), torch.from_numpy(store.cases.raters[chosen])
    kept = read_samples(tmp_path / "e")
    samples = torch.stack([kept[name] for name in store.cases.case[chosen]])
    assert samples.shape == (3, 3, 1, *SIZE)
    expected = {"ged_3": metrics.ged, "hm_iou_3": metrics.hm_iou, "dice_volume": metrics.dice}
    for name, metric in expected.items():
        assert result["metrics"][name]["value"] == pytest.approx(float(metric(samples, masks, raters).mean()))
    assert result.get("size_spread") is not None
    assert result["data"]["size"] == list(SIZE)
    assert evaluate(model, store, tmp_path / "e", settings) == result
    centre = replace(settings, crop=(8, 12, 12), save_samples=False)
    assert evaluate(model, store, tmp_path / "centre", centre)["settings"]["crop"] == [8, 12, 12]


def test_what_it_needs_is_estimated_and_planned(address, store):
    config = config_of(address, patch=8)
    assert estimate(config)["seconds_per_step"] > 0
    batch = Batches(CaseDataset(store, "train", patch=8), 2).make(0)[0]
    assert batch.image.shape == (2, 1, 8, 8, 8)
    about = {"cases": 20, "raters": 1, "targets": 1, "kind": "independent", "empty": 0, "looked_at": 20}
    large = Facts((40, 512, 512), stride=8, **about, cores=2, gpu=False)
    choices = {c.setting: c.value for c in plan(replace(config_of(address), left_open=OPEN), large)}
    assert choices == {"data.patch": (40, 64, 64), "loop.batch_size": 2}
