"""DICOM SR: what was measured comes back by its codes, refers to the segments beside it, and is the same every time."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pydicom
import pytest
from highdicom.sr import srread
from made_results import ORIENTATIONS, file_result, grid_of, part_of, result_2d, write_series
from pydicom.sr.codedict import codes
from validator import check_files

from berdiff import __version__
from berdiff.cli.main import main
from berdiff.output import exports

DERIVATIONS = {"373099004": "q50", "371888009": "q05", "371889001": "q95"}
NAMES = {"42798000": "area", "118565006": "volume", "103339001": "longest_diameter"}
NAMES |= {"marked-by": "finding_probability", "marks-nothing": "empty_share", "extent-z": "extent_mm"}


def measured(group) -> dict[str, object]:
    """{"volume q50": (value, unit), ...}, by the codes alone."""
    found = {}
    for item in group.get_measurements():
        ways = [DERIVATIONS[item.derivation.value]] if item.derivation else []
        found[" ".join([NAMES[item.name.value], *ways])] = (item.value, item.unit.value)
    return found


def expected(result, target: str) -> dict[str, object]:
    of = result.measurements()[target]
    values: dict[str, object] = {name: (100 * of[name], "%") for name in ("finding_probability", "empty_share")}
    if of.get("extent_mm") is not None:
        values["extent_mm"] = (of["extent_mm"], "mm")
    for name, codes_of in (("area", "mm2"), ("volume", "mm3"), ("longest_diameter", "mm")):
        if name in of and of[name]["q50"] is not None:
            values |= {f"{name} {q}": (pytest.approx(of[name][q]), codes_of) for q in ("q05", "q50", "q95")}
    return values


def test_a_volume_has_a_group_per_target_that_refers_to_its_segment(tmp_path: Path):
    values = np.random.default_rng(2).integers(0, 100, (4, 9, 16))
    values[0] = 0
    paths = write_series(tmp_path / "ct", values, ORIENTATIONS["oblique"], shuffle=3)
    result = file_result(*paths, kind="nested")
    seg, path = exports.write(result, tmp_path, ["dicom-sr"])
    assert (seg.name, path.name) == ("mask.seg.dcm", "measurements.sr.dcm")
    mask, report = pydicom.dcmread(seg), srread(path)
    groups = report.content.get_volumetric_roi_measurement_groups()
    assert len(groups) == 3
    for k, group in enumerate(groups):
        target = result.targets[k]
        assert measured(group) == expected(result, target)
        assert group.tracking_identifier == target
        assert group.tracking_uid == mask.SegmentSequence[k].TrackingUID
        assert group.finding_type.meaning == "Neoplasm"
        segment = group.referenced_segment
        assert segment.referenced_sop_instance_uid == mask.SOPInstanceUID
        assert segment[0].ReferencedSOPSequence[0].ReferencedSegmentNumber == k + 1
        on = {result.grid.source.paths[z] for z in np.flatnonzero(mask_as_stored(result)[k].any((1, 2)))}
        sources = {item.referenced_sop_instance_uid for item in segment[1:]}
        assert sources == {pydicom.dcmread(path).SOPInstanceUID for path in on}
        texts = {
            item.ConceptNameCodeSequence[0].CodeMeaning: item.get("TextValue") for item in group[0].ContentSequence
        }
        assert (texts["Algorithm Name"], texts["Algorithm Version"]) == ("berdiff tiny", __version__)
    evidence = {uid for _, _, uid, _ in report.get_evidence()}
    assert mask.SOPInstanceUID in evidence
    (device,) = report.content.get_observer_contexts(observer_type=codes.DCM.Device)
    assert device.observer_identifying_attributes.name == "berdiff"
    source = pydicom.dcmread(paths[0])
    assert (report.PatientID, report.StudyInstanceUID) == (source.PatientID, source.StudyInstanceUID)
    check_files([seg, path])


def mask_as_stored(result) -> np.ndarray:
    return result.grid.to_stored(result.majority())


def test_a_slice_has_planar_groups_and_an_empty_majority_refers_to_the_image(tmp_path: Path):
    paths = write_series(tmp_path / "ct", np.zeros((1, 20, 24), int))
    result = result_2d(grid=grid_of(*paths), targets=("nodule", "cyst", "other"))
    result.pool[4:, 0] = 0  # a quarter of the samples at most
    seg, path = exports.write(result, tmp_path, ["dicom-sr"])
    mask, report = pydicom.dcmread(seg), srread(path)
    (image_group,) = report.content.get_image_measurement_groups()
    assert measured(image_group) == expected(result, "nodule")
    assert measured(image_group)["empty_share"][0] > 50
    assert measured(image_group)["area q05"][0] > 0  # among the samples that mark it
    (source,) = image_group.source_images
    assert source.referenced_sop_instance_uid == pydicom.dcmread(paths[0]).SOPInstanceUID
    groups = report.content.get_planar_roi_measurement_groups()
    frames = mask.pixel_array.reshape(-1, 20, 24)
    for k, group in enumerate(groups, 1):
        assert measured(group) == expected(result, result.targets[k])
        assert group.reference_type == codes.DCM.ReferencedSegmentationFrame
        item = group.referenced_segmentation_frame[0].ReferencedSOPSequence[0]
        np.testing.assert_array_equal(frames[item.ReferencedFrameNumber - 1], result.majority()[k])
    assert len(groups) == 2
    check_files([seg, path])


def test_one_slice_of_a_volume_has_a_planar_group_with_an_area(tmp_path: Path):
    values = np.zeros((4, 9, 16), int)
    values[2, 2:7, 3:9] = 99
    whole = file_result(*write_series(tmp_path / "ct", values))
    (z,) = np.flatnonzero(whole.pool.any((0, 1, 3, 4)))
    result = part_of(whole, (int(z), int(z) + 1), (0, 9), (0, 16))
    seg, path = exports.write(result, tmp_path, ["dicom-sr"])
    content = srread(path).content
    assert not content.get_volumetric_roi_measurement_groups()
    (group,) = content.get_planar_roi_measurement_groups()
    assert measured(group) == expected(result, result.targets[0])
    assert "area q50" in measured(group)
    check_files([seg, path])


def test_the_report_of_a_real_nodule_has_the_figures_of_result_json(shared_data: Path, tmp_path: Path):
    """LIDC-IDRI-0001 around one centre: of four readers 5701 to 7298 mm^3."""
    series = next((shared_data / "layouts" / "lidc_dicom").glob("*/*/*"))
    argv = ["segment", "lidc", str(series), "--center", "7,366,316", "--samples", "4", "--out", str(tmp_path / "out")]
    assert main([*argv, "--write", "json", "dicom-sr"]) == 0
    folder = tmp_path / "out" / series.name
    facts = json.loads((folder / "result.json").read_text())
    assert facts["region"][0] == [1, 14]
    of = facts["measurements"]["nodule"]
    assert of["extent_mm"] == 32.5
    assert 3000 < of["volume"]["q50"] < 9000
    (group,) = srread(folder / "measurements.sr.dcm").content.get_volumetric_roi_measurement_groups()
    found = measured(group)
    assert found["finding_probability"] == (100 * of["finding_probability"], "%")
    assert found["extent_mm"] == (32.5, "mm")
    for q in ("q05", "q50", "q95"):
        assert found[f"volume {q}"] == (pytest.approx(of["volume"][q]), "mm3")
        assert found[f"longest_diameter {q}"] == (pytest.approx(of["longest_diameter"][q]), "mm")


def test_nothing_found_and_no_thickness(tmp_path: Path):
    paths = write_series(tmp_path / "ct", np.zeros((2, 9, 16), int))
    for path in paths:
        data = pydicom.dcmread(path)
        data.SliceThickness = None
        data.save_as(path)
    result = file_result(*paths)
    written = exports.write(result, tmp_path, ["dicom-seg", "dicom-pm", "dicom-sr"])
    (group,) = srread(written[-1]).content.get_image_measurement_groups()
    assert measured(group)["finding_probability"] == (0, "%")
    shared = pydicom.dcmread(written[0]).SharedFunctionalGroupsSequence[0]
    assert shared.PixelMeasuresSequence[0].SliceThickness == 2.5
    check_files(written)


def test_only_what_differs_is_another_object(tmp_path: Path):
    paths = write_series(tmp_path / "ct", np.random.default_rng(2).integers(0, 100, (2, 9, 16)))
    result, kinds = file_result(*paths), ["dicom-seg", "dicom-pm", "dicom-sr"]
    before = {pydicom.dcmread(path).SOPInstanceUID for path in exports.write(result, tmp_path / "one", kinds)}
    assert len(before) == 5
    # other representative masks are another object of contours, and nothing else is
    third = exports.write(result, tmp_path / "three", kinds, representatives=1)
    after = [pydicom.dcmread(path).SOPInstanceUID for path in third]
    assert [uid in before for uid in after] == [True, False, True, True, True]
    # other samples are other objects
    other = exports.write(replace(result, pool=result.pool[:3]), tmp_path / "four", ["dicom-pm", "dicom-sr"])
    assert not before & {pydicom.dcmread(path).SOPInstanceUID for path in other}
