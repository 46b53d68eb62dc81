"""Series that are not as the standard has them: they work, or are refused alone by one sentence."""

from pathlib import Path

import numpy as np
import pydicom
import pytest
from dicom_writer import write_slice
from validator import check_files

from berdiff.inference.inputs import find_inputs
from berdiff.inference.settings import SegmentSettings
from berdiff.jobs.run import Outcome, SegmentationJob
from berdiff.output.formats import OutputSettings
from fakes import bright_model, make_spec

FRAME = {"FrameOfReferenceUID": "1.2.3.9"}


def write_odd(folder: Path, slices: int = 2, drop: tuple[str, ...] = (), **tags: object) -> None:
    rng = np.random.default_rng(0)
    for z in range(slices):
        stored = rng.integers(0, 1400, (16, 16))
        write_slice(folder / f"{z}.dcm", stored, 2.5 * z, series=f"1.2.{len(folder.name)}", drop=drop, **FRAME | tags)


def segment(folder: Path, out: Path, kinds: tuple[str, ...] | None = ("dicom-sr",)) -> Outcome:
    model = bright_model(make_spec(rule="window", window=(-1024.0, 400.0)))
    job = SegmentationJob(model, SegmentSettings(samples=3), OutputSettings(out, kinds))
    return job.segment(find_inputs([folder]))


def test_a_series_without_patient_and_study(tmp_path: Path):
    """Absent, not only empty; then all that a derived object needs is there, and empty."""
    write_odd(tmp_path / "in", drop=("PatientID", "SliceThickness", "Modality"))  # the writer knows no others
    assert segment(tmp_path / "in", tmp_path / "out", None).done == ["in"]
    written = sorted((tmp_path / "out/in").glob("*.dcm"))
    assert len(written) == 5
    check_files(written)
    for path in written:
        data = pydicom.dcmread(path)
        for tag in ("PatientName", "PatientID", "PatientBirthDate", "PatientSex", "AccessionNumber", "StudyID"):
            assert data[tag].value in ("", None)
        assert data["StudyDate"].value in ("", None)
        assert data["StudyTime"].value in ("", None)


NAMES = {
    "ISO_IR 999": "A^B",
    "ISO_IR 100": "Müller^Jörg",
    ("", "ISO 2022 IR 87"): "Yamada^Tarou=山田^太郎=やまだ^たろう",
}


def test_names_in_any_alphabet_are_the_same_in_utf8(tmp_path: Path, recwarn: pytest.WarningsRecorder):
    for i, (charset, name) in enumerate(NAMES.items()):
        charset = list(charset) if isinstance(charset, tuple) else charset
        write_odd(tmp_path / "in" / ("x" * (i + 1)), SpecificCharacterSet=charset, PatientName=name)
    recwarn.clear()  # of writing them
    assert not segment(tmp_path / "in", tmp_path / "out").failed
    assert not list(recwarn)  # they would print names
    for i, name in enumerate(NAMES.values()):
        data = pydicom.dcmread(tmp_path / "out" / ("x" * (i + 1)) / "measurements.sr.dcm")
        assert (data.SpecificCharacterSet, str(data.PatientName)) == ("ISO_IR 192", name)


@pytest.mark.filterwarnings("ignore::UserWarning")  # of writing what is wrong
def test_values_that_the_standard_does_not_know_are_left_empty(tmp_path: Path):
    write_odd(tmp_path / "in", PatientSex="W", PatientBirthDate="19500000", StudyDate="2001", StudyTime="noon")
    assert not segment(tmp_path / "in", tmp_path / "out").failed
    data = pydicom.dcmread(tmp_path / "out/in/measurements.sr.dcm")
    assert not any(data[tag].value for tag in ("PatientSex", "PatientBirthDate", "StudyDate", "StudyTime"))
    check_files([tmp_path / "out/in/measurements.sr.dcm"])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_cannot_be_referred_to_is_refused_alone(tmp_path: Path):
    folder = tmp_path / "in"
    write_odd(folder / "good")
    write_odd(folder / "study", drop=("StudyInstanceUID",))
    write_odd(folder / "frames", FrameOfReferenceUID="")
    write_odd(folder / "frame", FrameOfReferenceUID="none")
    write_odd(folder / "foreign", SOPClassUID="1.3.12.2.1107.5.9.1")
    write_odd(folder / "one slice", slices=1, drop=("SliceThickness",))
    for kind, tag in (("patients ", "PatientID"), ("two studies", "StudyInstanceUID")):
        write_odd(folder / kind)
        write_odd(tmp_path / kind, **{tag: "9.9"})
        (tmp_path / kind / "1.dcm").rename(folder / kind / "1.dcm")
    outcome = segment(folder, tmp_path / "out")
    assert outcome.done == ["good"]
    named = {"study": "StudyInstanceUID", "frames": "FrameOfReferenceUID", "frame": "FrameOfReferenceUID"}
    named |= {"foreign": "1.3.12.2.1107.5.9.1", "one slice": "SliceThickness", "patients ": "PatientID"}
    named |= {"two studies": "StudyInstanceUID"}
    assert set(outcome.failed) == set(named)
    for name, word in named.items():
        assert f"{'1' if name in ('patients ', 'two studies') else '0'}.dcm: " in outcome.failed[name]
        assert word in outcome.failed[name]
        assert not (tmp_path / "out" / name).exists()
    # all but the series of two studies can be segmented, if into files that refer to nothing
    others = segment(folder, tmp_path / "nifti", ("mask", "json"))
    assert list(others.failed) == ["two studies"]


def test_our_own_files_beside_the_images_are_left_out(tmp_path: Path):
    """A study comes back from an archive with all of its objects in one folder."""
    write_odd(tmp_path / "in")
    segment(tmp_path / "in", tmp_path / "out", ("dicom-pm", "dicom-sr"))
    for path in (tmp_path / "out/in").glob("*.dcm"):
        path.rename(tmp_path / "in" / path.name)
    outcome = segment(tmp_path / "in", tmp_path / "again")
    assert (outcome.done, outcome.failed) == (["in"], {})
