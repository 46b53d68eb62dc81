"""BraTS folders with each thing that can be wrong: one sentence that names the file, or the option."""

import json
import re

import numpy as np
import pytest
from brats_writer import LPS, PARTS, SHAPE, SMALL, case_folder, cases, decathlon, save, scan, slices
from layouts import refused

from berdiff.data.prepare import prepare
from berdiff.data.sources.brats import Options, read
from berdiff.errors import InputError


def test_a_missing_file_is_found_before_the_work(tmp_path):
    for part in PARTS:
        case_folder(tmp_path / part, "B_1")
        case_folder(tmp_path / part, "B_2", skip=(part,))
        with pytest.raises(InputError, match=rf"B_2: expected a {part} file beside B_2_\w+\.nii\.gz, found only"):
            read(tmp_path / part, Options(**SMALL))
    assert len(cases(tmp_path / "t1ce", sequences=("t1", "flair"))) == 6  # not wanted, so not missed
    slices(tmp_path / "slices")
    (tmp_path / "slices/training/brats_train_001-2/brats_train_001_t2_081_w.nii.gz").unlink()
    with pytest.raises(InputError, match="brats_train_001-2: expected a t2 file beside"):
        read(tmp_path / "slices", Options(**SMALL))


def test_an_empty_folder(tmp_path):
    with pytest.raises(InputError, match=r"expected BraTS cases .* found none"):
        read(tmp_path, Options())
    with pytest.raises(InputError, match="found nothing"):
        read(tmp_path / "nowhere", Options())
    (tmp_path / "empty" / "imagesTr").mkdir(parents=True)
    with pytest.raises(InputError, match="imagesTr: expected 4D NIfTI files, found none"):
        read(tmp_path / "empty", Options())
    for make in (case_folder, decathlon, slices):
        make(tmp_path / make.__name__)
        with pytest.raises(InputError, match="expected slices between the bottom 155 and the top 26, found none"):
            read(tmp_path / make.__name__, Options(bottom=155))


def bad_labels(root):
    seg = scan()["seg"].copy()
    seg[0, 0, 0] = 3
    case_folder(root, seg=seg)


def bad_value(root):
    seg = scan()["seg"].copy()
    seg[0, 0, :2] = 7, 9
    case_folder(root, "B_1")
    case_folder(root, "B_2", seg=seg)


def bad_codes(root):
    """Enhancing tumour is 4 in one case and 3 in another."""
    case_folder(root, "B_1")
    case_folder(root, "B_2", seg=np.where(scan()["seg"] == 4, 3, scan()["seg"]).astype(np.uint8))


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
    (bad_labels, r"_seg\.nii\.gz: expected the labels 0, 1, 2, 4 like other cases of this data, found 3 too"),
    (bad_value, r"B_2_seg\.nii\.gz: expected the labels 0, 1, 2, 4, found 7, 9 too"),
    (bad_codes, r"B_2_seg\.nii\.gz: expected the labels 0, 1, 2, 4 like other cases of this data, found 3 too"),
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
    (bad_decathlon_json, r"dataset\.json: expected .*, found \[\]"),
]


def test_bad_input_is_one_sentence(tmp_path):
    for make, sentence in BAD:
        root = tmp_path / make.__name__ / "data"
        make(root)
        assert re.search(sentence, refused(lambda root=root: cases(root))), make.__name__


def test_bad_options(tmp_path):
    for options, sentence in (
        ({"sequences": ()}, "--sequences: expected one or more"),
        ({"sequences": ("t1", "t1")}, "--sequences: expected one or more different"),
        ({"bottom": -1}, "--bottom: expected at least 0, found -1"),
        ({"size": (0, 224)}, "--size: expected at least 1, found 0"),
        ({"tails": 50.0}, "--tails: expected less than 50.0, found 50.0"),
    ):
        refused(lambda options=options: prepare("brats", tmp_path, tmp_path / "s", Options(**options)), sentence)
