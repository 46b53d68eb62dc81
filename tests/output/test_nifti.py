"""NIfTI outputs lie exactly on their source: affine, header geometry and voxels, whatever the source's axes."""

import json
from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest
from made_results import file_result, grid_of, part_of, result_2d, threshold, write_series
from nibabel.eulerangles import euler2mat

from berdiff.data.image import Grid, Source
from berdiff.data.reading import read_image
from berdiff.inference.result import Result
from berdiff.output import exports


def placed(matrix: np.ndarray) -> np.ndarray:
    affine = np.eye(4)
    affine[:3, :3] = matrix
    affine[:3, 3] = -31.5, 12.25, 7.125
    return affine


SPACING = np.diag([0.7, 0.9, 2.5])
AFFINES = {
    "plain": placed(SPACING),
    "flipped": placed(np.diag([-0.7, -0.9, 2.5])),
    "upside down": placed(np.diag([0.7, -0.9, -2.5])),
    "sagittal": placed(np.array([[0, 0, 2.5], [-0.7, 0, 0], [0, 0.9, 0]])),
    "coronal": placed(np.array([[0.7, 0, 0], [0, 0, -2.5], [0, -0.9, 0]])),
    "oblique": placed(euler2mat(0.5, -0.2, 0.3) @ SPACING),
    "oblique and turned": placed(euler2mat(-0.3, 0.1, 0.2) @ np.array([[0, -0.9, 0], [0, 0, 2.5], [0.7, 0, 0]])),
}


def source_file(path: Path, affine: np.ndarray, kind: type = nibabel.Nifti1Image, form: str = "both") -> np.ndarray:
    """A file of whole numbers 0..99 with geometry in the s-form, the q-form or both; returns the numbers."""
    values = np.random.default_rng(4).integers(0, 100, (7, 6, 5)).astype(np.int16)
    image = kind(values, affine)
    image.set_sform(affine, 0 if form == "qform" else 1)
    image.set_qform(affine, 0 if form == "sform" else 1)
    image.header.set_xyzt_units("mm", "sec")
    nibabel.save(image, path)
    return values


@pytest.mark.parametrize(
    ("name", "form"), [*((name, "both") for name in AFFINES), ("oblique", "sform"), ("oblique", "qform")]
)
def test_masks_lie_on_the_source_whatever_its_axes(tmp_path: Path, name: str, form: str):
    values = source_file(tmp_path / "source.nii.gz", AFFINES[name], form=form)
    written = exports.write(file_result(tmp_path / "source.nii.gz"), tmp_path / "out", ["nifti"])
    source = nibabel.load(tmp_path / "source.nii.gz")
    masks = np.stack([values > threshold(i) for i in range(4)], -1)
    expected = {
        "samples": masks,
        "saliency": masks.mean(-1),
        "variance": masks.var(-1),
        "mask": masks.sum(-1) > 2,
        "contour-25pct": masks.sum(-1) > 1,
        "contour-75pct": masks.sum(-1) > 3,
    }
    for path in written:
        image = nibabel.load(path)
        np.testing.assert_array_equal(image.affine, source.affine)
        for field in ("qform_code", "sform_code", "srow_x", "srow_y", "srow_z", "quatern_b", "qoffset_x", "xyzt_units"):
            np.testing.assert_array_equal(image.header[field], source.header[field], err_msg=field)
        np.testing.assert_array_equal(image.header["pixdim"][:4], source.header["pixdim"][:4])
        assert image.shape[:3] == source.shape
        name = path.name.removesuffix(".nii.gz")
        if name in expected:
            np.testing.assert_allclose(image.get_fdata(), expected[name], atol=1e-6)
            maps = name in ("saliency", "variance")
            assert image.get_data_dtype() == (np.float32 if maps else np.uint8)


