"""BraTS: the three layouts give the same cases, the paper's rules do what they say, each defect is one sentence."""

import json

import nibabel
import numpy as np
import pytest

from berdiff.data.sources.brats import Options, intensity_limits, read, scaled
from berdiff.data.split import split_patients
from berdiff.errors import InputError

LPS = np.diag([-1.0, -1, 1, 1])
SHAPE = (6, 20, 24)  # (slice, row, column)
SMALL = {"bottom": 1, "top": 2, "size": (16, 16)}
PARTS = ("t1", "t1ce", "t2", "flair", "seg")


def scan(seed=0):
    """Four sequences and labels, upright; slice 4 and up have no tumour, sequences have ranges of their own."""
    rng = np.random.default_rng(seed)
    brain = np.zeros(SHAPE, bool)
    brain[:, 3:17, 4:20] = True
    made = {name: brain * rng.integers(100, 900 + 500 * i, SHAPE) for i, name in enumerate(PARTS[:4])}
    seg = np.zeros(SHAPE, np.uint8)
    seg[:4, 6:12, 8:16] = rng.choice([1, 2, 4], (4, 6, 8))
    return {**{name: volume.astype(np.int16) for name, volume in made.items()}, "seg": seg}


def save(path, stored, affine=LPS):
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(stored, affine), path)


def case_folder(root, name="BraTS2021_00001", seed=0, suffix=".nii.gz", skip=(), **replaced):
    for part, volume in {**scan(seed), **replaced}.items():
        if part not in skip:
            save(root / name / f"{name}_{part}{suffix}", volume.T)
    return root


def decathlon(root, name="BRATS_001", seed=0):
    parts = scan(seed)
    save(root / "imagesTr" / f"{name}.nii.gz", np.stack([parts[k].T for k in ("flair", "t1", "t1ce", "t2")], axis=-1))
    labels = np.zeros(SHAPE, np.uint8)
    for ours, theirs in ((2, 1), (1, 2), (4, 3)):  # edema, core, enhancing: by dataset.json of Task01_BrainTumour
        labels[parts["seg"] == ours] = theirs
    save(root / "labelsTr" / f"{name}.nii.gz", labels.T)
    (root / "labelsTr" / f"._{name}.nii.gz").write_bytes(b"mac")  # the published archive has such files
    (root / "imagesTr" / f"._{name}.nii.gz").write_bytes(b"mac")
    return root


def slices(root, name="brats_train_001", seed=0, folder="training", skip=(), numbers=range(SHAPE[0]), first=79):
    """Single slices by the number in the whole scan, the lowest being `first`."""
    for z in numbers:
        for part, volume in scan(seed).items():
            if part not in skip:
                target = root / folder / f"{name}-{z}" / f"{name}_{part}_{first + z:03d}_w.nii.gz"
                save(target, volume[z].astype(float), np.eye(4))
    return root


def cases(root, **options):
    return list(read(root, Options(**{**SMALL, **options})).cases)


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


def test_the_original_labels_as_targets(tmp_path):
    case_folder(tmp_path)
    reading = read(tmp_path, Options(**{**SMALL, "size": SHAPE[1:]}, targets="labels"))
    assert reading.targets == ("necrotic_core", "edema", "enhancing_tumour")
    for z, case in zip((1, 2, 3), reading.cases, strict=True):
        assert case.masks.shape == (1, 3, *SHAPE[1:])
        for mask, label in zip(case.masks[0], (1, 2, 4), strict=True):
            np.testing.assert_array_equal(mask, scan()["seg"][z] == label)


