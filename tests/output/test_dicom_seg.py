"""DICOM SEG: re-opened by highdicom and pydicom, on the source's own images, exact, and without a validator's error."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pydicom
import pytest
from highdicom.seg import segread
from made_results import ORIENTATIONS, file_result, grid_of, result_2d, threshold, write_series
from validator import check_files, needs_validator

from berdiff.data.dicom import headers_by_series
from berdiff.output import exports
from refusals import refused


def masks_by_image(path: Path, uids: list[str], rescale: bool = False) -> np.ndarray:
    """(Z, H, W, segments), the slices in the order of `uids`."""
    return segread(path).get_pixels_by_source_instance(uids, rescale_fractional=rescale)


@pytest.mark.parametrize("name", ORIENTATIONS)
def test_every_segment_comes_back_on_its_own_image(tmp_path: Path, name: str):
    values = np.random.default_rng(2).integers(0, 100, (5, 9, 16))
    paths = write_series(tmp_path / "ct", values, ORIENTATIONS[name], shuffle=7)
    result = file_result(*paths)
    mask, binary, fractional = exports.write(result, tmp_path, ["dicom-seg"])
    images = [pydicom.dcmread(path) for path in paths]  # by file name, which is no order in space
    uids = [image.SOPInstanceUID for image in images]
    stored = np.stack([image.pixel_array - 1024 for image in images])
    samples = np.stack([stored > threshold(i) for i in range(4)])
    counts = samples.sum(0)
    found = masks_by_image(binary, uids)
    assert found.shape[-1] == 3 + len(result.representatives(3))
    for segment, most in enumerate((1, 2, 3)):  # 25, 50 and 75 % of four
        np.testing.assert_array_equal(found[..., segment], counts > most)
    for segment, representative in enumerate(result.representatives(3), start=3):
        np.testing.assert_array_equal(found[..., segment], samples[representative.index])
    shares = masks_by_image(fractional, uids, rescale=True)[..., 0]
    assert np.abs(shares - counts / 4).max() <= 1 / 255
    np.testing.assert_array_equal(masks_by_image(mask, uids)[..., 0], counts > 2)


@pytest.mark.parametrize("kind", ["nested", "exclusive"])
def test_each_target_is_a_segment(tmp_path: Path, kind: str):
    values = np.random.default_rng(2).integers(0, 100, (4, 9, 16))
    paths = write_series(tmp_path / "ct", values, ORIENTATIONS["sagittal"], shuffle=3)
    names = ("necrotic_core", "peritumoral oedema", "enhancing_tumour")
    result = replace(file_result(*paths, n=5, kind=kind), targets=names)
    written = exports.write(result, tmp_path, ["dicom-seg"])
    images = [pydicom.dcmread(path) for path in paths]
    stored, uids = np.stack([image.pixel_array - 1024 for image in images]), [i.SOPInstanceUID for i in images]
    # of the classes 0 to 3 the one that at least three of five samples reach, or that most have
    each = np.stack([sum((stored > threshold(i) + 10 * k - 30).astype(int) for k in range(3)) for i in range(5)])
    found = masks_by_image(written[0], uids)
    for k in range(3):
        expected = np.median(each, axis=0) > k
        if kind == "exclusive":
            counts = [(each == c).sum(0) for c in range(4)]
            expected = (counts[k + 1] > counts[0]) & np.all(
                [counts[k + 1] > counts[c] if c < k + 1 else counts[k + 1] >= counts[c] for c in (1, 2, 3)], axis=0
            )
        np.testing.assert_array_equal(found[..., k], expected)
    data = pydicom.dcmread(written[0])
    assert [segment.SegmentLabel for segment in data.SegmentSequence] == list(names)
    types = [segment.SegmentedPropertyTypeCodeSequence[0].CodeMeaning for segment in data.SegmentSequence]
    assert types == ["Necrosis", "Edema", "Neoplasm"]
    assert len({tuple(segment.RecommendedDisplayCIELabValue) for segment in data.SegmentSequence}) == 3
    shares = masks_by_image(written[2], uids, rescale=True)
    for k in range(3):
        of_target = each > k if kind == "nested" else each == k + 1
        assert np.abs(shares[..., k] - of_target.mean(0)).max() <= 1 / 255
    uids_of = [(of := pydicom.dcmread(path)).SOPInstanceUID + of.SeriesInstanceUID for path in written]
    assert len(set(uids_of)) == 3
    check_files(written)


def test_it_refers_to_the_source_and_says_what_each_segment_is(tmp_path: Path):
    paths = write_series(tmp_path / "ct", np.random.default_rng(2).integers(0, 100, (3, 9, 16)))
    result = file_result(*paths)
    written = exports.write(result, tmp_path, ["dicom-seg"])
    source = pydicom.dcmread(paths[0])
    uids = {pydicom.dcmread(path).SOPInstanceUID for path in paths}
    for path in written:
        data = pydicom.dcmread(path)
        assert data.SOPClassUID.name == "Segmentation Storage"
        for tag in ("PatientID", "StudyInstanceUID", "FrameOfReferenceUID"):
            assert data[tag].value == source[tag].value
        assert data.SeriesInstanceUID != source.SeriesInstanceUID
        (series,) = data.ReferencedSeriesSequence
        assert series.SeriesInstanceUID == source.SeriesInstanceUID
        assert {item.ReferencedSOPInstanceUID for item in series.ReferencedInstanceSequence} == uids
        assert "not for clinical use" in data.ContentDescription
    mask, binary, fractional = map(pydicom.dcmread, written)
    assert [segment.SegmentLabel for segment in mask.SegmentSequence] == ["whole tumour"]
    labels = [segment.SegmentLabel for segment in binary.SegmentSequence]
    assert labels[:3] == [f"whole tumour: in more than {p} % of samples" for p in (25, 50, 75)]
    shares = [f"{100 * found.frequency:.3g} %" for found in result.representatives(3)]
    assert labels[3:] == [f"whole tumour: representative {i + 1}, {s} of samples" for i, s in enumerate(shares)]
    assert binary.SegmentSequence[0].SegmentedPropertyTypeCodeSequence[0].CodeMeaning == "Neoplasm"
    assert fractional.SegmentationFractionalType == "PROBABILITY"
    # writing again makes the same objects; other settings make others
    again = [pydicom.dcmread(path).SOPInstanceUID for path in exports.write(result, tmp_path, ["dicom-seg"])]
    assert again == [of.SOPInstanceUID for of in (mask, binary, fractional)]
    other = replace(result, settings={**result.settings, "seed": 4})
    third = [pydicom.dcmread(path).SOPInstanceUID for path in exports.write(other, tmp_path, ["dicom-seg"])]
    assert len({*again, *third}) == 6
    # of a set, the shares and the representatives are those of its pool
    of_set = replace(result, chosen=(2, 0), settings={**result.settings, "set": "representative", "pool": 4})
    for before, path in zip((mask, binary, fractional), exports.write(of_set, tmp_path, ["dicom-seg"]), strict=True):
        after = pydicom.dcmread(path)
        assert after.PixelData == before.PixelData
        assert after.ContentDescription == "4 samples, not for clinical use"
        assert [of.SegmentLabel for of in after.SegmentSequence] == [of.SegmentLabel for of in before.SegmentSequence]


def test_nothing_found_is_a_valid_answer(tmp_path: Path):
    paths = write_series(tmp_path / "ct", np.zeros((3, 9, 16), int))
    result = file_result(*paths)
    assert not result.samples.any()
    written = exports.write(result, tmp_path, ["dicom-seg"])
    uids = [pydicom.dcmread(path).SOPInstanceUID for path in paths]
    for path in written:
        assert not masks_by_image(path, uids).any()
    check_files(written)


def test_one_slice(tmp_path: Path):
    paths = write_series(tmp_path / "ct", np.zeros((1, 20, 24), int))
    data = pydicom.dcmread(paths[0])
    del data.PatientName  # as some tools do that remove names
    data.save_as(paths[0])
    result = result_2d(grid=grid_of(*paths), targets=("nodule", "x" * 70))
    mask, binary, fractional = exports.write(result, tmp_path, ["dicom-seg"])
    uids = [pydicom.dcmread(paths[0]).SOPInstanceUID]
    found = masks_by_image(binary, uids)[0]
    each = 3 + len(result.representatives(3))
    for k in range(2):
        np.testing.assert_array_equal(found[..., each * k + 1], result.mask()[k])
        np.testing.assert_array_equal(masks_by_image(mask, uids)[0, ..., k], result.mask()[k])
    shares = masks_by_image(fractional, uids, rescale=True)[0]
    assert np.abs(np.moveaxis(shares, -1, 0) - result.saliency).max() <= 1 / 255
    check_files([mask, binary, fractional])


def test_a_source_that_cannot_be_referred_to(tmp_path: Path):
    (path,) = write_series(tmp_path / "ct", np.zeros((1, 20, 24), int))
    data = pydicom.dcmread(path)
    del data.FrameOfReferenceUID
    data.save_as(path)
    result = result_2d(grid=grid_of(path))
    with refused("000.dcm", "FrameOfReferenceUID", code="missing"):
        exports.write(result, tmp_path / "out", ["dicom-seg"])
    assert not (tmp_path / "out").exists()


@needs_validator
def test_the_validator_finds_no_error(tmp_path: Path):
    paths = write_series(
        tmp_path / "ct", np.random.default_rng(2).integers(0, 100, (3, 9, 16)), ORIENTATIONS["oblique"]
    )
    check_files(exports.write(file_result(*paths), tmp_path, ["dicom-seg"]))
    # and it would: the check must be able to fail
    broken = pydicom.dcmread(tmp_path / "contours.seg.dcm")
    del broken.SegmentationType
    broken.save_as(tmp_path / "broken.dcm")
    with pytest.raises(AssertionError, match="Error"):
        check_files([tmp_path / "broken.dcm"])


def test_the_real_series(tmp_path: Path, shared_data: Path):
    (headers,) = headers_by_series(shared_data / "layouts/lidc_dicom").values()
    made = file_result(*(header.path for header in headers[2:7]), n=1)
    samples = np.stack([made.image[0] * 100 > level for level in (-100, 0, 100, 200)])[:, None].astype(np.uint8)
    result = replace(made, pool=samples)
    written = exports.write(result, tmp_path, ["dicom-seg"])
    paths = sorted(result.grid.source.paths, key=lambda path: path.name)
    images = [pydicom.dcmread(path) for path in paths]
    hu = np.stack([image.pixel_array * float(image.RescaleSlope) + float(image.RescaleIntercept) for image in images])
    counts = sum((hu > level).astype(int) for level in (-100, 0, 100, 200))
    uids = [image.SOPInstanceUID for image in images]
    np.testing.assert_array_equal(masks_by_image(written[1], uids)[..., 1], counts > 2)
    shares = masks_by_image(written[2], uids, rescale=True)[..., 0]
    assert np.abs(shares - counts / 4).max() <= 1 / 255
    check_files(written)
