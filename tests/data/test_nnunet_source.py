"""nnU-Net's raw data: dataset.json decides channels, targets and kind; each defect is one sentence."""

import json

import nibabel
import numpy as np
from folder_writer import H, W, picture, save
from layouts import refused

from berdiff.data.input_spec import Intensity
from berdiff.data.prepare import prepare
from berdiff.data.sources.folder import OWN_PATIENT
from berdiff.data.sources.nnunet import Options, read
from berdiff.data.store import Store
from berdiff.data.verify import verify

LABELS = {"background": 0, "edema": 1, "core": 2, "enhancing": 3}
Z = 3


def volume(seed):
    return np.random.default_rng(seed).integers(0, 900, (Z, H, W)).astype(np.int16)


def label_map(seed, shape=(Z, H, W)):
    return np.random.default_rng(100 + seed).choice(np.array([0, 1, 2, 3], np.uint8), shape)


def describe(root, **changes):
    """dataset.json; `changes` replace an entry, None leaves it out."""
    about = {"channel_names": {"0": "FLAIR", "1": "T1"}, "labels": LABELS, "numTraining": 2, "file_ending": ".nii.gz"}
    about = {key: value for key, value in (about | changes).items() if value is not None}
    (root / "dataset.json").write_text(json.dumps(about))
    return root


def write(root, test_cases=0, **changes):
    """Two volumes of two channels."""
    for i in range(2):
        for channel in range(2):
            save(root / "imagesTr" / f"la_{i:03d}_{channel:04d}.nii.gz", volume(10 * i + channel))
        save(root / "labelsTr" / f"la_{i:03d}.nii.gz", label_map(i))
    for i in range(test_cases):
        save(root / "imagesTs" / f"la_{90 + i:03d}_0000.nii.gz", volume(i))
    return describe(root, **changes)


def write_pictures(root, labels, colour=False, **changes):
    for i in range(2):
        save(root / "imagesTr" / f"road-{i}_0000.png", picture(i, (H, W, 3) if colour else (H, W)))
        save(root / "labelsTr" / f"road-{i}.png", label_map(i, (H, W)))
    names = {"0": "R", "1": "G", "2": "B"} if colour else {"0": "microscope"}
    return describe(root, labels=labels, channel_names=names, file_ending=".png", **changes)


def test_volumes_become_slices(tmp_path):
    prepare("nnunet", write(tmp_path / "a", test_cases=3), tmp_path / "s", Options(window=(0.0, 1000.0)))
    assert verify(tmp_path / "s") == []
    store = Store.open(tmp_path / "s")
    assert (store.channels, store.targets) == (("FLAIR", "T1"), ("edema", "core", "enhancing"))
    assert (store.input_spec.kind, store.input_spec.intensity) == ("exclusive", Intensity("window", (0.0, 1000.0)))
    assert store.input_spec.notes == (OWN_PATIENT, "imagesTs, which has no labels, is left out: 3 files")
    assert sorted(store.cases.case) == [f"la_{i:03d}_{z:03d}" for i in range(2) for z in range(Z)]
    assert set(store.cases.volume) == set(store.cases.patient) == {"la_000", "la_001"}
    for row in range(len(store)):
        i, z = int(store.cases.volume[row][-3:]), int(store.cases.case[row][-3:])
        images, masks = store.read([row])
        np.testing.assert_allclose(images[0], [volume(10 * i + channel)[z] / 1000 for channel in range(2)], atol=1e-6)
        for k, value in enumerate((1, 2, 3)):
            np.testing.assert_array_equal(masks[0, 0, k], label_map(i)[z] == value)


def test_the_kind_follows_the_labels(tmp_path):
    """Regions outermost first, whatever their order; version 1's labels by value."""
    regions = {"background": 0, "enhancing": 3, "whole": [1, 2, 3], "core": [3, 2]}
    for number, (labels, targets, kind) in enumerate(
        (
            (LABELS, {"edema": (1,), "core": (2,), "enhancing": (3,)}, "exclusive"),
            (regions, {"whole": (1, 2, 3), "core": (2, 3), "enhancing": (3,)}, "nested"),
            ({"0": "background", "1": "a", "3": "c", "2": "b"}, {"a": (1,), "c": (3,), "b": (2,)}, "exclusive"),
            ({"background": 0, "any": [1, 2, 3]}, {"any": (1, 2, 3)}, "independent"),
            ({"background": [0], "a": [1, 2], "b": [2, 3]}, {"a": (1, 2), "b": (2, 3)}, "independent"),
            ({"a/b": [1, 2], "c": 3}, {"a-b": (1, 2), "c": (3,)}, "exclusive"),
        )
    ):
        root = write_pictures(tmp_path / str(number), labels)
        reading = read(root, Options())
        assert (reading.targets, reading.kind) == (tuple(targets), kind)
        assert read(root, Options(kind="independent")).kind == "independent"
        for i, case in enumerate(reading.cases):
            expected = [np.isin(label_map(i, (H, W)), values) for values in targets.values()]
            np.testing.assert_array_equal(case.masks[0], expected)


