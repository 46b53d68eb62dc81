"""One reader for all files: what a model takes, in one form, and the way back to each file's grid."""

from pathlib import Path

import nibabel
import numpy as np
import pytest
from dicom_writer import write_slice
from folder_writer import LPS, H, W, picture, save

from berdiff.data.image import Source
from berdiff.data.reading import image_array, kind_of, outline, read_image, read_images, stem
from refusals import refused

RNG = np.random.default_rng(0)


def test_kinds_and_names(tmp_path):
    kinds = {"a.png": "png", "a.JPG": "png", "a.tiff": "png", "a.nii": "nifti", "a.NII.GZ": "nifti", "a.npy": "npy"}
    for name, kind in {**kinds, "a.dcm": "dicom"}.items():
        assert kind_of(tmp_path / name) == kind
        assert stem(Path(name)) == "a"
    write_slice(tmp_path / "IM0001", picture().astype(int))
    (tmp_path / "notes.txt").write_text("no image")
    assert (kind_of(tmp_path / "IM0001"), kind_of(tmp_path), kind_of(tmp_path / "notes.txt")) == (
        "dicom",
        "dicom",
        None,
    )


def test_arrays_are_arranged_by_shape_and_channels():
    for shape, channels, expected, planar in (
        ((H, W), 1, (1, 1, H, W), True),
        ((1, H, W), 1, (1, 1, H, W), True),
        ((5, H, W), 1, (1, 5, H, W), False),
        ((1, 5, H, W), 1, (1, 5, H, W), False),
        ((3, H, W), 3, (3, 1, H, W), True),
        ((H, W, 3), 3, (3, 1, H, W), True),
        ((4, 5, H, W), 4, (4, 5, H, W), False),
        ((H, W, 3), None, (3, 1, H, W), True),
        ((5, H, W), None, (1, 5, H, W), False),
    ):
        file = image_array(RNG.random(shape), channels, "x")
        assert (file.values.shape, file.grid.planar, file.source.kind) == (expected, planar, "array")
        assert file.source.shape == (expected[2:] if planar else expected[1:])
    assert image_array(np.ones((5, H, W), bool), 1, "x", (2, 1, 1)).values.max() == 255
    for array, channels, spacing, where, code in (
        (np.ones((H, W, 3)), 1, None, "x", "shape"),
        (np.ones((5, H, W)), 4, None, "x", "shape"),
        (np.ones((2, 5, H, W)), None, None, "x", "shape"),
        (np.array([["a"]]), 1, None, "x", "kind"),
        (np.full((H, W), np.nan), 1, None, "x", "value"),
        (np.ones((H, W)), 1, (1, 1, 1), "spacing", "value"),
        (np.ones((H, W)), 1, (1, 0), "spacing", "value"),
    ):
        with refused(where, code=code):
            image_array(array, channels, "x", spacing)


def test_one_file_several_files_and_a_series(tmp_path):
    four = RNG.normal(size=(4, 5, H, W)).astype(np.float32)
    nibabel.save(nibabel.Nifti1Image(four.T, LPS), tmp_path / "joint.nii.gz")
    np.testing.assert_array_equal(read_images([tmp_path / "joint.nii.gz"], 4).values, four)
    paths = [save(tmp_path / f"{i}.nii.gz", volume) for i, volume in enumerate(four)]
    joined = read_images(paths, 4)
    np.testing.assert_array_equal(joined.values, four)
    assert joined.source.paths == tuple(paths)
    assert joined.grid.spacing == pytest.approx((2, 0.75, 0.5))
    for z in range(3):
        write_slice(tmp_path / "ct" / f"{z}.dcm", picture(z).astype(int), 2.5 * z)
    series = read_images(sorted((tmp_path / "ct").iterdir()), 1)
    assert (series.values.shape, series.ct, series.source.kind) == ((1, 3, H, W), True, "dicom")
    back = series.source.to_stored(series.values)
    np.testing.assert_array_equal(back[0], np.stack([picture(z) for z in range(3)]) - 1024.0)
    assert back.shape[1:] == series.source.shape
    wide = save(tmp_path / "wide.nii.gz", np.ones((5, H, W + 1), np.float32))
    with refused("wide.nii.gz", code="shape"):
        read_images([paths[0], wide], 2)
    moved = LPS.copy()
    moved[0, 3] = 9
    with refused("moved.nii.gz", code="place"):
        read_images([paths[0], save(tmp_path / "moved.nii.gz", four[0], moved)], 2)


def test_the_outline_is_what_reading_gives(tmp_path):
    files = [
        save(tmp_path / "a.png", picture()),
        save(tmp_path / "b.png", picture(0, (H, W, 3))),
        save(tmp_path / "c.tif", picture(dtype=np.uint16)),
        save(tmp_path / "d.npy", picture(0, (5, H, W))),
        save(tmp_path / "e.nii.gz", np.ones((5, H, W), np.int16)),
        save(tmp_path / "f.nii", picture()),
        write_slice(tmp_path / "g" / "0.dcm", picture().astype(int)),
        tmp_path / "g",
    ]
    for path in files:
        seen, file = outline([path]), read_image(path)
        channels, depth, *size = file.values.shape
        assert (seen.channels, seen.slices, seen.size) == (channels, None if file.grid.planar else depth, tuple(size))
        assert seen.eight_bit == (file.values.dtype == np.uint8 and file.source.kind in ("png", "npy"))
    array = RNG.random((2, 3, 4))
    assert Source("png").to_stored(array) is array  # 2D images are as stored
