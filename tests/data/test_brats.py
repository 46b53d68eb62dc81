"""BraTS: the three layouts give the same cases, the paper's rules do what they say, each defect is one sentence."""

import nibabel
import numpy as np
import pytest
import torch
from brats_writer import PARTS, SHAPE, SMALL, case_folder, cases, decathlon, new_case_folder, save, scan, slices

from berdiff.data.input_spec import Intensity
from berdiff.data.intensity import to_unit
from berdiff.data.sources.brats import Options, read
from berdiff.data.sources.brats_layouts import NEW_NOTE
from berdiff.data.split import split_patients
from berdiff.errors import InputError
from berdiff.networks.build import make_network
from berdiff.recipes import RECIPES
from refusals import refused


def test_the_rules_by_hand(tmp_path):
    case_folder(tmp_path)
    reading = read(tmp_path, Options(bottom=1, top=2, size=(14, 16), fit="crop", tails=2.0))
    assert (reading.channels, reading.targets) == (("t1", "t1ce", "t2", "flair"), ("whole_tumour",))
    assert (reading.size, reading.dtype, reading.raters, reading.total) == ((14, 16), "float32", 1, 3)
    found = list(reading.cases)
    assert [case.name for case in found] == [f"BraTS2021_00001_{z:03d}" for z in (1, 2, 3)]
    parts = scan()
    for z, case in zip((1, 2, 3), found, strict=True):
        assert (case.patient, case.volume, case.source) == ("BraTS2021_00001",) * 3
        assert case.image.dtype == np.float32
        assert case.spacing == (1.0, 1.0)
        for channel, name in zip(case.image, reading.channels, strict=True):
            brain = np.sort(parts[name][parts[name] > 0])
            low, high = np.percentile(brain, 2), np.percentile(brain, 98)
            by_hand = (np.clip(parts[name][z], low, high) - low) / (high - low)
            np.testing.assert_allclose(channel, by_hand[3:-3, 4:-4], atol=1e-6)
        np.testing.assert_array_equal(case.masks[0, 0], parts["seg"][z, 3:-3, 4:-4] > 0)


def test_the_papers_values_are_the_defaults():
    paper = Options()
    assert (paper.bottom, paper.top, paper.size, paper.fit, paper.targets) == (80, 26, (224, 224), "resize", "whole")
    assert 155 - paper.bottom - paper.top == 49
    splits = list(split_patients(map(str, range(1251)), seed=0, val=0.0, test=0.1).values())
    assert 49 * splits.count("train") == 55_174
    assert splits.count("test") == 125
    config = RECIPES["brats-paper"].config
    assert (config.data.crop, config.data.patch) == (None, None)
    with torch.device("meta"):  # without weights in memory
        network = make_network(config.model.preset, 4, 1)
    assert 224 % network.stride == 0
    assert sum(weight.numel() for weight in network.parameters()) > 50_000_000


@pytest.mark.parametrize("targets", ["whole", "regions", "labels"])
def test_targets_are_unions_of_the_original_labels(tmp_path, targets):
    case_folder(tmp_path)
    reading = read(tmp_path, Options(**{**SMALL, "size": SHAPE[1:]}, targets=targets))
    codes = {"whole_tumour": (1, 2, 4), "tumour_core": (1, 4), "enhancing_tumour": (4,), "necrotic_core": (1,)}
    codes |= {"edema": (2,)}
    assert reading.kind == {"whole": "independent", "regions": "nested", "labels": "exclusive"}[targets]
    assert len(reading.targets) == (1 if targets == "whole" else 3)
    for z, case in zip((1, 2, 3), reading.cases, strict=True):
        expected = [np.isin(scan()["seg"][z], codes[target]) for target in reading.targets]
        np.testing.assert_array_equal(case.masks[0], expected)


