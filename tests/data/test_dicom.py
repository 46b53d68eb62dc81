"""DICOM reading: values and order against what was written, and each defect as one sentence that names the file."""

import numpy as np
import pydicom
import pytest
from dicom_writer import write_slice
from layouts import refused

from berdiff.data.dicom import headers_by_series, read_header, read_pixels, read_series
from berdiff.errors import InputError

RAMP = np.arange(12 * 10, dtype=np.int16).reshape(12, 10)


def series(folder, zs=(5.0, 0.0, 2.5)):
    """Slices named against the order of their positions, each with its own values."""
    for i, z in enumerate(zs):
        write_slice(folder / f"{i}.dcm", RAMP + int(10 * z), z, spacing=(0.5, 0.75))
    return folder


def test_a_series_comes_back_in_order_with_its_units_and_geometry(tmp_path):
    volume = read_series(series(tmp_path))
    assert volume.values.dtype == np.float32
    np.testing.assert_array_equal(volume.values, [[RAMP - 1024, RAMP + 25 - 1024, RAMP + 50 - 1024]])
    assert volume.grid.spacing == (2.5, 0.5, 0.75)
    assert [volume.grid.to_mm((z, 0, 0))[2] for z in range(3)] == [0, 2.5, 5]
    assert [f.name for f in volume.source.paths] == ["1.dcm", "2.dcm", "0.dcm"]
    assert volume.modality == "ct"
    header = read_header(volume.source.paths[0])
    assert (header.patient, header.series_uid, header.spacing) == ("P1", "1.2.3.4", (0.5, 0.75))


def test_slices_are_ordered_along_the_normal_of_their_plane(tmp_path):
    sagittal = [0, 1, 0, 0, 0, -1]  # normal is -x
    for i, x in enumerate((1.0, 9.0, 5.0)):
        write_slice(tmp_path / f"{i}.dcm", RAMP, ImagePositionPatient=[x, 0, 0], ImageOrientationPatient=sagittal)
    volume = read_series(tmp_path)
    assert [path.name for path in volume.source.paths] == ["1.dcm", "2.dcm", "0.dcm"]  # x of 9, 5, 1
    assert volume.source.to_stored(volume.values[0])[:, 0, 0].tolist() == [-1024.0] * 3
    assert volume.grid.spacing[2] == 4


def test_the_rescale_tags_are_applied_and_a_modality_without_them_keeps_its_values(tmp_path):
    ct = write_slice(tmp_path / "ct.dcm", RAMP, RescaleSlope=2, RescaleIntercept=-7)
    mr = write_slice(tmp_path / "mr.dcm", RAMP, Modality="MR", drop=("RescaleSlope", "RescaleIntercept"))
    np.testing.assert_array_equal(read_pixels(ct), 2 * RAMP - 7)
    np.testing.assert_array_equal(read_pixels(mr), RAMP)
    raw = write_slice(tmp_path / "raw.dcm", RAMP, drop=("RescaleSlope",))
    refused(lambda: read_pixels(raw), "raw.dcm", "RescaleSlope")


def test_other_files_are_left_alone_and_a_file_without_suffix_is_known_by_its_letters(tmp_path):
    write_slice(tmp_path / "a" / "IM0001", RAMP, 0.0)
    write_slice(tmp_path / "b" / "1.2.840.99", RAMP, 1.0)
    (tmp_path / "notes.xml").write_text("<x/>")
    (tmp_path / "LICENSE").write_text("short")
    assert read_series(tmp_path).values.shape == (1, 2, 12, 10)


def test_series_are_told_apart_by_uid_not_by_folder(tmp_path):
    write_slice(tmp_path / "one" / "0.dcm", RAMP, 0.0, series="1.1")
    write_slice(tmp_path / "one" / "1.dcm", RAMP, 1.0, series="1.2")
    write_slice(tmp_path / "two" / "0.dcm", RAMP, 2.0, series="1.1")
    assert {uid: len(found) for uid, found in headers_by_series(tmp_path).items()} == {"1.1": 2, "1.2": 1}
    with pytest.raises(InputError, match="expected the slices of one DICOM series, found 2 series"):
        read_series(tmp_path)


BAD = [
    *(({"drop": (tag,)}, tag) for tag in ("PixelSpacing", "ImagePositionPatient", "ImageOrientationPatient")),
    ({"spacing": (0.0, 0.7)}, "PixelSpacing"),
    ({"PixelSpacing": [0.5, 0.5, 0.5]}, "PixelSpacing"),
    ({"spacing": (0.6, 0.75)}, "PixelSpacing"),
    ({"NumberOfFrames": 3}, "3 frame"),
    ({"ImagePositionPatient": [-100, -120, 2.5]}, "2.dcm"),
]


@pytest.mark.parametrize(("tags", "named"), BAD)
def test_a_slice_that_does_not_fit_is_named_with_its_tag(tmp_path, tags, named):
    series(tmp_path)
    write_slice(tmp_path / "bad.dcm", RAMP, 10.0, **{"spacing": (0.5, 0.75), **tags})
    refused(lambda: read_series(tmp_path), "bad.dcm", named)


def test_truncated_and_foreign_files(tmp_path):
    path = write_slice(tmp_path / "cut.dcm", RAMP)
    whole = path.read_bytes()
    path.write_bytes(whole[:-50])
    refused(lambda: read_series(tmp_path), "cut.dcm", "whole DICOM pixel data")
    for kept in (0, 10, 100, 140, 200):  # in the header
        path.write_bytes(whole[:kept])
        refused(lambda: read_series(tmp_path), "cut.dcm", "expected")
    for content in (b"\x89PNG\r\n\x1a\n" + bytes(300), b"hello, this is text" * 20):
        path.write_bytes(content)
        refused(lambda: read_series(tmp_path), "cut.dcm", "expected a DICOM file")


