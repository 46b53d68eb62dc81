"""nnU-Net's raw data: dataset.json decides channels, targets and kind; each defect is one sentence."""

import json
import re

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


def no_labels(root):
    (write(root) / "labelsTr" / "la_001.nii.gz").unlink()


def no_second_channel(root):
    (write(root) / "imagesTr" / "la_001_0001.nii.gz").unlink()


def other_channel(root):
    for i in range(2):
        path = write(root) / "imagesTr" / f"la_{i:03d}_0001.nii.gz"
        path.rename(path.with_name(f"la_{i:03d}_0007.nii.gz"))
    for path in (root / "imagesTr").glob("*_0001.nii.gz"):
        path.unlink()


def other_values(root):
    labels = label_map(0)
    labels[1, 2, 3] = 9
    save(write(root) / "labelsTr" / "la_000.nii.gz", labels)


def no_json(root):
    (write(root) / "dataset.json").unlink()


def broken_json(root):
    (write(root) / "dataset.json").write_text("{")


BAD = (
    (no_labels, r"imagesTr/la_001_000\d\.nii\.gz: expected a mask for the case 'la_001' in .*labelsTr, found none"),
    (no_second_channel, r"la_001_0000\.nii\.gz: expected the channels 0000, 0001 for the case 'la_001', found 0000"),
    (other_channel, r"imagesTr: expected CASE_0000, CASE_0001, \.\.\., found CASE_0000, CASE_0007"),
    (other_values, r"labelsTr/la_000\.nii\.gz: expected the values 0 and 1, 2, 3, found 0, 1, 2, 3, 9"),
    (no_json, r"dataset\.json: expected nnU-Net's dataset\.json, found no such file"),
    (broken_json, r"dataset\.json: expected nnU-Net's dataset\.json in JSON, found something else"),
)


def test_bad_files(tmp_path):
    for make, sentence in BAD:
        root = tmp_path / make.__name__
        make(root)
        assert re.search(sentence, refused(lambda root=root: list(read(root, Options()).cases))), make.__name__
    assert "expected a folder with dataset.json" in refused(lambda: read(tmp_path / "none", Options()))


def test_bad_descriptions(tmp_path):
    root = write(tmp_path)
    for changes, sentence in (
        ({"labels": None}, "labels: expected a value, found none"),
        ({"labels": {"background": 0}}, "labels: expected at least one target beside the background 0, found none"),
        (
            {"labels": LABELS | {"ignore": 4}},
            "labels: expected labels that say of every pixel what it is, found .* ignore, 4",
        ),
        ({"labels": {"a": [0, 1]}}, "labels: expected values above 0 for 'a', found 0, 1"),
        ({"labels": {"a": []}}, "labels: expected values above 0 for 'a', found none"),
        ({"labels": {"a": 1, "b": [1]}}, "labels: expected different names and values, found 'b': 1 again"),
        ({"labels": {"a": "one"}}, "labels: expected a value or a list of values for each name, found 'a': 'one'"),
        ({"labels": {"a": 1.5}}, r"labels\.a.*: expected"),
        (
            {"channel_names": {"0": "CT"}},
            "channel_names: expected names for 0, 1, as imagesTr has so many channels, found 0",
        ),
        ({"channel_names": None}, "channel_names: expected names for 0, 1, .* found none"),
        ({"file_ending": ".nrrd"}, r"file_ending: expected one of \.png, .*, found '\.nrrd'"),
        ({"numTraining": 5}, "expected numTraining 2, as labelsTr has, found 5"),
        ({"dataset": {"la_000": {}}}, "dataset: expected files in imagesTr and labelsTr, found a list of other places"),
    ):
        describe(root, **changes)
        found = refused(lambda: read(root, Options()))
        assert found.startswith(f"{root / 'dataset.json'}: ")
        assert re.search(sentence, found), found


def test_bad_options(tmp_path):
    root = write(tmp_path / "a")
    for options, sentence in (
        ({"window": (4.0, 4.0)}, "--window: expected a lower and a higher value"),
        ({"window": (0.0, 4.0), "scale": "dtype"}, "--window: expected no --scale beside it"),
        ({"kind": "nested"}, "expected nested targets (each lies inside the one before it), found"),
    ):
        made = Options(**options)
        assert sentence in refused(lambda made=made: prepare("nnunet", root, tmp_path / "s", made))
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


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
