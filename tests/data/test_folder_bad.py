"""Anyone's folder, with each thing that can be wrong: one sentence that names the file, or the option."""

import os
from pathlib import Path

import numpy as np
import pytest
from folder_writer import LPS, H, W, blob, cases, picture, save, simple
from layouts import refused

from berdiff.data.prepare import prepare
from berdiff.data.sources.folder import Options, read
from berdiff.errors import InputError


def pickle_npy(root):
    np.save(simple(root, suffix=".npy") / "images" / "c1.npy", np.array([os.getcwd], dtype=object))


def volume(root, image=None, mask=None, mask_affine=LPS):
    save(root / "images" / "v.nii.gz", np.random.default_rng(0).normal(size=(4, H, W)) if image is None else image)
    save(root / "masks" / "v.nii.gz", np.ones((4, H, W), np.uint8) if mask is None else mask, mask_affine)
    return root


def mask_of_another_size(root):
    save(simple(root) / "masks" / "c1.png", blob(0, (H, W + 1)))


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


def flat_image(root):
    save(simple(root, suffix=".npy") / "images" / "c1.npy", np.ones((H, W)))


def linked_image(root):
    outside = save(root.parent / "secret.png", picture())
    (simple(root) / "images" / "c9.png").symlink_to(outside)


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
    (pickle_npy, "c1.npy"),
    (mask_of_another_size, "masks/c1.png"),
    (mask_elsewhere, "masks/v.nii.gz"),
    (mask_without_a_place, "v.npy"),
    (colour_mask, "masks/c1.png"),
    (missing_mask, "images/c1.png"),
    (missing_target, "b.png"),
    (mask_of_no_image, "masks/c9.png"),
    (other_values, "masks/c1.png"),
    (negative_values, "masks/c1.npy"),
    (duplicate_case, "c1.tif"),
    (flat_image, "c1.npy"),
    (linked_image, "c9.png"),
    (linked_masks, "masks"),
    (five_dimensions, "c1.npy"),
    (no_images, "images"),
    (no_masks, "masks"),
]


def test_bad_input_is_one_sentence(tmp_path):
    for make, named in BAD:
        root = tmp_path / make.__name__ / "data"
        root.parent.mkdir()
        make(root)
        refused(lambda root=root: cases(root), str(root), named)


def test_bad_tables(tmp_path):
    simple(tmp_path / "data")
    options = Options(table=tmp_path / "t.csv")
    refused(lambda: read(tmp_path / "data", options), "t.csv")
    for text, named in (
        ("case,patient\nc0,a\nc1,b\nc2,c\nc7,d\n", "line 5"),
        ("case,patient\n../../etc/passwd,a\n", "line 2"),
        ("case,patient\n/etc/passwd,a\n", "line 2"),
        ("case,patient\nc0,a\nc1,b\n", "c2"),
        ("case,patient\nc0,a\nc0,b\n", "line 3"),
        ("case,patient\nc0,\n", "line 2"),
        ("case,patient,split\nc0,a,train\nc1,a,test\n", "line 3"),
        ("case,patient,split\nc0,a,dev\n", "line 2"),
        ("case,patient,split\nc0,a,\n", "line 2"),
        ("case,patient\nc0\n", "line 2"),
        ("name,who\nc0,a\n", "case, patient"),
        ("", "case, patient"),
        ("case,patient\n\xe9", ""),
        ('case,patient\n"c0,a', ""),
    ):
        (tmp_path / "t.csv").write_bytes(text.encode("latin-1"))
        refused(lambda: read(tmp_path / "data", options), "t.csv", named)


def test_bad_options(tmp_path):
    simple(tmp_path)
    for options, named in (
        ({"images": ".."}, str(tmp_path)),
        ({"masks": "/"}, str(tmp_path)),
        ({"image_name": "{rater}"}, "--image-name"),
        ({"mask_name": "{case}_{case}"}, "--mask-name"),
        ({"image_name": "x{case}"}, "c0.png"),
        ({"mask_name": "{case}_m"}, "masks/c0.png"),
        ({"patient": "("}, "--patient"),
        ({"patient": "p(.)"}, "--patient"),
        ({"patient": "c", "table": Path("t.csv")}, "--patient"),
        ({"size": (0, 4)}, "--size"),
        ({"window": (4, 4)}, "--window"),
        ({"window": (0, 4), "scale": "dtype"}, "--window"),
        ({"tails": -1}, "--tails"),
        ({"foreground": (0,)}, "--foreground"),
        ({"foreground": (1,), "threshold": 127}, "--threshold"),
        ({"labels": ("liver",)}, "--labels"),
        ({"labels": ("a=1", "b=1")}, "b=1"),
        ({"labels": ("a=0",)}, "a=0"),
    ):
        made = Options(**options)
        refused(lambda made=made: prepare("folder", tmp_path, tmp_path / "s", made), named)


def test_scale_by_type_needs_a_type_with_a_range(tmp_path):
    with pytest.raises(InputError, match=r"v\.nii\.gz: expected unsigned .* for --scale dtype, found float32"):
        cases(volume(tmp_path), scale="dtype")
