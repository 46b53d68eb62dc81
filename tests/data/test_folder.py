"""Anyone's folder: each naming gives the right masks to the right rater and target, each kind of file its values."""

import json

import nibabel
import numpy as np
import pytest
from dicom_writer import write_slice
from folder_writer import LPS, H, W, blob, cases, picture, save, simple
from PIL import Image

from berdiff.data.input_spec import Intensity
from berdiff.data.sources.folder import OWN_PATIENT, Options, read
from berdiff.errors import InputError
from refusals import refused

# --- names ---


def test_the_simplest_folder(tmp_path):
    for suffix in (".png", ".tif", ".npy"):
        reading = read(simple(tmp_path / suffix, suffix=suffix), Options())
        assert (reading.channels, reading.targets, reading.raters) == (("image",), ("mask",), 1)
        assert (reading.size, reading.dtype, reading.total, reading.notes) == ((H, W), "uint8", 3, (OWN_PATIENT,))
        assert reading.intensity == Intensity()
        for i, case in enumerate(reading.cases):
            assert (case.name, case.patient, case.volume, case.split) == (f"c{i}", f"c{i}", "", "")
            assert case.source == f"images/c{i}{suffix}"
            assert np.isnan(case.spacing).all()
            np.testing.assert_array_equal(case.image, picture(i)[None])
            np.testing.assert_array_equal(case.masks, blob(i)[None, None] > 0)


NAMINGS = {
    "masks/p1_s{case}_{rater}.png": None,
    "masks/{rater}/p1_s{case}.png": None,
    "masks/p1_s{case}_{rater}_{target}.png": None,
    "masks/{rater}/{target}/p1_s{case}.png": None,
    "masks/p1_s{case}_{target}.png": "{case}_{target}",
    "masks/{target}/p1_s{case}.png": "{target}/{case}",
    "masks/reader-{rater}/{target} of p1_s{case}.png": "reader-{rater}/{target} of {case}",
}


def test_names_hold_rater_and_target(tmp_path):
    for number, naming in enumerate(NAMINGS):
        check_naming(tmp_path / str(number), naming)


def check_naming(root, naming):
    raters = ("ann", "bob") if "{rater}" in naming else ("only",)
    targets = ("edge", "core") if "{target}" in naming else ("only",)
    made = {}
    for i in range(2):
        save(root / "images" / f"p1_s{i}.png", picture(i))
        for r, rater in enumerate(raters):
            for k, target in enumerate(targets):
                mask = blob(100 * i + 10 * r + k)
                save(root / naming.format(case=i, rater=rater, target=target), mask)
                made[i, rater, target] = mask > 0
    reading = read(root, Options(mask_name=NAMINGS[naming]))
    assert reading.raters == len(raters)
    assert reading.targets == (("core", "edge") if len(targets) > 1 else ("mask",))
    for i, case in enumerate(reading.cases):
        expected = [[made[i, rater, target] for target in sorted(targets)] for rater in raters]
        np.testing.assert_array_equal(case.masks, expected)


def test_images_in_folders_are_cases_of_that_patient(tmp_path):
    for patient in ("p1", "p2"):
        for z in range(2):
            save(tmp_path / "images" / patient / f"z{z}.png", picture(z))
            for rater in range(2):
                save(tmp_path / "masks" / patient / f"z{z}_l{rater}.png", blob(rater))
    reading = read(tmp_path, Options())
    assert reading.notes == ()
    assert [(case.name, case.patient) for case in reading.cases] == [
        ("p1_z0", "p1"),
        ("p1_z1", "p1"),
        ("p2_z0", "p2"),
        ("p2_z1", "p2"),
    ]


def test_images_and_masks_in_one_folder(tmp_path):
    for i in range(2):
        save(tmp_path / f"TCGA_{i}.tif", picture(i))
        save(tmp_path / f"TCGA_{i}_mask.tif", blob(i))
    found = cases(tmp_path, images=".", masks=".", mask_name="{case}_mask")
    assert [case.name for case in found] == ["TCGA_0", "TCGA_1"]
    np.testing.assert_array_equal(found[1].masks[0, 0], blob(1) > 0)
    with pytest.raises(InputError, match="--mask-name: expected a name that sets masks apart from images"):
        cases(tmp_path, images=".", masks=".")