def test_all_layouts_and_namings_give_the_same(tmp_path):
    expected = cases(case_folder(tmp_path / "2021"), targets="labels")
    roots = {
        "2020": case_folder(tmp_path / "2020", "BraTS20_Training_001", suffix=".nii"),
        "deep": case_folder(tmp_path / "deep" / "HGG", "Brats18_2013_2_1").parent,
        "decathlon": decathlon(tmp_path / "decathlon"),
        "2023": new_case_folder(tmp_path / "2023"),
        "2023 with 4": new_case_folder(tmp_path / "2023-4", enhancing=4),
    }
    for root in roots.values():
        found = cases(root, targets="labels")
        assert len(found) == len(expected) == 3
        for a, b in zip(expected, found, strict=True):
            np.testing.assert_array_equal(a.image, b.image)
            np.testing.assert_array_equal(a.masks, b.masks)
    # single slices are numbered by the scan they came from: 79 is dropped at the bottom, none of these at the top
    found = cases(slices(tmp_path / "slices"), targets="labels", bottom=80, top=26)
    assert [case.name[-3:] for case in found] == ["080", "081", "082", "083", "084"]
    for a, b in zip(expected, found, strict=False):
        np.testing.assert_allclose(a.image, b.image, atol=1e-6)
        np.testing.assert_array_equal(a.masks, b.masks)
    assert {case.patient for case in found} == {"brats_train_001"}
    assert len(cases(tmp_path / "slices", bottom=80, top=155 - 82)) == 2


def test_the_new_code_of_enhancing_tumour_is_told(tmp_path):
    """The first scan has none of it, in either code."""
    early = {"seg": np.minimum(scan()["seg"], 2)}
    case_folder(tmp_path, "B_0", **early)
    case_folder(tmp_path, "B_1", seed=1, seg=np.where(scan(1)["seg"] == 4, 3, scan(1)["seg"]).astype(np.uint8))
    reading = read(tmp_path, Options(**{**SMALL, "size": SHAPE[1:]}, targets="labels"))
    assert NEW_NOTE in reading.notes
    assert NEW_NOTE not in read(case_folder(tmp_path / "old"), Options(**SMALL)).notes
    masks = np.stack([case.masks[0, 2] for case in reading.cases])
    np.testing.assert_array_equal(masks[:3], 0)
    np.testing.assert_array_equal(masks[3:], scan(1)["seg"][1:4] == 4)
    for z, part in ((80, 3), (81, 4)):
        save(tmp_path / "slices" / f"b_seg_{z:03d}.nii.gz", np.full((8, 8), part, float), np.eye(4))
        for sequence in PARTS[:4]:
            save(tmp_path / "slices" / f"b_{sequence}_{z:03d}.nii.gz", np.eye(8), np.eye(4))
    with pytest.raises(
        InputError, match=r"b_seg_081.*: expected the labels 0, 1, 2, 3 like other cases .* found 4 too"
    ):
        cases(tmp_path / "slices", bottom=80)


def test_time_points_of_a_patient_stay_together(tmp_path):
    for name in ("BraTS-GLI-00006-000", "BraTS-GLI-00006-001", "BraTS-GLI-00007-000"):
        new_case_folder(tmp_path, name)
    found = {case.volume: case.patient for case in cases(tmp_path)}
    assert found == {
        "BraTS-GLI-00006-000": "BraTS-GLI-00006",
        "BraTS-GLI-00006-001": "BraTS-GLI-00006",
        "BraTS-GLI-00007-000": "BraTS-GLI-00007",
    }


def test_channel_order_is_what_was_asked_for(tmp_path):
    whole = cases(decathlon(tmp_path))
    two = cases(tmp_path, sequences=("flair", "t1"))
    for a, b in zip(whole, two, strict=True):
        np.testing.assert_array_equal(a.image[[3, 0]], b.image)


def test_one_published_case_has_its_labels_under_another_name(tmp_path):
    case_folder(tmp_path, "BraTS20_Training_355", suffix=".nii", skip=("seg",))
    save(tmp_path / "BraTS20_Training_355" / "W39_1998.09.19_Segm.nii", scan()["seg"].T)
    assert len(cases(tmp_path)) == 3


def test_background_stays_zero_and_tails_are_those_of_the_brain():
    voxels = np.zeros(10_000, np.float32)
    voxels[:1000] = np.arange(-500, 500) + 0.5
    out = to_unit(voxels.reshape(1, 1, 100, 100), Intensity("brain"), "x", planar=False).ravel()
    assert (out[1000:] == 0).all()
    assert (out[:1000] == 1).sum() == 10
    assert (out[:1000] == 0).sum() == 10


