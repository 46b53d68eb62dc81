"""DICOM Parametric Map: the very shares, at the place of the source's own slices, as floats that viewers read."""

from pathlib import Path

import numpy as np
import pydicom
import pytest
from highdicom.pm.sop import pmread
from made_results import ORIENTATIONS, file_result, grid_of, part_of, result_2d, threshold, write_series
from validator import check_files

from berdiff.output import exports


def frames_by_place(path: Path) -> dict[tuple[float, ...], np.ndarray]:
    """The frames of a map by the position of their first pixel, read without any help of the library that wrote it."""
    data = pydicom.dcmread(path)
    shape = (int(data.NumberOfFrames), data.Rows, data.Columns)
    values = np.frombuffer(data.FloatPixelData, "<f4").reshape(shape)
    items = data.PerFrameFunctionalGroupsSequence
    places = [item.PlanePositionSequence[0].ImagePositionPatient for item in items]
    return {tuple(np.round([float(v) for v in place], 3)): frame for place, frame in zip(places, values, strict=True)}


def at(image: pydicom.Dataset) -> tuple[float, ...]:
    return tuple(np.round([float(v) for v in image.ImagePositionPatient], 3))


@pytest.mark.parametrize("name", ORIENTATIONS)
def test_shares_lie_on_their_own_slices(tmp_path: Path, name: str):
    values = np.random.default_rng(2).integers(0, 100, (4, 9, 16))
    paths = write_series(tmp_path / "ct", values, ORIENTATIONS[name], shuffle=5)
    (path,) = exports.write(file_result(*paths), tmp_path, ["dicom-pm"])
    assert path.name == "saliency.pm.dcm"
    images, frames = [pydicom.dcmread(path) for path in paths], frames_by_place(path)
    assert set(frames) == {at(image) for image in images}
    for image in images:
        counts = sum((image.pixel_array - 1024 > threshold(i)).astype(int) for i in range(4))
        np.testing.assert_array_equal(frames[at(image)], counts / 4)
    data = pydicom.dcmread(path)
    (shared,) = data.SharedFunctionalGroupsSequence
    orientation = shared.PlaneOrientationSequence[0].ImageOrientationPatient
    np.testing.assert_allclose(np.array(orientation, float), ORIENTATIONS[name], atol=1e-6)
    assert [float(v) for v in shared.PixelMeasuresSequence[0].PixelSpacing] == [0.7, 0.6]
    for item in data.PerFrameFunctionalGroupsSequence:  # each frame names the image at its own place
        (derived,) = item.DerivationImageSequence
        (of,) = derived.SourceImageSequence
        (source,) = [image for image in images if image.SOPInstanceUID == of.ReferencedSOPInstanceUID]
        assert tuple(np.round([float(v) for v in item.PlanePositionSequence[0].ImagePositionPatient], 3)) == at(source)
    if name == "oblique":
        check_files([path])
        volume = pmread(path).get_volume()  # what a reader of volumes makes of it: slice, row, column -> millimetres
        assert volume.array.shape == (4, 9, 16)
        for image in images:
            across, down = np.reshape(ORIENTATIONS[name], (2, 3))
            place = np.array(at(image)) + 3 * 0.7 * down + 5 * 0.6 * across
            voxel = np.rint(np.linalg.inv(volume.affine) @ [*place, 1])[:3].astype(int)
            assert volume.array[tuple(voxel)] == frames[at(image)][3, 5]


def test_it_says_what_the_numbers_are_and_whose(tmp_path: Path):
    paths = write_series(tmp_path / "ct", np.random.default_rng(2).integers(0, 100, (3, 9, 16)))
    result = file_result(*paths)
    (path,) = exports.write(result, tmp_path, ["dicom-pm"])
    data, source = pydicom.dcmread(path), pydicom.dcmread(paths[0])
    assert data.SOPClassUID.name == "Parametric Map Storage"
    for tag in ("PatientID", "PatientName", "StudyInstanceUID", "FrameOfReferenceUID"):
        assert data[tag].value == source[tag].value
    assert data.SeriesInstanceUID != source.SeriesInstanceUID
    assert "not for clinical use" in data.ContentDescription
    (shared,) = data.SharedFunctionalGroupsSequence
    (mapping,) = shared.RealWorldValueMappingSequence
    assert mapping.MeasurementUnitsCodeSequence[0].CodeValue == "1"
    assert mapping.LUTExplanation == "whole tumour: share of samples that mark a pixel"
    assert (mapping.RealWorldValueSlope, mapping.RealWorldValueIntercept) == (1, 0)
    quantity = mapping.QuantityDefinitionSequence[0].ConceptCodeSequence[0]
    assert quantity.CodeMeaning == "Fractional Probabilistic Segmentation"
    (window,) = shared.FrameVOILUTSequence
    assert (window.WindowCenter, window.WindowWidth, window.VOILUTFunction) == (0.5, 1, "LINEAR_EXACT")


def test_only_slices_that_were_segmented_have_a_frame_and_each_target_is_a_file(tmp_path: Path):
    values = np.random.default_rng(2).integers(0, 100, (5, 9, 16))
    paths = write_series(tmp_path / "ct", values, ORIENTATIONS["axial"], shuffle=3)
    result = part_of(file_result(*paths, kind="nested"), (1, 3), (0, 9), (2, 10))
    written = exports.write(result, tmp_path, ["dicom-pm"])
    names = ("whole-tumour", "tumour-core", "enhancing-tumour")
    assert [path.name for path in written] == [f"saliency-{name}.pm.dcm" for name in names]
    for k, path in enumerate(written):
        frames = frames_by_place(path)
        assert [place[2] for place in sorted(frames, key=lambda place: place[2])] == [102.5, 105]
        for z in (1, 2):
            frame = next(frame for place, frame in frames.items() if place[2] == 100 + 2.5 * z)
            np.testing.assert_array_equal(frame, result.whole(result.saliency)[k, z])
    series = {pydicom.dcmread(path).SeriesInstanceUID for path in written}
    instances = {pydicom.dcmread(path).SOPInstanceUID for path in written}
    assert (len(series), len(instances)) == (1, 3)


def test_one_slice(tmp_path: Path):
    paths = write_series(tmp_path / "ct", np.zeros((1, 20, 24), int))
    result = result_2d(grid=grid_of(*paths), targets=("a\\b\n", "Knötchen " + "x" * 70))
    written = exports.write(result, tmp_path, ["dicom-pm"])
    for k, path in enumerate(written):
        (frame,) = frames_by_place(path).values()
        np.testing.assert_array_equal(frame, result.saliency[k])
    assert pydicom.dcmread(written[0]).ContentDescription.startswith("a/b")
    check_files(written)
