"""Files as the network sees them, and masks back on the file's own grid, exactly."""

import itertools

import nibabel
import numpy as np
import pytest
import tifffile
from dicom_writer import write_slice
from PIL import Image

from berdiff.errors import InputError
from berdiff.inference.inputs import find
from berdiff.inference.intensity import Intensity
from berdiff.inference.reading import Opened, arranged, from_array, read

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (12, 20), dtype=np.uint8)


def opened(path, channels=1, intensity=None, names=()) -> Opened:
    (item,) = find([path], names)
    return read(item, channels, intensity or Intensity(), names)


def save_nifti(path, stored, affine):
    nibabel.save(nibabel.Nifti1Image(stored, affine), path)
    return path


@pytest.mark.parametrize("suffix", ["png", "tif", "two.dots.png"])
def test_an_8_bit_picture_is_divided_by_255(tmp_path, suffix):
    Image.fromarray(GREY).save(tmp_path / f"a.{suffix}")
    image = opened(tmp_path / f"a.{suffix}", intensity=Intensity(window=(-1000, 400)))  # a window is for raw values
    np.testing.assert_array_equal(image.image, GREY[None].astype(np.float32) / 255)
    assert np.isnan(image.spacing).all()
    np.testing.assert_array_equal(image.source.to_stored(image.image), image.image)
    assert image.source.shape == (12, 20)


def test_a_window_that_is_asked_for_holds_for_every_file(tmp_path):
    Image.fromarray(GREY).save(tmp_path / "a.png")
    rule = Intensity.of({"window": [-1000, 400]}, window=(50, 100))
    expected = np.clip((GREY[None].astype(np.float32) - 50) / 50, 0, 1)
    np.testing.assert_allclose(opened(tmp_path / "a.png", intensity=rule).image, expected, atol=1e-6)


def test_16_bits_and_floats(tmp_path):
    wide = (GREY.astype(np.uint16) * 257).astype(np.uint16)
    tifffile.imwrite(tmp_path / "a.tif", wide)
    np.testing.assert_allclose(opened(tmp_path / "a.tif").image[0], GREY / 255, atol=1e-6)
    unit = RNG.random((12, 20), np.float32)
    np.save(tmp_path / "b.npy", unit)
    np.testing.assert_array_equal(opened(tmp_path / "b.npy").image[0], unit)
    np.save(tmp_path / "c.npy", unit * 900 - 300)
    low, high = np.percentile(unit * 900 - 300, (1, 99))
    expected = np.clip((unit * 900 - 300 - low) / (high - low), 0, 1)
    np.testing.assert_allclose(opened(tmp_path / "c.npy").image[0], expected, atol=1e-5)
    found = opened(tmp_path / "c.npy", intensity=Intensity(window=(-100, 200))).image[0]
    np.testing.assert_allclose(found, np.clip((unit * 900 - 300 + 100) / 300, 0, 1), atol=1e-5)


def test_a_brain_is_scaled_as_brats_is_prepared():
    """By hand: percentiles of what is not 0, each sequence by itself, and 0 stays 0."""
    brain = RNG.normal(500, 100, (2, 3, 8, 8)).astype(np.float32)
    brain[:, :, :3] = 0
    found = from_array(brain, 2, Intensity(scale="brain", tails=2.0), "x").image
    for channel in range(2):
        low, high = np.percentile(brain[channel][brain[channel] != 0], (2, 98))
        expected = np.where(brain[channel] == 0, 0, np.clip((brain[channel] - low) / (high - low), 0, 1))
        np.testing.assert_allclose(found[channel], expected, atol=1e-5)


OBLIQUE = np.array([[0.9, -0.2, 0.1, -30], [0.25, 1.1, -0.3, 12], [-0.05, 0.4, 2.4, 7], [0, 0, 0, 1]])


