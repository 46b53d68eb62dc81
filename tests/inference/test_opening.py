"""Inputs as the network sees them: by the model's own intensity rule, in training and in use alike."""

import h5py
import nibabel
import numpy as np
import pytest
from dicom_writer import write_slice
from PIL import Image

from berdiff.errors import InputError
from berdiff.inference.region import Region
from berdiff.inference.settings import SegmentSettings
from fakes import bright_model, make_spec
from refusals import refused

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (12, 20), dtype=np.uint8)
CT = {"rule": "window", "window": (-1024.0, 976.0)}


def opened(image, spec=None, settings=SegmentSettings(), **options):  # noqa: B008
    return bright_model(spec).open(image, settings, **options)


def save_nifti(path, stored, affine):
    nibabel.save(nibabel.Nifti1Image(stored, affine), path)
    return path


def test_pictures_are_divided_by_255_unless_a_window_is_asked_for(tmp_path):
    Image.fromarray(GREY).save(tmp_path / "two.dots.png")
    image = opened(tmp_path / "two.dots.png", make_spec(**CT))  # the model's window is for raw values
    np.testing.assert_array_equal(image.image, GREY[None].astype(np.float32) / 255)
    assert (image.name, image.grid.source.kind, image.grid.source.shape) == ("two.dots", "png", (12, 20))
    assert np.isnan(image.grid.spacing).all()
    forced = opened(tmp_path / "two.dots.png", make_spec(**CT), SegmentSettings(window=(50, 100)))
    np.testing.assert_allclose(forced.image, np.clip((GREY[None].astype(np.float32) - 50) / 50, 0, 1), atol=1e-6)


def test_minimum_and_maximum_in_the_field_around_the_region_by_hand():
    volume = RNG.normal(0, 300, (3, 40, 50)).astype(np.float32)
    region = SegmentSettings(region=Region(center=(10, 20)))
    found = opened(volume, make_spec(rule="minmax", field=16), region).image[0]
    for z in range(3):
        seen = volume[z, 2:18, 12:28]
        expected = np.clip((volume[z] - seen.min()) / (seen.max() - seen.min()), 0, 1)
        np.testing.assert_allclose(found[z], expected, atol=1e-5)
    whole = opened(volume, make_spec(rule="minmax", field=128)).image[0]
    for z in range(3):
        np.testing.assert_allclose(whole[z], (volume[z] - volume[z].min()) / np.ptp(volume[z]), atol=1e-5)


def test_a_dicom_series_comes_upright_and_goes_back_to_its_files(tmp_path):
    """Files named against the order of the slices, stored from the head down: each mask finds its own file."""
    stack = RNG.integers(0, 2000, (4, 6, 7)).astype(np.int16)
    for z in range(4):
        write_slice(tmp_path / f"{9 - z}.dcm", stack[z], z=100 - 2.5 * z, spacing=(0.6, 0.8))
    image = opened(tmp_path, make_spec(**CT))
    assert image.grid.spacing == pytest.approx((2.5, 0.6, 0.8))
    assert image.grid.aspect == pytest.approx(0.75)
    np.testing.assert_allclose(image.image[0], stack[::-1] / 2000, atol=1e-6)  # slice 0 is the lowest
    back = image.grid.source.to_stored(image.image[0])
    for plane, path in zip(back, image.grid.source.paths, strict=True):
        np.testing.assert_allclose(plane, stack[9 - int(path.stem)] / 2000, atol=1e-6)
    one = opened(tmp_path / "9.dcm", make_spec(**CT))  # a file by itself is a 2D image
    np.testing.assert_allclose(one.image[0], stack[0] / 2000, atol=1e-6)
    with pytest.raises(InputError, match="expected a model that names its window of Hounsfield units, or --window"):
        opened(tmp_path)


def test_sequences_are_channels_of_one_place(tmp_path):
    spec = make_spec(channels=("t1", "t2"))
    values = RNG.random((2, 4, 5, 6)).astype(np.float32)
    for name, volume in zip(spec.channels, values, strict=True):
        save_nifti(tmp_path / f"a_{name}.nii.gz", volume, np.diag([-1.0, -1, 2, 1]))
    image = opened(tmp_path, spec)
    np.testing.assert_array_equal(image.image, values.transpose(0, 3, 2, 1))
    assert image.grid.spacing == pytest.approx((2, 1, 1))
    save_nifti(tmp_path / "a_t2.nii.gz", values[0], np.diag([-1.0, -1, 2.9, 1]))
    with refused("a_t2.nii.gz", code="place"):
        opened(tmp_path, spec)
    lone = save_nifti(tmp_path / "b.nii.gz", values[0], np.eye(4))
    with refused("b.nii.gz", code="shape"):
        opened(lone, spec)


def test_the_real_series_looks_as_the_packed_slices_of_the_same_patient(shared_data):
    """Slices of LIDC-IDRI-0001 in the public set against the DICOM: at most one grey level apart."""
    series = next((shared_data / "layouts" / "lidc_dicom").glob("*/*/*"))
    settings = SegmentSettings(region=Region(center=(366, 316)))
    image = opened(series, make_spec(size=(64, 64), rule="minmax", field=128), settings).image[0]
    with h5py.File(shared_data / "lidc" / "data_lidc.hdf5") as file:
        uids = file["test"]["uids"][:].astype(str)
        packed = file["test"]["images"][np.flatnonzero(uids == "LIDC-IDRI-0001")]
    for z, grey in zip(range(3, 12), packed, strict=True):
        assert np.abs(image[z, 302:430, 252:380] * 255 - grey).max() <= 1.0
