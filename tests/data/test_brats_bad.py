"""BraTS folders with each thing that can be wrong: one sentence that names the file, or the option."""

import json

import numpy as np
from brats_writer import LPS, PARTS, SHAPE, SMALL, case_folder, cases, decathlon, save, scan, slices
from layouts import refused

from berdiff.data.prepare import prepare
from berdiff.data.sources.brats import Options, read


def test_a_missing_file_is_found_before_the_work(tmp_path):
    for part in PARTS:
        case_folder(tmp_path / part, "B_1")
        case_folder(tmp_path / part, "B_2", skip=(part,))
        refused(lambda part=part: read(tmp_path / part, Options(**SMALL)), "B_2", part)
    assert len(cases(tmp_path / "t1ce", sequences=("t1", "flair"))) == 6  # not wanted, so not missed
    slices(tmp_path / "slices")
    (tmp_path / "slices/training/brats_train_001-2/brats_train_001_t2_081_w.nii.gz").unlink()
    refused(lambda: read(tmp_path / "slices", Options(**SMALL)), "brats_train_001-2", "t2")


def test_an_empty_folder(tmp_path):
    (tmp_path / "empty" / "imagesTr").mkdir(parents=True)
    refused(lambda: read(tmp_path / "empty", Options()), "imagesTr")
    for make in (case_folder, decathlon, slices):
        make(tmp_path / make.__name__)
        refused(lambda make=make: read(tmp_path / make.__name__, Options(bottom=155)), "bottom 155")


def bad_value(root):
    seg = scan()["seg"].copy()
    seg[0, 0, :2] = 7, 9
    case_folder(root, "B_1")
    case_folder(root, "B_2", seg=seg)


def bad_codes(root):
    """Enhancing tumour is 4 in one case and 3 in another."""
    case_folder(root, "B_1")
    case_folder(root, "B_2", seg=np.where(scan()["seg"] == 4, 3, scan()["seg"]).astype(np.uint8))


def bad_shape(root):
    case_folder(root, flair=scan()["flair"][:, 1:])


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


BAD = [
    (bad_value, "B_2_seg.nii.gz"),
    (bad_codes, "B_2_seg.nii.gz"),
    (bad_shape, "_flair.nii.gz"),
    (bad_place, "_t2.nii.gz"),
    (bad_twice, "LGG"),
    (bad_mixture, ""),
    (bad_slice_size, "_t1_082_w.nii.gz"),
    (bad_no_labels, ""),
    (bad_decathlon_labels, "BRATS_001.nii.gz"),
    (bad_decathlon_link, "labelsTr/BRATS_001.nii.gz"),
    (bad_decathlon_missing, "BRATS_001.nii.gz"),
    (bad_decathlon_channels, "imagesTr"),
    (bad_decathlon_shape, "labelsTr"),
    (bad_decathlon_order, "dataset.json"),
]


def test_bad_input_is_one_sentence(tmp_path):
    for make, named in BAD:
        root = tmp_path / make.__name__ / "data"
        make(root)
        refused(lambda root=root: cases(root), str(root), named)


def test_bad_options(tmp_path):
    for options, named in (
        ({"sequences": ()}, "--sequences"),
        ({"sequences": ("t1", "t1")}, "--sequences"),
        ({"bottom": -1}, "--bottom"),
        ({"size": (0, 224)}, "--size"),
        ({"tails": 50.0}, "--tails"),
    ):
        refused(lambda options=options: prepare("brats", tmp_path, tmp_path / "s", Options(**options)), named)
