"""NIfTI and DICOM volumes: any stored order comes back upright, and each defect is one sentence that names it."""

import gzip
import itertools

import nibabel
import numpy as np
import pytest
from dicom_writer import write_slice

from berdiff.data.image import check_same_place
from berdiff.data.reading import outline, read_image
from berdiff.data.volumes import (
    read_plane,
    read_volume,
    shape_of,
    stored_shape,
    whole_labels,
)
from refusals import refused

UPRIGHT = np.arange(3 * 4 * 5, dtype=np.int16).reshape(3, 4, 5)  # (slice, row, column)


def save(path, array, affine=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(array, np.diag([-1.0, -1, 1, 1]) if affine is None else affine), path)
    return path


def test_every_stored_orientation_gives_the_same_upright_voxels_and_the_way_back(tmp_path):
    """By hand: voxel (z, y, x) lies x left of, y behind, z above the origin, in steps of 1.5, 2 and 3 mm."""
    step = {"x": (-1.5, 0, 0), "y": (0, -2.0, 0), "z": (0, 0, 3.0)}  # in right, front, up
    for axes, signs in itertools.product(itertools.permutations("xyz"), itertools.product((1, -1), repeat=3)):
        stored = UPRIGHT.transpose(*("zyx".index(axis) for axis in axes))
        affine = np.eye(4)
        for place, (axis, sign) in enumerate(zip(axes, signs, strict=True)):
            affine[:3, place] = np.multiply(step[axis], sign)
            if sign < 0:
                stored = np.flip(stored, place)
                affine[:3, 3] += np.multiply(step[axis], stored.shape[place] - 1)
        path = save(tmp_path / "v.nii.gz", np.ascontiguousarray(stored), affine)
        volume = read_volume(path)
        np.testing.assert_array_equal(volume.values[0], UPRIGHT)
        assert volume.grid.spacing == pytest.approx((3.0, 2.0, 1.5))
        np.testing.assert_allclose(volume.grid.affine @ [1, 1, 1, 1], [-1.5, -2, 3, 1])
        assert shape_of(path) == UPRIGHT.shape
        back = read_image(path).grid.to_stored(np.stack([UPRIGHT, -UPRIGHT]))
        np.testing.assert_array_equal(back, [stored, -stored])


def test_four_dimensions_become_channels_first(tmp_path):
    stored = np.stack([UPRIGHT.T, 10 * UPRIGHT.T], axis=-1)
    path = save(tmp_path / "v.nii", stored)
    np.testing.assert_array_equal(read_volume(path, ndim=4).values, [UPRIGHT, 10 * UPRIGHT])
    assert shape_of(path, ndim=4) == (2, 3, 4, 5)
    with refused("v.nii", "5x4x3x2", code="shape"):
        read_volume(path)


def test_a_plane_keeps_rows_first(tmp_path):
    path = save(tmp_path / "p.nii.gz", UPRIGHT[0])
    np.testing.assert_array_equal(read_plane(path), UPRIGHT[0])
    assert stored_shape(path) == (4, 5)
    with refused("v.nii", "5x4x3", code="shape"):
        read_plane(save(tmp_path / "v.nii", UPRIGHT.T))


def test_scaled_values_come_as_float32(tmp_path):
    image = nibabel.Nifti1Image(UPRIGHT.T, np.eye(4))
    image.header.set_slope_inter(0.5, -1)
    nibabel.save(image, tmp_path / "v.nii")
    expected = nibabel.load(tmp_path / "v.nii").get_fdata()
    volume = read_volume(tmp_path / "v.nii")
    assert volume.values.dtype == np.float32
    np.testing.assert_allclose(np.sort(volume.values.ravel()), np.sort(expected.ravel()), rtol=1e-6)


def test_a_dicom_series_lies_where_its_tags_place_it(tmp_path):
    """Each voxel holds a number of its own; its place by the DICOM formula must be its place by the affine."""
    for number, orientation in enumerate(([1, 0, 0, 0, 1, 0], [0, 1, 0, 0, 0, -1], [1, 0, 0, 0, 0, -1])):
        check_places(tmp_path / str(number), orientation)


