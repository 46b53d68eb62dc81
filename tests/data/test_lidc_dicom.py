"""Raw LIDC: files the tests write with a real scan's UID and positions, and the real slices of LIDC-IDRI-0001."""

from collections import Counter
from pathlib import Path

import h5py
import numpy as np
import pytest
from dicom_writer import write_slice

from berdiff.data.contours import nodules, read_scans
from berdiff.data.input_spec import Intensity
from berdiff.data.prepare import prepare
from berdiff.data.sources.lidc_dicom import Options, read, resample
from refusals import refused

SERIES = "1.3.6.1.4.1.14519.5.2.1.6279.6001.179049373636438705059720603192"  # LIDC-IDRI-0001
SPACING = (0.703125, 0.703125)
ROWS, COLUMNS = np.indices((512, 512), np.int16)
PICTURE = 2 * ROWS + COLUMNS  # 0 to 1533, so -1024 to 509 HU


@pytest.fixture(scope="module")
def nodule():
    (scan,) = read_scans(series=[SERIES])
    return nodules(scan)[0]


def write(folder: Path, z: float, name: str = "", **tags) -> Path:
    settings = {"series": SERIES, "spacing": SPACING, "patient": "anything"} | tags
    return write_slice(folder / "deep" / "er" / f"{name or z}.dcm", PICTURE, z, **settings)


def bad(folder: Path, *words: str, strict: bool = False) -> None:
    with refused(*words):
        read(folder, Options(strict=strict))


def test_slices_are_cut_around_the_nodule_with_the_masks_of_all_readers(tmp_path, nodule):
    for z in nodule.zs[2:5]:
        write(tmp_path, z)
    write(tmp_path, nodule.zs[0] - 50)  # a slice nobody marked
    reading = read(tmp_path, Options())
    cases = list(reading.cases)
    assert (reading.total, reading.raters, reading.size, reading.dtype) == (3, 4, (128, 128), "uint8")
    assert reading.notes == (
        f"{len(nodule.zs) - 3} of {len(nodule.zs)} marked slices left out: their DICOM files are missing",
        "1 of 1 series have gaps between their slices, which are taken one by one",
    )
    crop = nodule.crop(128)
    hu = PICTURE[crop.row : crop.row + 128, crop.column : crop.column + 128] - 1024.0
    for case, z in zip(cases, nodule.zs[2:5], strict=True):
        assert case.patient == "LIDC-IDRI-0001"
        assert case.spacing == SPACING
        assert case.source == f"deep/er/{z}.dcm"
        np.testing.assert_array_equal(case.masks[:, 0], nodule.masks(z, crop))
        np.testing.assert_allclose(case.image[0], np.clip((hu + 1000) / 1400, 0, 1) * 255, atol=0.51)
    assert len({case.name for case in cases}) == 3


def test_the_window_of_hounsfield_units(tmp_path, nodule):
    write(tmp_path, nodule.zs[2])
    reading = read(tmp_path, Options(hu_low=-160, hu_high=240))
    assert reading.intensity == Intensity("window", (-160, 240))
    (case,) = reading.cases
    crop = nodule.crop(128)
    hu = PICTURE[crop.row : crop.row + 128, crop.column : crop.column + 128] - 1024.0
    np.testing.assert_allclose(case.image[0], np.clip((hu + 160) / 400, 0, 1) * 255, atol=0.51)


def test_resampling_keeps_the_picture_and_the_area_in_millimetres(tmp_path, nodule):
    z = nodule.zs[3]
    write(tmp_path, z)
    (native,) = read(tmp_path, Options()).cases
    for spacing in (0.5, 1.0):
        (case,) = read(tmp_path, Options(spacing=spacing, size=96)).cases
        assert case.spacing == (spacing, spacing)
        for mask, whole in zip(case.masks[:, 0], native.masks[:, 0], strict=True):
            assert mask.sum() * spacing**2 == pytest.approx(whole.sum() * SPACING[0] ** 2, rel=0.05)