def test_mixed_sizes(tmp_path):
    series(tmp_path)
    write_slice(tmp_path / "other.dcm", RAMP[:8], 10.0, spacing=(0.5, 0.75))
    refused(lambda: read_series(tmp_path), "other.dcm", "12x10", "8x10")


def test_other_modalities_are_left_out_when_one_is_asked_for(tmp_path):
    write_slice(tmp_path / "0.dcm", RAMP, series="1.1")
    write_slice(tmp_path / "seg.dcm", RAMP, series="1.2", Modality="SEG", NumberOfFrames=3)
    assert list(headers_by_series(tmp_path, "CT")) == ["1.1"]
    refused(lambda: headers_by_series(tmp_path, "MR"), "expected MR files in this folder, found none")


def test_an_empty_folder_a_missing_one_and_a_file(tmp_path):
    refused(lambda: read_series(tmp_path), str(tmp_path), "expected DICOM files in this folder, found none")
    refused(lambda: read_series(tmp_path / "no"), "found nothing")
    (tmp_path / "f").write_text("x")
    refused(lambda: read_series(tmp_path / "f"), "found a file")


def test_real_slices_agree_with_pydicoms_own_reading(shared_data):
    volume = read_series(shared_data / "layouts" / "lidc_dicom")
    assert volume.grid.shape == (16, 512, 512)
    assert volume.grid.spacing == (2.5, 0.703125, 0.703125)
    assert read_header(volume.source.paths[0]).patient == "LIDC-IDRI-0001"
    data = pydicom.dcmread(volume.source.paths[3])
    np.testing.assert_array_equal(volume.values[0, 3], data.pixel_array - 1024.0)


def test_a_gap_is_refused_with_its_positions(tmp_path):
    series(tmp_path, zs=(0, 2.5, 5, 7.5, 15, 17.5))
    refused(lambda: read_series(tmp_path), str(tmp_path), "2.5 mm apart", "7.5 to 15 mm", "--allow-gaps")
    with pytest.raises(InputError, match=r"2\.5 to 5\.5 mm"):  # more than a tenth off
        read_series(series(tmp_path / "uneven", zs=(0, 2.5, 5.5, 8, 10.5)))
    assert len(read_series(series(tmp_path / "even", zs=(0, 2.5, 5.2, 7.7, 10.2))).values[0]) == 5  # scanners round


def test_a_gap_may_be_interpolated(tmp_path):
    series(tmp_path, zs=(0, 2.5, 5, 7.5, 15, 17.5))
    volume = read_series(tmp_path, allow_gaps=True)
    np.testing.assert_allclose([volume.grid.to_mm((z, 0, 0))[2] for z in range(8)], 2.5 * np.arange(8))
    values = [RAMP + int(10 * z) - 1024.0 for z in (0, 2.5, 5, 7.5)] + [RAMP + z - 1024.0 for z in (100, 125, 150, 175)]
    np.testing.assert_allclose(volume.values[0], values)  # they grow evenly, so what was missing comes back
    assert volume.grid.spacing[0] == 2.5
    assert volume.source.resampled
    assert "7.5 to 15 mm" in volume.warnings[0]


def test_one_of_two_slices_at_one_place(tmp_path):
    series(tmp_path, zs=(0, 2.5, 5))
    write_slice(tmp_path / "again.dcm", RAMP * 0, 2.5, spacing=(0.5, 0.75), InstanceNumber=9)
    refused(lambda: read_series(tmp_path), "again.dcm", "2.5 mm", "--allow-gaps")
    volume = read_series(tmp_path, allow_gaps=True)
    assert [path.name for path in volume.source.paths] == ["0.dcm", "1.dcm", "2.dcm"]  # the lower instance number
    assert volume.warnings
    assert not volume.source.resampled


def test_mixed_orientations_name_the_position(tmp_path):
    series(tmp_path)
    turned = {"ImageOrientationPatient": [0, 1, 0, 1, 0, 0], "ImagePositionPatient": [-100, -120, 7.5]}
    write_slice(tmp_path / "other.dcm", RAMP, spacing=(0.5, 0.75), **turned)
    refused(lambda: read_series(tmp_path, allow_gaps=True), "other.dcm", "ImageOrientationPatient", "7.5")


def test_what_a_series_is_called_by_is_read_with_its_header(tmp_path):
    tags = {"SeriesDescription": "Lung\n 1.0", "SeriesNumber": "3", "StudyDate": "20200102", "SeriesDate": "nonsense"}
    header = read_header(write_slice(tmp_path / "a.dcm", RAMP, **tags))
    assert header.title == "P1, Lung 1.0 (series 3)"
    assert header.details["study UID"] == "1.2.3"
    bare = read_header(write_slice(tmp_path / "b.dcm", RAMP, drop=("PatientID",)))
    assert bare.title == ""


def test_positions_with_one_decimal_are_no_gaps(tmp_path):
    """0.625 mm apart, as some scanners write it: 0.6, 0.6, 0.7, ...; the distance is the mean, or volumes are wrong."""
    zs = tuple(round(0.625 * i, 1) for i in range(17))
    assert read_series(series(tmp_path, zs=zs)).grid.spacing[0] == pytest.approx(0.625)