def test_slices_without_tumour(tmp_path):
    case_folder(tmp_path)
    kept = cases(tmp_path, bottom=0, top=0)
    assert [case.masks.any() for case in kept] == [True] * 4 + [False] * 2
    marked = [case.name[-3:] for case in cases(tmp_path, bottom=0, top=0, keep_empty="none")]
    assert marked == ["000", "001", "002", "003"]
    assert read(tmp_path, Options(**SMALL, keep_empty="none")).total is None
    with refused("--keep-empty train", code="conflict"):
        cases(tmp_path, keep_empty="train")


def test_the_papers_split_keeps_empty_slices_for_training_only(tmp_path):
    for i in range(10):
        case_folder(tmp_path, f"BraTS2021_{i:05d}", seed=i)
    found = cases(tmp_path, bottom=0, top=0, split="paper", keep_empty="train")
    test = [case for case in found if case.split == "test"]
    assert len({case.patient for case in test}) == 1
    assert len(test) == 4
    assert len(found) == 4 + 9 * 6
    assert {case.split for case in found} == {"train", "test"}


def test_a_table_brings_patients_and_splits(tmp_path):
    for i in range(3):
        case_folder(tmp_path / "data", f"B_{i}", seed=i)
    table = tmp_path / "cases.csv"
    table.write_text("case,patient,split\nB_0,ann,train\nB_1,ann,train\nB_2,bob,test\n")
    found = {(case.volume, case.patient, case.split) for case in cases(tmp_path / "data", table=table)}
    assert found == {("B_0", "ann", "train"), ("B_1", "ann", "train"), ("B_2", "bob", "test")}


def test_a_split_by_folders_is_kept_and_an_unlabelled_testing_folder_is_told(tmp_path):
    slices(tmp_path / "a")
    slices(tmp_path / "a", "brats_train_002", seed=1, folder="testing")
    found = cases(tmp_path / "a", bottom=0)
    assert {(case.patient, case.split) for case in found} == {("brats_train_001", "train"), ("brats_train_002", "test")}

    slices(tmp_path / "b")
    slices(tmp_path / "b", "brats_train_002", seed=1, folder="testing", skip=("seg",))
    reading = read(tmp_path / "b", Options(**SMALL))
    assert "testing/ has no seg files: 6 slices or cases left out" in reading.notes
    assert {(case.patient, case.split) for case in reading.cases} == {("brats_train_001", "")}


def test_a_patient_in_two_splits_is_refused(tmp_path):
    slices(tmp_path, numbers=range(3))
    slices(tmp_path, numbers=range(3, 6), folder="testing")
    with refused("brats_train_001", code="conflict"):
        cases(tmp_path)


def test_a_real_case(shared_data):
    reading = read(shared_data / "brats", Options(fit="crop", targets="labels"))
    found = list(reading.cases)
    assert reading.total == len(found) == 49
    seg = np.asarray(nibabel.load(next((shared_data / "brats").rglob("*_seg.nii.gz"))).dataobj)
    kept = seg[8:-8, 8:-8, 80:129]  # stored as left, back, up: the transpose is upright
    for i, label in enumerate((1, 2, 4)):
        expected = (kept == label).T
        np.testing.assert_array_equal(np.stack([case.masks[0, i] for case in found]), expected)
    image = np.stack([case.image for case in found])
    assert image.shape == (49, 4, 224, 224)
    assert (image.min(), image.max()) == (0, 1)
    flair = np.asarray(nibabel.load(next((shared_data / "brats").rglob("*_flair.nii.gz"))).dataobj)[8:-8, 8:-8, 80:129]
    assert np.corrcoef(image[:, 3].ravel(), flair.T.ravel())[0, 1] > 0.98
    assert found[0].name == "BraTS2021_00006_080"


def test_real_slices(shared_data):
    reading = read(shared_data / "layouts" / "brats_2d_slices", Options())
    found = list(reading.cases)
    assert [case.name for case in found] == [f"brats_train_001_{n:03d}" for n in range(80, 86)]
    assert reading.notes[0] == "testing/ has no seg files: 2 slices or cases left out"
    assert all(case.masks.any() and 0 <= case.image.min() < case.image.max() <= 1 for case in found)