@pytest.mark.parametrize("axes", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("signs", [(1, 1, 1), (-1, 1, -1), (-1, -1, 1)])
def test_nifti_comes_upright_and_goes_back_exactly(tmp_path, axes, signs):
    """Any axis order and direction, oblique too: every voxel returns to where it was stored."""
    affine = OBLIQUE[:, [*axes, 3]] @ np.diag([*signs, 1.0])
    stored = RNG.integers(-1000, 1000, (5, 6, 7)).astype(np.int16)
    path = save_nifti(tmp_path / "v.nii.gz", stored, affine)
    image = opened(path, intensity=Intensity(window=(-1000, 1000)))
    np.testing.assert_allclose(image.source.affine, affine, atol=1e-6)
    assert image.source.shape == (5, 6, 7)
    back = image.source.to_stored(image.image)
    np.testing.assert_allclose(back[0], (stored + 1000) / 2000, atol=1e-6)
    several = image.source.to_stored(np.stack([image.image, image.image]))  # leading axes stay
    np.testing.assert_array_equal(several[1], back)
    column, row, between = (np.linalg.norm(OBLIQUE[:3, i]) for i in range(3))
    assert image.spacing == pytest.approx((between, row, column))


def test_nifti_of_several_channels_and_of_one_slice(tmp_path):
    stored = RNG.random((4, 5, 3, 2)).astype(np.float32)
    image = opened(save_nifti(tmp_path / "v.nii", stored, np.diag([-1.0, -1, 2, 1])), channels=2)
    np.testing.assert_array_equal(image.image, stored.T)
    assert image.spacing == pytest.approx((2, 1, 1))
    plane = opened(save_nifti(tmp_path / "p.nii", stored[:, :, 0, 0], np.eye(4)))
    np.testing.assert_array_equal(plane.image[0], stored[:, :, 0, 0])
    np.testing.assert_array_equal(plane.source.to_stored(plane.image)[0], stored[:, :, 0, 0])


def test_a_dicom_series_comes_upright_and_goes_back_to_its_files(tmp_path):
    """Files named against the order of the slices, stored from the head down: each mask finds its own file."""
    stack = RNG.integers(0, 2000, (4, 6, 7)).astype(np.int16)
    for z in range(4):
        write_slice(tmp_path / f"{9 - z}.dcm", stack[z], z=100 - 2.5 * z, spacing=(0.6, 0.8))
    image = opened(tmp_path, intensity=Intensity(window=(-1024, 976)))
    assert image.spacing == pytest.approx((2.5, 0.6, 0.8))
    np.testing.assert_allclose(image.image[0], stack[::-1] / 2000, atol=1e-6)  # slice 0 is the lowest
    back = image.source.to_stored(image.image[0])
    for plane, path in zip(back, image.source.paths, strict=True):
        np.testing.assert_allclose(plane, stack[9 - int(path.stem)] / 2000, atol=1e-6)


def test_a_sagittal_series_goes_back_too(tmp_path):
    stack = RNG.integers(0, 2000, (3, 6, 7)).astype(np.int16)
    for x in range(3):
        write_slice(
            tmp_path / f"{x}.dcm",
            stack[x],
            ImageOrientationPatient=[0, 1, 0, 0, 0, -1],
            ImagePositionPatient=[3.0 * x, -100, 50],
        )
    image = opened(tmp_path, intensity=Intensity(window=(-1024, 976)))
    assert image.image.shape == (1, 6, 7, 3)  # upright: slices from below, rows from the front, columns from the right
    for plane, path in zip(image.source.to_stored(image.image[0]), image.source.paths, strict=True):
        np.testing.assert_allclose(plane, stack[int(path.stem)] / 2000, atol=1e-6)


def test_one_dicom_file_is_a_2d_image_with_its_spacing(tmp_path):
    pixels = RNG.integers(0, 2000, (6, 7)).astype(np.int16)
    path = write_slice(tmp_path / "a.dcm", pixels, spacing=(0.6, 0.8))
    image = opened(path, intensity=Intensity(window=(-1024, 976)))
    np.testing.assert_allclose(image.image[0], pixels / 2000, atol=1e-6)
    assert image.spacing == (0.6, 0.8)
    assert image.source.paths == (path,)


def test_arrays_by_shape_and_channels():
    for channels, shape, expected in [
        (1, (8, 9), (1, 8, 9)),
        (1, (1, 8, 9), (1, 8, 9)),
        (1, (5, 8, 9), (1, 5, 8, 9)),
        (1, (1, 5, 8, 9), (1, 5, 8, 9)),
        (4, (4, 8, 9), (4, 8, 9)),
        (3, (8, 9, 3), (3, 8, 9)),
        (4, (4, 5, 8, 9), (4, 5, 8, 9)),
    ]:
        array = RNG.random(shape)
        found = arranged(array, channels, "x")
        assert found.shape == expected
        if shape == (8, 9, 3):
            np.testing.assert_array_equal(found, array.transpose(2, 0, 1))


def colour(path):
    Image.fromarray(RNG.integers(0, 256, (12, 20, 3), dtype=np.uint8)).save(path)


def cut_short(path):
    Image.fromarray(GREY).save(path)
    path.write_bytes(path.read_bytes()[:80])


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("a.png", lambda path: path.write_text("hello"), r"a\.png: expected a picture \(PNG, JPG or TIFF\), found"),
        ("a.png", cut_short, r"a\.png: expected a whole picture, found a damaged one"),
        ("a.png", colour, r"a\.png: expected 1 channel\(s\), found 3"),
        ("a.nii.gz", lambda path: path.write_bytes(b"x" * 500), r"a\.nii\.gz: expected a NIfTI file, found a damaged"),
        ("a.dcm", lambda path: path.write_bytes(b"x" * 500), r"a\.dcm: expected a DICOM file, found one that cannot"),
        ("a.npy", lambda path: path.write_bytes(b"x" * 500), r"a\.npy: expected a \.npy file of numbers, found"),
        ("a.npy", lambda path: np.save(path, np.array([{}], object)), r"a\.npy: expected a \.npy file of numbers"),
        ("a.npy", lambda path: np.save(path, np.full((8, 8), np.nan)), r"a\.npy: expected finite values, found NaN"),
        ("a.npy", lambda path: np.save(path, np.ones((2, 2, 8, 8))), r"a\.npy: expected an array \(H, W\).*found \(2"),
        ("a.npy", lambda path: np.save(path, np.full((8, 8), 7.0)), r"a\.npy: expected values that differ, found 7"),
    ],
)
def test_bad_files_are_told_in_one_sentence(tmp_path, name, make, message):
    make(tmp_path / name)
    with pytest.raises(InputError, match=message) as found:
        opened(tmp_path / name)
    assert "\n" not in str(found.value)