def test_all_layouts_and_namings_give_the_same(tmp_path):
    expected = cases(case_folder(tmp_path / "2021"), targets="labels")
    roots = {
        "2020": case_folder(tmp_path / "2020", "BraTS20_Training_001", suffix=".nii"),
        "deep": case_folder(tmp_path / "deep" / "HGG", "Brats18_2013_2_1").parent,
        "decathlon": decathlon(tmp_path / "decathlon"),
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


def test_channel_order_is_what_was_asked_for(tmp_path):
    whole = cases(decathlon(tmp_path))
    two = cases(tmp_path, sequences=("flair", "t1"))
    for a, b in zip(whole, two, strict=True):
        np.testing.assert_array_equal(a.image[[3, 0]], b.image)


def test_one_published_case_has_its_labels_under_another_name(tmp_path):
    case_folder(tmp_path, "BraTS20_Training_355", suffix=".nii", skip=("seg",))
    save(tmp_path / "BraTS20_Training_355" / "W39_1998.09.19_Segm.nii", scan()["seg"].T)
    assert len(cases(tmp_path)) == 3


def test_slices_that_come_normalised_stay_so(tmp_path):
    unit = {part: scan()[part] / 4000 for part in PARTS[:4]}
    for part, volume in {**unit, "seg": scan()["seg"]}.items():
        save(tmp_path / "000001" / f"b_{part}_090.nii.gz", volume[0].astype(float), np.eye(4))
    (case,) = cases(tmp_path, size=SHAPE[1:], bottom=80)
    np.testing.assert_allclose(case.image, [unit[part][0] for part in PARTS[:4]], atol=1e-6)


def test_background_stays_zero_and_tails_are_those_of_the_brain():
    voxels = np.zeros(10_000, np.float32)
    voxels[:1000] = np.arange(-500, 500) + 0.5
    low, high = intensity_limits(voxels, 1.0, "x")
    out = scaled(voxels, low, high)
    assert (out[1000:] == 0).all()
    assert (out[:1000] == 1).sum() == 10
    assert (out[:1000] == 0).sum() == 10


def test_slices_without_tumour(tmp_path):
    case_folder(tmp_path)
    kept = cases(tmp_path, bottom=0, top=0)
    assert [case.masks.any() for case in kept] == [True] * 4 + [False] * 2
    assert [case.name[-3:] for case in cases(tmp_path, bottom=0, top=0, keep_empty="none")] == [
        "000",
        "001",
        "002",
        "003",
    ]
    assert read(tmp_path, Options(**SMALL, keep_empty="none")).total is None
    with pytest.raises(InputError, match="--keep-empty train: expected a split to go by"):
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
    found = cases(tmp_path / "data", table=table)
    assert {(case.volume, case.patient, case.split) for case in found} == {
        ("B_0", "ann", "train"),
        ("B_1", "ann", "train"),
        ("B_2", "bob", "test"),
    }
    table.write_text("case,patient,split\nB_0,ann,train\nB_1,ann,test\nB_2,bob,test\n")
    with pytest.raises(InputError, match=r"cases\.csv, line 3: expected the patient 'ann' in one split"):
        read(tmp_path / "data", Options(**SMALL, table=table))


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
    with pytest.raises(
        InputError, match="expected the patient brats_train_001 in one split, found it in train and test"
    ):
        cases(tmp_path)


@pytest.mark.parametrize("part", PARTS)
def test_a_missing_file_is_told_before_the_work(tmp_path, part):
    case_folder(tmp_path, "B_1")
    case_folder(tmp_path, "B_2", skip=(part,))
    with pytest.raises(InputError, match=rf"B_2: expected a {part} file beside B_2_\w+\.nii\.gz, found only"):
        read(tmp_path, Options(**SMALL))


def test_a_sequence_that_is_not_wanted_may_be_missing(tmp_path):
    case_folder(tmp_path, skip=("t1ce",))
    assert len(cases(tmp_path, sequences=("t1", "flair"))) == 3


def test_a_missing_slice_file(tmp_path):
    slices(tmp_path)
    (tmp_path / "training" / "brats_train_001-2" / "brats_train_001_t2_081_w.nii.gz").unlink()
    with pytest.raises(InputError, match="brats_train_001-2: expected a t2 file beside"):
        read(tmp_path, Options(**SMALL))


@pytest.mark.parametrize("make", [case_folder, decathlon, slices])
def test_an_empty_folder(tmp_path, make):
    with pytest.raises(InputError, match=r"expected BraTS cases .* found none"):
        read(tmp_path, Options())
    with pytest.raises(InputError, match="found nothing"):
        read(tmp_path / "nowhere", Options())
    make(tmp_path)
    with pytest.raises(InputError, match="expected slices between the bottom 155 and the top 26, found none"):
        read(tmp_path, Options(bottom=155))


def test_no_images_for_the_decathlon(tmp_path):
    (tmp_path / "imagesTr").mkdir()
    with pytest.raises(InputError, match="imagesTr: expected 4D NIfTI files, found none"):
        read(tmp_path, Options())


def bad_labels(root):
    seg = scan()["seg"].copy()
    seg[0, 0, 0] = 3
    case_folder(root, seg=seg)


def bad_nan(root):
    t2 = scan()["t2"].astype(np.float32)
    t2[2, 5, 5] = np.nan
    case_folder(root, t2=t2)


def bad_shape(root):
    case_folder(root, flair=scan()["flair"][:, 1:])


def bad_zeros(root):
    case_folder(root, t1=np.zeros(SHAPE, np.int16))


def bad_constant(root):
    case_folder(root, t1=(scan()["t1"] > 0).astype(np.int16))


def bad_cut(root):
    case_folder(root)
    path = root / "BraTS2021_00001" / "BraTS2021_00001_t1.nii.gz"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def bad_foreign(root):
    case_folder(root)
    (root / "BraTS2021_00001" / "BraTS2021_00001_t1.nii.gz").write_text("not an image")


def bad_place(root):
    case_folder(root)
    affine = LPS.copy()
    affine[2, 3] = 30
    save(root / "BraTS2021_00001" / "BraTS2021_00001_t2.nii.gz", scan()["t2"].T, affine)


def bad_twice(root):
    case_folder(root / "HGG")
    case_folder(root / "LGG")


def bad_mixture(root):
    case_folder(root)
    slices(root)


def bad_slice_size(root):
    slices(root)
    save(root / "training/brats_train_001-3/brats_train_001_t1_082_w.nii.gz", np.ones((20, 23)), np.eye(4))


def bad_link(root):
    outside = root.parent / "outside"
    case_folder(outside, "B_9")
    case_folder(root, skip=("t1",))
    (root / "BraTS2021_00001" / "BraTS2021_00001_t1.nii.gz").symlink_to(outside / "B_9" / "B_9_t1.nii.gz")


def bad_linked_folder(root):
    case_folder(root)
    case_folder(root.parent / "outside", "B_9")
    (root / "more").symlink_to(root.parent / "outside")


def bad_no_labels(root):
    slices(root, folder="testing", skip=("seg",))


def bad_decathlon_labels(root):
    decathlon(root)
    save(root / "labelsTr" / "BRATS_001.nii.gz", np.full(SHAPE[::-1], 4, np.uint8))


def bad_decathlon_link(root):
    decathlon(root.parent / "outside")
    decathlon(root)
    labels = root / "labelsTr" / "BRATS_001.nii.gz"
    labels.unlink()
    labels.symlink_to(root.parent / "outside" / "labelsTr" / "BRATS_001.nii.gz")


def bad_decathlon_missing(root):
    decathlon(root)
    (root / "labelsTr" / "BRATS_001.nii.gz").unlink()


def bad_decathlon_channels(root):
    decathlon(root)
    save(root / "imagesTr" / "BRATS_001.nii.gz", np.ones((*SHAPE[::-1], 3), np.int16))


def bad_decathlon_shape(root):
    decathlon(root)
    save(root / "labelsTr" / "BRATS_001.nii.gz", np.zeros((24, 20, 5), np.uint8))


def bad_decathlon_order(root):
    decathlon(root)
    modality = {"0": "T1w", "1": "FLAIR", "2": "t1gd", "3": "T2w"}
    (root / "dataset.json").write_text(json.dumps({"modality": modality}))


def bad_decathlon_json(root):
    decathlon(root)
    (root / "dataset.json").write_text("[]")


BAD = [
    (bad_labels, r"_seg\.nii\.gz: expected the labels 0, 1, 2, 4, found 0, 1, 2, 3, 4"),
    (bad_nan, r"_t2\.nii\.gz: expected finite values, found NaN"),
    (bad_shape, r"_flair\.nii\.gz: expected 6x20x24 .* found 6x19x24"),
    (bad_zeros, "sequence t1: expected a brain, found only zeros"),
    (bad_constant, "sequence t1: expected intensities that differ, found 1"),
    (bad_cut, r"_t1\.nii\.gz: expected a whole NIfTI file"),
    (bad_foreign, r"_t1\.nii\.gz: expected a NIfTI file, found a damaged or foreign one"),
    (bad_place, r"_t2\.nii\.gz: expected the same place in space as .*_seg\.nii\.gz, found it up to 30 mm away"),
    (bad_twice, r"LGG.*: expected each case once, found it also as .*HGG"),
    (bad_mixture, "expected whole volumes or 2D slices, found both"),
    (bad_slice_size, r"_t1_082_w\.nii\.gz: expected 20x24 .* found 20x23"),
    (bad_link, r"_t1\.nii\.gz: expected a path inside .* found one that leads to .*outside"),
    (bad_linked_folder, "more: expected a path inside .* found one that leads to .*outside"),
    (bad_no_labels, "expected cases with seg files, found none that have one"),
    (bad_decathlon_labels, r"BRATS_001\.nii\.gz: expected the labels 0, 1, 2, 3, found 4"),
    (bad_decathlon_link, r"labelsTr/BRATS_001\.nii\.gz: expected a path inside .*data, found one that leads to"),
    (bad_decathlon_missing, r"BRATS_001\.nii\.gz: expected the labels of imagesTr/BRATS_001\.nii\.gz"),
    (bad_decathlon_channels, "expected the 4 channels FLAIR, T1w, T1gd, T2w, found 3"),
    (bad_decathlon_shape, "labelsTr.*: expected 6x20x24 .* found 5x20x24"),
    (bad_decathlon_order, r"dataset\.json: expected the modalities .* found"),
    (bad_decathlon_json, r"dataset\.json: expected JSON with the entry 'modality'"),
]


@pytest.mark.parametrize(("make", "sentence"), BAD, ids=[make.__name__ for make, _ in BAD])
def test_bad_input_is_one_sentence(tmp_path, make, sentence):
    make(tmp_path / "data")
    with pytest.raises(InputError, match=sentence) as error:
        cases(tmp_path / "data")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"sequences": ()}, "--sequences: expected one or more"),
        ({"sequences": ("t1", "t1")}, "--sequences: expected one or more different"),
        ({"bottom": -1}, "--bottom and --top: expected 0 or more, found -1 and 26"),
        ({"size": (0, 224)}, "--size: expected two positive numbers, found 0 224"),
        ({"tails": 50.0}, "--tails: expected a percentage from 0 to below 50, found 50"),
    ],
)
def test_bad_options(tmp_path, options, sentence):
    with pytest.raises(InputError, match=sentence):
        read(tmp_path, Options(**options))


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