@pytest.mark.parametrize("kind", ["nested", "exclusive"])
@pytest.mark.parametrize("name", ["plain", "sagittal", "oblique and turned"])
def test_label_maps_lie_on_the_source_and_say_what_their_values_mean(tmp_path: Path, kind: str, name: str):
    values = source_file(tmp_path / "source.nii.gz", AFFINES[name])
    result = file_result(tmp_path / "source.nii.gz", n=5, kind=kind)
    written = {path.name: path for path in exports.write(result, tmp_path / "out", ["mask", "samples", "nifti"])}
    # target k of sample i is what is above a threshold; the label counts thresholds
    each = np.stack([sum((values > threshold(i) + 10 * k - 30).astype(int) for k in range(3)) for i in range(5)], -1)
    samples, mask = nibabel.load(written["samples.nii.gz"]), nibabel.load(written["mask.nii.gz"])
    np.testing.assert_array_equal(samples.get_fdata(), each)
    if kind == "nested":
        expected = np.median(each, axis=-1)  # of five: at least three have so much
    else:
        counts = np.stack([(each == k).sum(-1) for k in range(4)], -1)  # of each class
        expected = counts.argmax(-1)  # of equally many the background, and the first target
    np.testing.assert_array_equal(mask.get_fdata(), expected)
    assert len(np.unique(expected)) == 4
    names = {"0": "background", "1": "whole tumour", "2": "tumour core", "3": "enhancing tumour"}
    for image in (samples, mask):
        np.testing.assert_array_equal(image.affine, nibabel.load(tmp_path / "source.nii.gz").affine)
        assert image.get_data_dtype() == np.uint8
        assert image.header.get_intent()[0] == "label"
        (comment,) = image.header.extensions
        assert json.loads(comment.get_content())["labels"] == names
    assert json.loads(written["labels.json"].read_text())["labels"] == names
    shares = nibabel.load(written["saliency-tumour-core.nii.gz"])
    of_core = each >= 2 if kind == "nested" else each == 2
    np.testing.assert_allclose(shares.get_fdata(), of_core.mean(-1), atol=1e-6)
    assert shares.header.get_intent()[0] == "none"
    assert not [name for name in written if name.startswith(("mask-", "samples-"))]


@pytest.mark.parametrize("name", ["plain", "oblique and turned"])
def test_a_region_is_written_in_its_place_on_all_of_the_source(tmp_path: Path, name: str):
    source_file(tmp_path / "source.nii.gz", AFFINES[name])
    whole = file_result(tmp_path / "source.nii.gz")
    region = part_of(whole, (1, 3), (2, 5), (0, 4))
    placed = replace(whole, pool=region.whole(region.pool))
    assert 0 < placed.pool.sum() < whole.pool.sum()
    exports.write(placed, tmp_path / "whole", ["nifti"])
    for path in exports.write(region, tmp_path / "region", ["nifti"]):
        assert path.read_bytes() == (tmp_path / "whole" / path.name).read_bytes(), path.name


def test_what_a_header_says_of_the_sources_values_does_not_stay(tmp_path: Path):
    image = nibabel.Nifti1Image(np.arange(210, dtype=np.float32).reshape(7, 6, 5) % 100, AFFINES["plain"])
    image.header["cal_max"] = 1000
    image.header.set_slope_inter(2, 5)
    image.header.extensions.append(nibabel.nifti1.Nifti1Extension("comment", b"a name"))
    nibabel.save(image, tmp_path / "source.nii.gz")
    (path,) = exports.write(file_result(tmp_path / "source.nii.gz"), tmp_path, ["mask"])
    found = nibabel.load(path)
    assert set(np.unique(found.get_fdata())) == {0, 1}
    assert found.header["cal_max"] == 0
    assert len(found.header.extensions) == 0
    source_file(tmp_path / "source.nii", AFFINES["oblique"], nibabel.Nifti2Image)  # and NIfTI 2 stays NIfTI 2
    (path,) = exports.write(file_result(tmp_path / "source.nii"), tmp_path, ["mask"])
    assert isinstance(nibabel.load(path), nibabel.Nifti2Image)
    np.testing.assert_array_equal(nibabel.load(path).affine, nibabel.load(tmp_path / "source.nii").affine)


def test_a_plane_exported_as_nifti(tmp_path: Path):
    """(H, W) is its stored order, with or without an axis of one behind it."""
    for shape in ((20, 24), (20, 24, 1)):
        nibabel.save(nibabel.Nifti1Image(np.zeros(shape, np.int16), AFFINES["oblique"]), tmp_path / "source.nii")
        image = nibabel.load(tmp_path / "source.nii")
        source = Source("nifti", (Path("a.nii"),), (20, 24), image.affine, image.header)
        result = result_2d(grid=Grid((20, 24), (0.5, 0.8), source=source))
        written = exports.write(result, tmp_path, ["nifti"])
        found = nibabel.load(next(path for path in written if path.name == "mask.nii.gz"))
        assert found.shape == shape
        np.testing.assert_array_equal(found.get_fdata().reshape(20, 24), result.mask()[0])
        np.testing.assert_array_equal(found.affine, image.affine)