def test_a_ct_without_a_window_is_refused(tmp_path):
    path = write_slice(tmp_path / "a.dcm", np.ones((6, 7), np.int16))
    with pytest.raises(InputError, match=r"a\.dcm: expected a model that names its window of Hounsfield units, or"):
        opened(path)


def test_the_wrong_number_of_sequences(tmp_path):
    names = ("t1", "t2")
    save_nifti(tmp_path / "a.nii.gz", np.ones((4, 4, 4), np.float32), np.eye(4))
    with pytest.raises(InputError, match=r"a\.nii\.gz: expected 2 channel\(s\) \(t1, t2\), .* found 1"):
        opened(tmp_path / "a.nii.gz", 2, names=names)


def test_sequences_must_lie_in_one_place(tmp_path):
    names = ("t1", "t2")
    save_nifti(tmp_path / "a_t1.nii.gz", np.ones((4, 4, 4), np.float32), np.eye(4))
    moved = np.eye(4)
    moved[0, 3] = 3
    save_nifti(tmp_path / "a_t2.nii.gz", np.ones((4, 4, 4), np.float32), moved)
    with pytest.raises(InputError, match=r"a_t2\.nii\.gz: expected the same place in space as a_t1\.nii\.gz"):
        opened(tmp_path, 2, names=names)
    save_nifti(tmp_path / "a_t2.nii.gz", np.ones((4, 4, 5), np.float32), np.eye(4))
    with pytest.raises(InputError, match=r"a_t2\.nii\.gz: expected 4x4x4 pixels like a_t1\.nii\.gz, found 5x4x4"):
        opened(tmp_path, 2, names=names)


def test_spacing_and_window_must_make_sense():
    with pytest.raises(InputError, match="spacing: expected 2 positive numbers of mm"):
        from_array(GREY, 1, Intensity(), "x", (1.0, 1.0, 1.0))
    with pytest.raises(InputError, match="--window: expected a lower and a higher value, found 3 2"):
        Intensity.of({}, (3, 2))