def test_channels_in_files_of_their_own(tmp_path):
    """nnU-Net's names."""
    rng = np.random.default_rng(0)
    channels = rng.normal(size=(2, 3, H, W)).astype(np.float32)
    for channel in range(2):
        save(tmp_path / "imagesTr" / f"x_{channel:04d}.nii.gz", channels[channel])
    labels = rng.integers(0, 3, (3, H, W)).astype(np.uint8)
    save(tmp_path / "labelsTr" / "x.nii.gz", labels)
    names = {"images": "imagesTr", "masks": "labelsTr", "image_name": "{case}_{channel}"}
    reading = read(tmp_path, Options(**names, labels=("liver=1", "tumour=2"), tails=0))
    assert (reading.channels, reading.targets) == (("0000", "0001"), ("liver", "tumour"))
    for z, case in enumerate(reading.cases):
        low, high = channels.min((1, 2, 3)), channels.max((1, 2, 3))
        expected = (channels[:, z] - low[:, None, None]) / (high - low)[:, None, None]
        np.testing.assert_allclose(case.image, expected, atol=1e-6)
        np.testing.assert_array_equal(case.masks[0], [labels[z] == 1, labels[z] == 2])


def test_patients_by_pattern_and_by_table(tmp_path):
    simple(tmp_path / "data", 3)
    assert [case.patient for case in cases(tmp_path / "data", patient=r"c(\d)")] == ["0", "1", "2"]
    assert [case.patient for case in cases(tmp_path / "data", patient="c")] == ["c", "c", "c"]
    table = tmp_path / "t.csv"
    table.write_text("\ufeffPatient, case, split, age\nann,c1,train,3\nbob,c0,test,4\nann,c2,train,5\n", "utf-8")
    found = cases(tmp_path / "data", table=table)
    assert [(case.name, case.patient, case.split) for case in found] == [
        ("c0", "bob", "test"),
        ("c1", "ann", "train"),
        ("c2", "ann", "train"),
    ]


def test_split_folders_are_kept(tmp_path):
    for split, i in (("train", 0), ("validation", 1), ("test", 2)):
        save(tmp_path / split / "images" / f"p{i}_a.png", picture(i))
        save(tmp_path / split / "masks" / f"p{i}_a.png", blob(i))
    assert [case.split for case in cases(tmp_path)] == ["train", "val", "test"]
    save(tmp_path / "test" / "images" / "p0_a.png", picture())
    save(tmp_path / "test" / "masks" / "p0_a.png", blob())
    with pytest.raises(InputError, match="expected each case once, found 'p0_a' also as"):
        cases(tmp_path)


# --- values ---


def test_a_missing_rater_is_allowed_only_when_asked_for(tmp_path):
    for i in range(2):
        save(tmp_path / "images" / f"c{i}.png", picture(i))
        for rater in ("a", "b")[: 2 - i]:
            save(tmp_path / "masks" / rater / f"c{i}.png", blob(i))
    with refused("c1.png", "'b'", code="missing"):
        read(tmp_path, Options())
    reading = read(tmp_path, Options(missing_raters=True))
    assert reading.raters == 2
    assert [len(case.masks) for case in reading.cases] == [2, 1]


def test_eight_and_sixteen_bits_together(tmp_path):
    save(tmp_path / "images" / "a.png", picture(0))
    save(tmp_path / "images" / "b.png", picture(1, dtype=np.uint16))
    for name in "ab":
        save(tmp_path / "masks" / f"{name}.png", blob())
    reading = read(tmp_path, Options())
    assert reading.dtype == "float32"
    a, b = reading.cases
    np.testing.assert_allclose(a.image[0], picture(0) / 255, atol=1e-6)
    np.testing.assert_allclose(b.image[0], picture(1, dtype=np.uint16) / 65535, atol=1e-6)


def test_colour_and_grey(tmp_path):
    rgb = picture(0, (H, W, 3))
    save(tmp_path / "images" / "a.png", rgb)
    save(tmp_path / "masks" / "a.png", blob())
    reading = read(tmp_path, Options())
    assert reading.channels == ("red", "green", "blue")
    np.testing.assert_array_equal(next(reading.cases).image, rgb.transpose(2, 0, 1))
    reading = read(tmp_path, Options(grey=True))
    assert (reading.channels, reading.dtype) == (("image",), "uint8")
    pillow = np.asarray(Image.fromarray(rgb).convert("L"), int)
    assert np.abs(next(reading.cases).image[0] - pillow).max() <= 1  # Pillow rounds in whole numbers
    save(tmp_path / "images" / "b.png", picture())
    save(tmp_path / "masks" / "b.png", blob())
    with pytest.raises(
        InputError, match=r"b\.png: expected 3 channel\(s\) like the first image, found 1 \(see --grey\)"
    ):
        read(tmp_path, Options())
    assert len(cases(tmp_path, grey=True)) == 2


