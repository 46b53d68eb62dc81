"""Anyone's folder, with each thing that can be wrong: one sentence that names the file, or the option."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from folder_writer import LPS, H, W, blob, cases, picture, save, simple
from layouts import refused

from berdiff.data.prepare import prepare
from berdiff.data.sources.folder import Options, read
from berdiff.errors import InputError


def cut(path, share=0.5):
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])


def cut_png(root):
    cut(simple(root) / "images" / "c1.png", 0.7)


def foreign_png(root):
    (simple(root) / "images" / "c1.png").write_text("no picture")


def cut_mask(root):
    cut(simple(root) / "masks" / "c1.png", 0.7)


def cut_npy(root):
    cut(simple(root, suffix=".npy") / "images" / "c1.npy", 0.7)


def pickle_npy(root):
    np.save(simple(root, suffix=".npy") / "images" / "c1.npy", np.array([os.getcwd], dtype=object))


def volume(root, image=None, mask=None, mask_affine=LPS):
    save(root / "images" / "v.nii.gz", np.random.default_rng(0).normal(size=(4, H, W)) if image is None else image)
    save(root / "masks" / "v.nii.gz", np.ones((4, H, W), np.uint8) if mask is None else mask, mask_affine)
    return root


def nan_nifti(root):
    volume(root, image=np.full((4, H, W), np.nan))


def nan_npy(root):
    save(simple(root, suffix=".npy") / "images" / "c2.npy", np.full((H, W), np.inf))


def nan_tif(root):
    save(simple(root, suffix=".tif") / "images" / "c2.tif", np.full((H, W), np.nan, np.float32))


def mask_of_another_size(root):
    save(simple(root) / "masks" / "c1.png", blob(0, (H, W + 1)))


def volume_mask_of_another_size(root):
    volume(root, mask=np.ones((3, H, W), np.uint8))


def mask_elsewhere(root):
    moved = LPS.copy()
    moved[1, 3] = 50
    volume(root, mask_affine=moved)


def mask_without_a_place(root):
    (volume(root) / "masks" / "v.nii.gz").unlink()
    save(root / "masks" / "v.npy", np.ones((4, H, W), np.uint8))


def colour_mask(root):
    save(simple(root) / "masks" / "c1.png", picture(0, (H, W, 3)))


def missing_mask(root):
    (simple(root) / "masks" / "c1.png").unlink()


def missing_target(root):
    for name in ("a_core", "a_edge", "b_core"):
        save(root / "masks" / "r1" / name[2:] / f"{name[0]}.png", blob())
    for name in "ab":
        save(root / "images" / f"{name}.png", picture())


def mask_of_no_image(root):
    save(simple(root) / "masks" / "c9.png", blob())


def other_values(root):
    save(simple(root) / "masks" / "c1.png", picture())


def negative_values(root):
    save(simple(root, suffix=".npy") / "masks" / "c1.npy", np.full((H, W), -1))


def duplicate_case(root):
    save(simple(root) / "images" / "c1.tif", picture())


def duplicate_mask(root):
    save(simple(root) / "masks" / "c1.tif", blob())


def flat_image(root):
    save(simple(root, suffix=".npy") / "images" / "c1.npy", np.ones((H, W)))


def linked_image(root):
    outside = save(root.parent / "secret.png", picture())
    (simple(root) / "images" / "c9.png").symlink_to(outside)


def linked_folder(root):
    simple(root.parent / "outside")
    simple(root)
    (root / "masks" / "more").symlink_to(root.parent / "outside" / "masks")


def linked_masks(root):
    simple(root.parent / "outside")
    save(root / "images" / "c0.png", picture())
    (root / "masks").symlink_to(root.parent / "outside" / "masks")


def five_dimensions(root):
    save(simple(root, suffix=".npy") / "images" / "c1.npy", np.ones((2, 2, H, W)))


def no_images(root):
    (root / "images").mkdir(parents=True)
    (root / "masks").mkdir()


def no_masks(root):
    save(root / "images" / "a.png", picture())
    (root / "masks").mkdir()


BAD = [
    (cut_png, r"c1\.png: expected a whole picture, found a damaged one"),
    (foreign_png, r"c1\.png: expected a picture \(PNG, JPG or TIFF\), found something else"),
    (cut_mask, r"masks/c1\.png: expected a whole picture, found a damaged one"),
    (cut_npy, r"c1\.npy: expected a \.npy file of numbers, found a damaged or foreign one"),
    (pickle_npy, r"c1\.npy: expected a \.npy file of numbers, found a damaged or foreign one"),
    (nan_nifti, r"v\.nii\.gz: expected finite values, found NaN or infinity"),
    (nan_npy, r"c2\.npy: expected finite values, found NaN or infinity"),
    (nan_tif, r"c2\.tif: expected finite values, found NaN or infinity"),
    (mask_of_another_size, r"masks/c1\.png: expected 1x12x16 .* like its image, found 1x12x17"),
    (volume_mask_of_another_size, r"masks/v\.nii\.gz: expected 4x12x16 .* found 3x12x16"),
    (mask_elsewhere, r"masks/v\.nii\.gz: expected the same place in space as v\.nii\.gz, found it up to 50 mm away"),
    (mask_without_a_place, r"v\.npy: expected a mask with a place in space like its image v\.nii\.gz"),
    (colour_mask, r"masks/c1\.png: expected a mask of one channel, found 3 different ones"),
    (missing_mask, r"images/c1\.png: expected a mask for the case 'c1' in .*masks, found none"),
    (missing_target, r"b\.png: expected a mask of the target 'edge' by the rater 'r1' for the case 'b', found none"),
    (mask_of_no_image, r"masks/c9\.png: expected a mask called .* found one that fits no image"),
    (other_values, r"masks/c1\.png: expected the values 0 and one other value .* found 0, 1, 2, .*, \.\.\."),
    (negative_values, r"masks/c1\.npy: expected the values 0 and one other value .* found -1"),
    (duplicate_case, r"c1\.tif: expected each case once, found it also as .*c1\.png"),
    (duplicate_mask, r"masks/c1\.tif: expected each case once, found it also as .*c1\.png"),
    (flat_image, r"c1\.npy: expected values that differ, found 1 at both percentiles"),
    (linked_image, r"c9\.png: expected a path inside .*data, found one that leads to .*secret\.png"),
    (linked_folder, r"masks/more: expected a path inside .*data, found one that leads to .*outside"),
    (linked_masks, r"masks: expected a path inside .*data, found one that leads to .*outside"),
    (five_dimensions, r"c1\.npy: expected an array \(H, W\), \(H, W, 3\) or \(slices, H, W\), found \(2, 2, 12, 16\)"),
    (no_images, r"images: expected images \(\.png, .*\), found none"),
    (no_masks, r"masks: expected masks, found none"),
]


def test_bad_input_is_one_sentence(tmp_path):
    for make, sentence in BAD:
        root = tmp_path / make.__name__ / "data"
        root.parent.mkdir()
        make(root)
        assert re.search(sentence, refused(lambda root=root: cases(root))), make.__name__


def test_bad_tables(tmp_path):
    simple(tmp_path / "data")
    options = Options(table=tmp_path / "t.csv")
    refused(lambda: read(tmp_path / "data", options), "t.csv: expected a CSV file, found no such file")
    for text, sentence in (
        (
            "case,patient\nc0,a\nc1,b\nc2,c\nc7,d\n",
            "line 5: expected the name of a case .* found an unknown case: 'c7'",
        ),
        ("case,patient\n../../etc/passwd,a\n", r"line 2: .* found a path: '\.\./\.\./etc/passwd'"),
        ("case,patient\n/etc/passwd,a\n", "line 2: .* found a path: '/etc/passwd'"),
        ("case,patient\nc0,a\nc1,b\n", "expected every case of the folder, found no 'c2'"),
        ("case,patient\nc0,a\nc0,b\n", "line 3: expected each case once, found 'c0' again"),
        ("case,patient\nc0,\n", "line 2: expected a patient for the case 'c0', found none"),
        ("case,patient,split\nc0,a,train\nc1,a,test\n", "line 3: expected the patient 'a' in one split"),
        ("case,patient,split\nc0,a,dev\n", "line 2: expected the split train, val, test, found 'dev'"),
        ("case,patient,split\nc0,a,\n", "line 2: expected the split train, val, test, found ''"),
        ("case,patient\nc0\n", "line 2: expected 2 columns, found another number"),
        ("name,who\nc0,a\n", "expected the columns case, patient and perhaps split, found no case and no patient"),
        ("", "expected the columns case, patient and perhaps split, found"),
        ("case,patient\n\xe9", "expected a CSV file, found something else"),
        ('case,patient\n"c0,a', "expected a CSV file, found something else"),
    ):
        (tmp_path / "t.csv").write_bytes(text.encode("latin-1"))
        assert re.search(r"t\.csv.*" + sentence, refused(lambda: read(tmp_path / "data", options))), text


def test_bad_options(tmp_path):
    simple(tmp_path)
    for options, sentence in (
        ({"images": ".."}, r"expected a path inside .* found one that leads to"),
        ({"masks": "/"}, r"expected a path inside .* found one that leads to /"),
        ({"image_name": "{rater}"}, r"--image-name: expected a name made of \{case\}, \{channel\}"),
        ({"mask_name": "{case}_{case}"}, r"--mask-name: expected a name made of \{case\}, \{rater\}, \{target\}"),
        ({"image_name": "x{case}"}, r"c0\.png: expected an image called x\{case\} \(--image-name\), found 'c0'"),
        ({"mask_name": "{case}_m"}, r"masks/c0\.png: expected a mask called \{case\}_m after an image"),
        ({"patient": "("}, r"--patient: expected a regular expression, found '\('"),
        ({"patient": "p(.)"}, r"--patient: expected 'p\(\.\)' to find a patient in 'c0', found none"),
        ({"patient": "c", "table": Path("t.csv")}, "--patient: expected no --table beside it"),
        ({"size": (0, 4)}, "--size: expected at least 1, found 0"),
        ({"window": (4, 4)}, "--window: expected a lower and a higher value"),
        ({"window": (0, 4), "scale": "dtype"}, "--window: expected no --scale beside it, found --scale dtype"),
        ({"tails": -1}, "--tails: expected at least 0.0, found -1"),
        ({"foreground": (0,)}, "--foreground: expected values other than 0"),
        ({"foreground": (1,), "threshold": 127}, "expected one of them at most"),
        (
            {"labels": ("liver",)},
            "--labels: expected different names and values such as liver=1 tumour=2 or wt=1,2,4, found 'liver'",
        ),
        ({"labels": ("a=1", "b=1")}, "--labels: .* found 'b=1'"),
        ({"labels": ("a=0",)}, "--labels: .* found 'a=0'"),
    ):
        made = Options(**options)
        found = refused(lambda made=made: prepare("folder", tmp_path, tmp_path / "s", made))
        assert re.search(sentence, found), options


def test_scale_by_type_needs_a_type_with_a_range(tmp_path):
    with pytest.raises(InputError, match=r"v\.nii\.gz: expected unsigned .* for --scale dtype, found float32"):
        cases(volume(tmp_path), scale="dtype")