def test_a_picture_gets_an_affine_from_its_spacing(tmp_path: Path):
    result = result_2d(spacing=(0.5, 0.8))
    written = exports.write(result, tmp_path, ["nifti"])
    found = nibabel.load(next(path for path in written if path.name == "mask.nii.gz"))
    np.testing.assert_array_equal(found.get_fdata()[..., 0].T, result.mask()[0])
    np.testing.assert_allclose(found.header.get_zooms(), (0.8, 0.5, 1))
    assert nibabel.aff2axcodes(found.affine) == ("L", "P", "S")  # as the picture is looked at
    assert found.header.get_xyzt_units()[0] == "mm"
    written = exports.write(result_2d(spacing=(float("nan"), 0.8)), tmp_path, ["nifti"])
    found = nibabel.load(written[0])  # an unknown spacing claims no millimetres
    assert found.header.get_xyzt_units()[0] == "unknown"
    assert found.header.get_zooms()[:3] == (1, 1, 1)


@pytest.mark.parametrize("orientation", [(1, 0, 0, 0, 1, 0), (0, 1, 0, 0, 0, -1), (0.8, 0.6, 0, -0.48, 0.64, 0.6)])
def test_a_dicom_series_lies_where_its_tags_say(tmp_path: Path, orientation: tuple[float, ...]):
    values = np.random.default_rng(1).integers(0, 100, (4, 6, 8))
    paths = write_series(tmp_path / "dicom", values, orientation, shuffle=5)
    written = exports.write(file_result(*paths), tmp_path, ["nifti"])
    found = nibabel.load(next(path for path in written if path.name == "samples.nii.gz"))
    masks = found.get_fdata()
    across, down = np.reshape(orientation, (2, 3)).astype(float)
    to_voxel = np.linalg.inv(found.affine)
    for z, plane in enumerate(values):
        for r, c in np.ndindex(plane.shape):
            # the formula of the DICOM standard, part 3, C.7.6.2.1.1; left and back are minus NIfTI's right and front
            place = (
                np.array([-40.0, 12.5, 100.0]) + 2.5 * z * np.cross(across, down) + 0.6 * c * across + 0.7 * r * down
            )
            voxel = to_voxel @ [-place[0], -place[1], place[2], 1]
            np.testing.assert_allclose(voxel, np.rint(voxel), atol=1e-3)
            i, j, k = np.rint(voxel[:3]).astype(int)
            np.testing.assert_array_equal(masks[i, j, k], [plane[r, c] > threshold(n) for n in range(4)])


def test_one_dicom_slice(tmp_path: Path):
    paths = write_series(tmp_path / "dicom", np.zeros((1, 20, 24), int))
    result = result_2d(grid=grid_of(*paths))
    written = exports.write(result, tmp_path, ["nifti"])
    found = nibabel.load(next(path for path in written if path.name == "mask.nii.gz"))
    np.testing.assert_array_equal(found.get_fdata()[..., 0].T, result.mask()[0])
    np.testing.assert_allclose(found.affine, [[-0.6, 0, 0, 40], [0, -0.7, 0, -12.5], [0, 0, 2.5, 100], [0, 0, 0, 1]])


def test_a_real_brats_case(tmp_path: Path, shared_data: Path):
    """Its labels, taken through the reader as if they were samples, come out as the very file they were."""
    path = shared_data / "brats/BraTS2021_00006/BraTS2021_00006_seg.nii.gz"
    file, stored = read_image(path, 1), nibabel.load(path)
    labels = file.values[0]
    result = Result(
        name="brats",
        image=file.values / np.float32(4),
        grid=file.grid,
        pool=np.stack([labels > 0, labels == 4])[:, None].astype(np.uint8),
        targets=("tumour",),
    )
    (written,) = exports.write(result, tmp_path, ["samples"])
    found, values = nibabel.load(written), stored.get_fdata()
    np.testing.assert_array_equal(found.affine, stored.affine)
    np.testing.assert_array_equal(found.dataobj[..., 0], values > 0)
    np.testing.assert_array_equal(found.dataobj[..., 1], values == 4)