def test_lossy_masks_need_a_threshold(tmp_path):
    smooth = np.kron([[0, 1], [1, 0]], np.ones((16, 16))).astype(bool)
    save(tmp_path / "images" / "a.jpg", picture(0, (32, 32)))
    save(tmp_path / "masks" / "a.jpg", np.where(smooth, 250, 3).astype(np.uint8))
    with pytest.raises(InputError, match=r"a\.jpg: expected the values 0 and one other value .*--threshold\), found"):
        cases(tmp_path)
    (case,) = cases(tmp_path, threshold=127)
    np.testing.assert_array_equal(case.masks[0, 0], smooth)


def test_declared_values(tmp_path):
    labels = np.random.default_rng(0).choice([0, 1, 2], (H, W)).astype(np.uint8)
    save(tmp_path / "images" / "a.png", picture())
    path = save(tmp_path / "masks" / "a.png", labels)
    with pytest.raises(InputError, match=r"a\.png: expected the values 0 and one other value .* found 0, 1, 2"):
        cases(tmp_path)
    with pytest.raises(InputError, match=r"a\.png: expected the values 0 and 1, found 0, 1, 2"):
        cases(tmp_path, foreground=(1,))
    (case,) = cases(tmp_path, foreground=(1, 2))
    np.testing.assert_array_equal(case.masks[0, 0], labels > 0)
    (case,) = cases(tmp_path, labels=("b=2", "a=1"))
    np.testing.assert_array_equal(case.masks[0], [labels == 2, labels == 1])
    save(path, np.full((H, W), 7, np.uint8))
    assert cases(tmp_path)[0].masks.all()