def test_resampling_a_ramp_gives_the_ramp():
    plane = (3 * ROWS[:100, :90] + 2 * COLUMNS[:100, :90]).astype(np.float32)
    centre = np.array([50.3, 44.8])
    for step in (0.6, 1.0, 1.7):
        at = (np.arange(20) - 9.5) * step
        expected = 3 * (centre[0] + at[:, None]) + 2 * (centre[1] + at[None, :])
        np.testing.assert_allclose(resample(plane, centre, step, 20), expected, atol=1e-3)
    np.testing.assert_allclose(resample(plane, np.array([0.0, 0.0]), 1.0, 20), plane[:20, :20], atol=1e-3)


def test_other_modalities_are_left_out_and_a_foreign_series_is_refused(tmp_path, nodule):
    write(tmp_path, nodule.zs[2])
    write(tmp_path, 0.0, "film", series="1.2.3", Modality="DX", drop=("ImagePositionPatient",))
    assert read(tmp_path, Options()).total == 1
    path = write(tmp_path, 0.0, "foreign", series="1.2.3.99")
    bad(tmp_path, str(path), "1.2.3.99")


def test_missing_and_doubled_slices_are_noted_and_refused_when_strict(tmp_path, nodule):
    z = nodule.zs[2]
    write(tmp_path, z, "a", InstanceNumber=7)
    write(tmp_path, z, "b", InstanceNumber=3)
    reading = read(tmp_path, Options())
    assert [case.source for case in reading.cases] == ["deep/er/b.dcm"]
    assert "1 slices are there twice" in reading.notes[1]
    bad(tmp_path, "a.dcm", "b.dcm", strict=True)
    (tmp_path / "deep" / "er" / "a.dcm").unlink()
    bad(tmp_path, SERIES, strict=True)


def test_bad_files_and_folders(tmp_path, nodule):
    unmarked = tmp_path / "unmarked"
    write(unmarked, nodule.zs[0] - 50)
    bad(unmarked, str(unmarked))
    for name, tags, words in (
        ("geometry", {"drop": ("ImagePositionPatient",)}, ("ImagePositionPatient",)),
        ("spacing", {"spacing": (0.5, 0.5)}, ("0.703125", "0.5")),
    ):
        write(tmp_path / name, nodule.zs[2], "bad", **tags)
        bad(tmp_path / name, "bad.dcm", *words)
    write_slice(tmp_path / "small" / "bad.dcm", PICTURE[:256, :256], nodule.zs[2], series=SERIES, spacing=SPACING)
    bad(tmp_path / "small", "bad.dcm", "512x512", "256x256")


def test_bad_options(tmp_path):
    for change, word in (({"size": 4}, "--size"), ({"spacing": 0.0}, "--spacing"), ({"hu_low": 900.0}, "--hu-high")):
        with refused(word, code="value"):
            prepare("lidc-dicom", tmp_path, tmp_path / "s", Options(**change))


def test_lidc_0001_has_the_masks_and_the_picture_of_the_public_prepared_set(shared_data):
    """Nine slices on both sides. The crops lie three columns apart; readers come in no fixed order."""
    reading = read(shared_data / "layouts" / "lidc_dicom", Options(strict=True))
    cases = list(reading.cases)
    with h5py.File(shared_data / "lidc" / "data_lidc.hdf5") as file:
        rows = np.flatnonzero(file["test/uids"][:].astype(str) == "LIDC-IDRI-0001")
        rows = rows[np.argsort(file["test/slices"][:][rows])]
        images = file["test/images"][rows]
        labels = np.moveaxis(file["test/labels"][rows], -1, 1)
    assert len(cases) == len(rows) == 9
    ours, shifts = np.stack([case.masks[:, 0].any(0) for case in cases]), []
    theirs = labels.any(1)
    for axis in (1, 2):
        first = [np.flatnonzero(union.any(axis=(0, 3 - axis)))[0] for union in (ours, theirs)]
        shifts.append(int(first[1] - first[0]))
    assert max(map(abs, shifts)) <= 4
    edge = slice(4, -4)
    for case, image, masks in zip(cases, images, labels, strict=True):
        moved = np.roll(case.masks[:, 0], shifts, (1, 2))
        assert Counter(m.tobytes() for m in moved) == Counter(m.astype(np.uint8).tobytes() for m in masks)
        seen = np.roll(case.image[0], shifts, (0, 1))[edge, edge].ravel()
        assert np.corrcoef(seen, image[edge, edge].ravel())[0, 1] > 0.98