def check_places(folder, orientation):
    across, down = np.reshape(orientation, (2, 3))
    normal = np.cross(across, down)
    where = {}
    for i in (2, 0, 1):
        stored = np.arange(20).reshape(4, 5) + 100 * i
        position = np.array([-100.0, -120.0, 30.0]) + 2.5 * i * normal
        write_slice(
            folder / f"{i}.dcm",
            stored + 1024,
            spacing=(0.5, 0.75),
            ImagePositionPatient=position.tolist(),
            ImageOrientationPatient=orientation,
        )
        for row, column in itertools.product(range(4), range(5)):
            where[stored[row, column]] = (
                position + 0.75 * column * across + 0.5 * row * down
            )  # DICOM part 3, C.7.6.2.1.1
    volume = read_image(folder)
    values, affine, seen = volume.values[0], volume.grid.affine, outline([folder])
    assert (seen.slices, *seen.size) == values.shape
    for z, y, x in np.ndindex(values.shape):
        left_back_up = where[int(values[z, y, x])]
        np.testing.assert_allclose((affine @ [x, y, z, 1])[:3], left_back_up * [-1, -1, 1], atol=1e-9)
    assert (np.diag(affine)[:3] * [-1, -1, 1] > 0).all()  # left, back, up


def test_one_slice_is_a_volume_of_one(tmp_path):
    write_slice(tmp_path / "a.dcm", np.zeros((4, 5)))
    series, one = read_image(tmp_path), read_image(tmp_path / "a.dcm")
    assert (series.values.shape, series.grid.planar) == ((1, 1, 4, 5), False)
    assert (one.values.shape, one.grid.planar) == ((1, 1, 4, 5), True)


def test_volumes_elsewhere_are_refused(tmp_path):
    here = read_volume(save(tmp_path / "a.nii", UPRIGHT.T))
    moved = np.diag([-1.0, -1, 1, 1])
    moved[0, 3] = 0.4
    check_same_place(here, read_volume(save(tmp_path / "near.nii", UPRIGHT.T, moved)))
    moved[0, 3] = 7
    with refused("far.nii", "7 mm", code="place"):
        check_same_place(here, read_volume(save(tmp_path / "far.nii", UPRIGHT.T, moved)))
    with refused("small.nii", "2x4x5", code="shape"):
        check_same_place(here, read_volume(save(tmp_path / "small.nii", UPRIGHT[:2].T)))
    # the corner far from the origin shows another voxel size
    with refused("wide.nii", code="place"):
        check_same_place(here, read_volume(save(tmp_path / "wide.nii", UPRIGHT.T, np.diag([-1.3, -1, 1, 1]))))


def test_labels_must_be_the_declared_ones(tmp_path):
    labels = np.array([[0.0, 4.0], [2.0, 0.0]])
    found = whole_labels(labels, (0, 1, 2, 4), tmp_path)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, labels)
    for wrong in (3, 0.5, -1):
        with refused(tmp_path, "0, 1, 2, 4", code="value"):
            whole_labels(np.array([0, wrong]), (0, 1, 2, 4), tmp_path)


def test_damaged_and_foreign_files_are_named(tmp_path):
    for suffix in (".nii", ".nii.gz"):
        path = save(tmp_path / f"v{suffix}", np.random.default_rng(0).integers(0, 999, (20, 20, 20), np.int16))
        whole = path.read_bytes()
        for bad in (whole[: len(whole) * 2 // 3], whole[:100], b"\x89PNG\r\n\x1a\n" + bytes(500), b""):
            path.write_bytes(bad)
            with refused(path, code="damaged"):
                read_volume(path)
    path.write_bytes(gzip.compress(b"hello " * 200))
    with refused(path, code="damaged"):
        read_volume(path)


def test_other_bad_files(tmp_path):
    save(tmp_path / "complex.nii", UPRIGHT.T.astype(np.complex64))
    whole = save(tmp_path / "huge.nii", UPRIGHT.T).read_bytes()
    huge, flat = bytearray(whole), bytearray(whole)
    huge[40:56] = np.array([3, 32767, 32767, 32767, 1, 1, 1, 1], "<i2").tobytes()
    flat[280:328] = bytes(48)  # the three rows of the sform
    (tmp_path / "huge.nii").write_bytes(huge)
    (tmp_path / "flat.nii").write_bytes(flat)
    for name, code in (("none.nii", "missing"), ("complex.nii", "kind"), ("huge.nii", "limit"), ("flat.nii", "place")):
        with refused(tmp_path / name, code=code):
            read_volume(tmp_path / name)