def test_images_of_many_sizes_are_brought_to_one(tmp_path):
    for i, shape in enumerate([(H, W), (30, 20), (8, 40)]):
        inner = np.zeros(shape, np.uint8)
        inner[shape[0] // 4 : -shape[0] // 4, shape[1] // 4 : -shape[1] // 4] = 255
        save(tmp_path / "images" / f"{i}.png", inner)
        save(tmp_path / "masks" / f"{i}.png", inner)
    with pytest.raises(
        InputError, match=r"1\.png: expected 12x16 pixels like the first image, found 30x20 \(see --size\)"
    ):
        read(tmp_path, Options())
    for case in (*cases(tmp_path, size=(16, 24)), *cases(tmp_path, size=(16, 24), fit="resize")):
        assert case.image.shape == (1, 16, 24)
        np.testing.assert_array_equal(case.image[0] > 127, case.masks[0, 0])


# --- volumes ---


def test_a_nifti_volume_becomes_its_axial_slices(tmp_path):
    rng = np.random.default_rng(0)
    voxels = rng.normal(size=(5, H, W)).astype(np.float32)
    marked = np.zeros((5, H, W), np.uint8)
    marked[1:3, 2:5, 3:9] = 1
    save(tmp_path / "images" / "p1_scan.nii.gz", voxels)
    # the mask was saved by another tool in another axis order and direction: it lies in the same place
    image = nibabel.as_closest_canonical(nibabel.Nifti1Image(marked.T, LPS))
    nibabel.save(image, save(tmp_path / "masks" / "p1_scan.nii", marked))
    reading = read(tmp_path, Options(tails=0, patient=r"(p\d)"))
    assert (reading.total, reading.dtype) == (5, "float32")
    found = list(reading.cases)
    assert [case.name for case in found] == [f"p1_scan_{z:03d}" for z in range(5)]
    scaled = (voxels - voxels.min()) / (voxels.max() - voxels.min())
    for z, case in enumerate(found):
        assert (case.patient, case.volume, case.spacing) == ("p1", "p1_scan", (0.75, 0.5))
        np.testing.assert_allclose(case.image[0], scaled[z], atol=1e-6)
        np.testing.assert_array_equal(case.masks[0, 0], marked[z])
    kept = read(tmp_path, Options(drop_empty=True))
    assert kept.total is None
    assert [case.name[-3:] for case in kept.cases] == ["001", "002"]


def test_a_dicom_series_with_a_nifti_mask(tmp_path):
    """The mask is saved as a NIfTI tool does after reading the same DICOM: flipped rows, right-front-up millimetres."""
    stored = np.random.default_rng(0).integers(0, 2000, (3, H, W))
    marked = np.random.default_rng(1).integers(0, 2, (3, H, W)).astype(np.uint8)
    for z in range(3):
        write_slice(tmp_path / "images" / "scan" / f"{9 - z}.dcm", stored[z], z=2.5 * z, spacing=(0.5, 0.75))
    affine = np.array([[-0.75, 0, 0, 100], [0, 0.5, 0, 120 - 0.5 * (H - 1)], [0, 0, 2.5, 0], [0, 0, 0, 1]])
    (tmp_path / "masks").mkdir()
    nibabel.save(nibabel.Nifti1Image(marked[:, ::-1].T.copy(), affine), tmp_path / "masks" / "scan.nii.gz")
    found = cases(tmp_path, window=(-1024, 976))
    assert len(found) == 3
    for z, case in enumerate(found):
        np.testing.assert_allclose(case.image[0], stored[z] / 2000, atol=1e-6)
        np.testing.assert_array_equal(case.masks[0, 0], marked[z])
        assert case.spacing == pytest.approx((0.5, 0.75))


def test_dicom_series_in_folders(tmp_path):
    """An archive's folders within folders are one case; where there are two series, each is a case of that patient."""
    for folder in ("p1/study/series", "p2/before", "p2/after"):
        for z in range(2):
            write_slice(tmp_path / "images" / folder / f"{z}.dcm", picture(z).astype(int), z=2.0 * z)
    affine = np.array([[-0.7, 0, 0, 100], [0, -0.7, 0, 120], [0, 0, 2, 0], [0, 0, 0, 1]])
    for name in ("p1", "p2/before", "p2/after"):
        save(tmp_path / "masks" / f"{name}.nii.gz", np.ones((2, H, W), np.uint8), affine)
    found = cases(tmp_path)
    assert {(case.volume, case.patient) for case in found} == {("p1", "p1"), ("p2_before", "p2"), ("p2_after", "p2")}
    assert len(found) == 6


def test_single_dicom_pictures_and_stacks_of_slices(tmp_path):
    write_slice(tmp_path / "a" / "images" / "x.dcm", picture().astype(int), spacing=(0.2, 0.3))
    save(tmp_path / "a" / "masks" / "x.png", blob())
    (case,) = cases(tmp_path / "a", window=(-1024, -1024 + 255))
    np.testing.assert_allclose(case.image[0], picture() / 255, atol=1e-6)
    assert (case.name, case.spacing) == ("x", (0.2, 0.3))
    stack = picture(0, (4, H, W))
    save(tmp_path / "b" / "images" / "x.npy", stack)
    save(tmp_path / "b" / "masks" / "x.npy", blob(0, (4, H, W)) > 0)
    reading = read(tmp_path / "b", Options())
    assert (reading.dtype, reading.total) == ("uint8", 4)
    for z, case in enumerate(reading.cases):
        assert (case.name, case.volume) == (f"x_{z:03d}", "x")
        np.testing.assert_array_equal(case.image[0], stack[z])
        np.testing.assert_array_equal(case.masks[0, 0], blob(0, (4, H, W))[z] > 0)


# --- slices that a rater looked at ---


def scan(root, looked_at):
    """A volume of 5 slices with masks of every voxel; `looked_at`: rater -> target -> the slices, or None."""
    save(root / "images" / "c.npy", np.zeros((5, H, W), np.uint8))
    for rater, targets in looked_at.items():
        for target, slices in targets.items():
            save(root / "masks" / rater / target / "c.npy", np.ones((5, H, W), np.uint8))
            if slices is not None:
                note = root / "notes" / rater / target / "c.json"
                note.parent.mkdir(parents=True)
                note.write_text(json.dumps({"rater": rater, "slices": slices}))
    return root


def test_only_slices_that_a_rater_looked_at_are_cases(tmp_path):
    looked_at = {"ann": {"a": [1, 3], "b": [3, 4]}, "bob": {"a": [0, 3], "b": [0, 3]}}
    reading = read(scan(tmp_path / "two", looked_at), Options())
    assert (reading.total, reading.raters) == (2, 2)
    assert [(case.name, case.volume, case.masks.shape[:2]) for case in reading.cases] == [
        ("c_000", "c", (1, 2)),
        ("c_003", "c", (2, 2)),
    ]
    without = read(scan(tmp_path / "all", {"ann": {"a": None}, "bob": {"a": [2]}}), Options())
    assert [len(case.masks) for case in without.cases] == [1, 1, 2, 1, 1]  # a rater without a note looked at all


@pytest.mark.parametrize("slices", [[5], [-1], "all", [1.5], [True], {}, []])
def test_a_note_with_other_slices_is_refused(tmp_path, slices):
    with pytest.raises(InputError, match=r"notes|ann"):
        read(scan(tmp_path, {"ann": {"a": slices}}), Options())


def test_a_note_that_is_no_json_is_refused(tmp_path):
    root = scan(tmp_path, {"ann": {"a": [1]}})
    (root / "notes" / "ann" / "a" / "c.json").write_text("{")
    with pytest.raises(InputError, match=r"c\.json"):
        read(root, Options())