def test_pictures(tmp_path):
    reading = read(write_pictures(tmp_path / "grey", LABELS), Options(patient=r"(\d)"))
    assert (reading.channels, reading.dtype, reading.notes, reading.total) == (("microscope",), "uint8", (), 2)
    for i, case in enumerate(reading.cases):
        assert (case.name, case.patient, case.volume) == (f"road-{i}", str(i), "")
        np.testing.assert_array_equal(case.image[0], picture(i))
    colour = read(write_pictures(tmp_path / "colour", LABELS, colour=True), Options())
    assert colour.channels == ("R", "G", "B")
    np.testing.assert_array_equal(next(colour.cases).image, np.moveaxis(picture(0, (H, W, 3)), -1, 0))


def test_version_1_and_channels_of_one_name(tmp_path):
    old = {"channel_names": None, "file_ending": None, "modality": {"0": "MRI", "1": "MRI"}}
    reading = read(write(tmp_path / "a", **old), Options())
    assert reading.channels == ("MRI-0", "MRI-1")


def no_second_channel(root):
    (write(root) / "imagesTr" / "la_001_0001.nii.gz").unlink()


def other_channel(root):
    for i in range(2):
        path = write(root) / "imagesTr" / f"la_{i:03d}_0001.nii.gz"
        path.rename(path.with_name(f"la_{i:03d}_0007.nii.gz"))
    for path in (root / "imagesTr").glob("*_0001.nii.gz"):
        path.unlink()


def no_json(root):
    (write(root) / "dataset.json").unlink()


BAD = ((no_second_channel, "la_001_0000.nii.gz"), (other_channel, "imagesTr"), (no_json, "dataset.json"))


def test_bad_files(tmp_path):
    for make, named in BAD:
        root = tmp_path / make.__name__
        make(root)
        refused(lambda root=root: list(read(root, Options()).cases), named)


def test_bad_descriptions(tmp_path):
    root = write(tmp_path)
    for changes, named in (
        ({"labels": None}, "labels"),
        ({"labels": {"background": 0}}, "labels"),
        ({"labels": LABELS | {"ignore": 4}}, "labels"),
        ({"labels": {"a": [0, 1]}}, "labels"),
        ({"labels": {"a": []}}, "labels"),
        ({"labels": {"a": 1, "b": [1]}}, "labels"),
        ({"labels": {"a": "one"}}, "labels"),
        ({"labels": {"a": 1.5}}, "labels"),
        ({"channel_names": {"0": "CT"}}, "channel_names"),
        ({"channel_names": None}, "channel_names"),
        ({"file_ending": ".nrrd"}, "file_ending"),
        ({"numTraining": 5}, "numTraining"),
        ({"dataset": {"la_000": {}}}, "dataset"),
    ):
        describe(root, **changes)
        refused(lambda: read(root, Options()), f"{root / 'dataset.json'}: ", named)


def test_real_brats(shared_data):
    """Counts as its README has them, and upright: the label map of the original scan, halved."""
    reading = read(shared_data / "brats3d", Options())
    assert (reading.total, reading.raters, reading.kind) == (57 * 77, 1, "nested")
    assert reading.channels == ("t1", "t1ce", "t2", "flair")
    assert reading.targets == ("whole_tumour", "tumour_core", "enhancing_tumour")
    found = {case.name: case for case, _ in zip(reading.cases, range(5 * 77), strict=False)}
    assert len({case.patient for case in found.values()}) == 5
    marked = np.asarray(nibabel.load(shared_data / "brats/BraTS2021_00006/BraTS2021_00006_seg.nii.gz").dataobj) > 0
    halved = marked[:, :, :154].reshape(120, 2, 120, 2, 77, 2).mean((1, 3, 5)) > 0.5
    whole = np.stack([found[f"BraTS2021_00006_{z:03d}"].masks[0, 0] for z in range(77)]) > 0
    expected = halved.transpose(2, 1, 0)
    assert (whole & expected).sum() > 0.95 * (whole | expected).sum() > 0
