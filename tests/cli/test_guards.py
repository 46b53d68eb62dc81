"""What a model cannot know is refused in a sentence with exit code 2, or with --force segmented with warnings that
every output carries."""

import json
from pathlib import Path

import nibabel
import numpy as np
import pytest
from dicom_writer import write_slice
from PIL import Image

from berdiff.cli.main import main
from berdiff.data.reading import read_image

FAST = ["--samples", "2", "--steps", "1"]
CENTER = ["--center", "1", "40", "40"]


def save_nifti(path: Path, voxels: np.ndarray) -> Path:
    nibabel.save(nibabel.Nifti1Image(voxels, np.diag([-1.0, -1, 2, 1])), path)
    return path


@pytest.fixture
def brain(tmp_path) -> Path:
    """As MR: whole numbers from 0 on."""
    voxels = np.random.default_rng(0).integers(0, 900, (80, 80, 3)).astype(np.int16)
    return save_nifti(tmp_path / "brain.nii.gz", voxels)


def chest(folder: Path, low: int = 0, high: int = 1500, side: int = 80, **tags) -> Path:
    """A CT series of three slices; stored values are 1024 above HU."""
    rng = np.random.default_rng(1)
    for z in range(3):
        write_slice(folder / f"{z}.dcm", rng.integers(low, high, (side, side)).astype(np.int16), 2.5 * z, **tags)
    return folder


def segment(out: Path, *argv: object) -> int:
    return main(["segment", *map(str, argv), "--out", str(out), "--device", "cpu", *FAST])


def facts(out: Path) -> dict:
    (found,) = out.rglob("result.json")
    return json.loads(found.read_text())


def warned(capsys, out: Path, *words: str) -> None:
    """The warning is in every place that people or programs read."""
    (warning,) = [one for one in facts(out)["warnings"] if all(word in one for word in words)]
    (done,), (report,), (viewer,) = out.rglob("done.json"), out.rglob("report.html"), out.rglob("viewer.html")
    assert warning in json.loads(done.read_text())["warnings"]
    assert warning[1:] in report.read_text()
    assert warning in viewer.read_text()
    assert "WARNING" in capsys.readouterr().out


def test_an_mr_for_a_ct_model(brain, tmp_path, capsys):
    out = tmp_path / "out"
    assert segment(out, "lidc", brain, *CENTER) == 2
    sentence = capsys.readouterr().err
    assert all(words in sentence for words in ("looks like an MR", "trained on CT", "--force"))
    assert not out.exists()
    assert segment(out, "lidc", brain, *CENTER, "--force", "--write", "json", "report", "viewer") == 0
    warned(capsys, out, "looks like an MR")


def test_the_real_brain_for_the_lung_model(shared_data, tmp_path, capsys):
    case, out = shared_data / "brats" / "BraTS2021_00006", tmp_path / "out"
    assert segment(out, "lidc", case, "--center", "80", "120", "110") == 2
    said = capsys.readouterr().err
    assert said.count("looks like an MR") == 4
    assert "BraTS2021_00006_seg.nii.gz" in said  # it is not in the queue
    assert "4 of 4 inputs failed" in said
    assert not out.exists()


def test_a_ct_by_its_header_and_sr(tmp_path, capsys):
    scan, out = chest(tmp_path / "mr", Modality="MR"), tmp_path / "out"
    assert segment(out, "lidc", scan, *CENTER) == 2
    assert "this is an MR" in capsys.readouterr().err
    # SR needs more tags than the reader
    tags = {"Modality": "MR", "FrameOfReferenceUID": "1.9", "PatientName": "", "PatientSex": "", "StudyTime": ""}
    scan = chest(tmp_path / "mr2", **tags, PatientBirthDate="", StudyDate="", AccessionNumber="", StudyID="1")
    assert segment(out, "lidc", scan, *CENTER, "--force", "--write", "dicom-sr", "json") == 0
    (sr,) = out.rglob("measurements.sr.dcm")
    assert facts(out)["warnings"][0].encode() in sr.read_bytes()


def test_values_say_what_a_file_without_a_header_is(tmp_path):
    rng, shape = np.random.default_rng(2), (8, 8, 2)
    for name, values, expected in (
        ("ct", rng.integers(-1000, 500, shape).astype(np.int16), "ct"),
        ("float-ct", rng.uniform(-900, 500, shape).astype(np.float32), "ct"),
        ("mr", rng.integers(0, 900, shape).astype(np.int16), "mr"),
        ("scaled", rng.uniform(0, 1, shape).astype(np.float32), "unknown"),
        ("normalised", rng.normal(0, 1, shape).astype(np.float32), "unknown"),
        ("bytes", rng.integers(0, 255, shape).astype(np.uint8), "unknown"),
    ):
        assert read_image(save_nifti(tmp_path / f"{name}.nii", values)).modality == expected, name


def test_pictures(tmp_path, capsys):
    rng = np.random.default_rng(3)
    y, x = np.indices((64, 64))
    cat = np.stack([255 * (np.hypot(y - 36, x - 32) < 20), 3 * x, 255 - 2 * y], -1).astype(np.uint8)
    Image.fromarray(cat).save(tmp_path / "cat.png")
    grey = rng.integers(0, 255, (64, 64)).astype(np.uint8)
    Image.fromarray(grey).save(tmp_path / "grey.png")
    out = tmp_path / "out"
    assert segment(out, "lidc", tmp_path / "cat.png") == 2  # in colour it cannot be a CT
    assert not out.exists()
    Image.fromarray(grey.astype(np.uint16) * 200).save(tmp_path / "wide.png")
    assert segment(out, "lidc-readers", tmp_path / "wide.png") == 2
    assert "Hounsfield" in capsys.readouterr().err
    assert not out.exists()
    # 8 bits are a CT in some window
    assert segment(tmp_path / "eight", "lidc-readers", tmp_path / "grey.png", "--write", "json") == 0
    assert "-1000 to 400 HU" in facts(tmp_path / "eight")["warnings"][0]
    assert segment(out, "lidc", tmp_path / "grey.png", "--write", "json", "report", "viewer") == 0
    warned(capsys, out, "a picture does not say what it is of")


def test_label_files_of_a_folder_are_left_out_with_a_note(tmp_path, capsys):
    rng = np.random.default_rng(4)
    scan = save_nifti(tmp_path / "a.nii.gz", rng.integers(-1000, 400, (64, 64, 1)).astype(np.int16))
    labels = rng.integers(0, 3, (64, 64, 1)).astype(np.uint8)
    for name in ("a_seg.nii.gz", "mask-1.nii.gz", "labels.nii.gz", "few.nii.gz"):
        save_nifti(tmp_path / name, labels)
    out = tmp_path / "out"
    assert segment(out, "lidc", tmp_path, "--write", "json") == 0
    assert facts(out)["name"] == "a"
    said = capsys.readouterr().err
    assert all(name in said for name in ("a_seg.nii.gz", "mask-1.nii.gz", "labels.nii.gz", "few.nii.gz"))
    # named, they are refused
    for name in ("a_seg.nii.gz", "few.nii.gz"):
        assert segment(tmp_path / "named", "lidc", tmp_path / name) == 2
        assert "mask or label file" in capsys.readouterr().err
    assert not (tmp_path / "named").exists()
    assert segment(tmp_path / "named", "lidc", tmp_path / "a_seg.nii.gz", "--force", "--write", "json") == 0
    assert "label" in facts(tmp_path / "named")["warnings"][0]
    assert scan.exists()


def test_a_whole_scan_has_to_be_pointed_at(tmp_path, capsys):
    scan, out = chest(tmp_path / "ct", side=128), tmp_path / "out"
    assert segment(out, "lidc", scan) == 2
    sentence = capsys.readouterr().err
    assert all(words in sentence for words in ("128x128", "--center", "--candidates", "crops around a finding"))
    assert not out.exists()
    assert segment(out, "lidc", scan, *CENTER, "--write", "json") == 0
    assert facts(out)["warnings"] == []
    assert segment(tmp_path / "all", "lidc", scan, "--force", "--write", "json", "--slices", "1:2") == 0
    assert "much larger" in facts(tmp_path / "all")["warnings"][0]


def test_air(tmp_path, capsys):
    out = tmp_path / "out"
    assert segment(out, "lidc", chest(tmp_path / "ct", low=0, high=100), *CENTER, "--write", "json") == 0
    assert "nothing to see" in facts(out)["warnings"][0]
    even = save_nifti(tmp_path / "even.nii.gz", np.full((64, 64, 1), -400, np.int16))
    assert segment(tmp_path / "even", "lidc", even, "--write", "json") == 0
    assert "nothing to see" in facts(tmp_path / "even")["warnings"][0]


def test_names_of_people_and_series(tmp_path, capsys):
    tags = {"SeriesDescription": "Chest 2.5", "SeriesNumber": "7", "SeriesDate": "20240131"}
    uid = "1.3.6.1.4.1.14519.5.2.1.6279.6001.98765432"
    scan, out = chest(tmp_path / "ct", **tags, series=uid), tmp_path / "out"
    assert segment(out, "lidc", scan, *CENTER, "--write", "json", "report", "viewer") == 0
    title = "P1, Chest 2.5 (series 7), 2024-01-31"
    printed = capsys.readouterr().out
    assert all(word in printed for word in title.split())  # a column of the table breaks it
    assert (facts(out)["name"], facts(out)["title"]) == ("ct", title)  # the name seeds the noise, and stays
    assert facts(out)["details"]["series UID"] == uid
    for page in ("report.html", "viewer.html"):
        text = (out / "ct" / page).read_text()
        assert title in text
        assert uid in text
    hidden = tmp_path / "hidden"
    assert segment(hidden, "lidc", scan, *CENTER, "--write", "json", "report", "viewer", "--anonymous") == 0
    assert facts(hidden)["title"] == "series ...98765432"
    for path in hidden.rglob("*.*"):
        if path.suffix in (".json", ".html"):
            assert "Chest 2.5" not in path.read_text(), path


def test_a_gap_in_a_series(tmp_path, capsys):
    scan, out = chest(tmp_path / "ct"), tmp_path / "out"
    write_slice(scan / "far.dcm", np.full((80, 80), 700, np.int16), 10.0)
    asked = (scan, *CENTER, "--write")
    assert segment(out, "lidc", *asked, "json") == 2
    sentence = capsys.readouterr().err
    assert "5 to 10 mm" in sentence
    assert "--allow-gaps" in sentence
    assert not out.exists()
    assert segment(out, "lidc", *asked, "json", "report", "viewer", "nifti", "--allow-gaps") == 0
    warned(capsys, out, "interpolated", "5 to 10 mm")
    assert facts(out)["shape"][0] == 5
    assert facts(out)["settings"]["allow_gaps"] is True
    saliency = nibabel.load(out / "ct" / "saliency.nii.gz")
    assert (saliency.shape, saliency.affine[2, 2]) == ((80, 80, 5), 2.5)
    # DICOM objects refer to files, which interpolated slices are not
    assert segment(tmp_path / "default", "lidc", scan, *CENTER, "--allow-gaps") == 0
    assert not list((tmp_path / "default").rglob("*.dcm"))
    assert segment(tmp_path / "seg", "lidc", *asked, "dicom-seg", "--allow-gaps") == 2


def test_values_that_say_nothing_are_a_warning_and_no_warning_hides_another(tmp_path):
    """An 8-bit volume may be anything; a forced file with two faults says both."""
    values = np.random.default_rng(0).integers(0, 40, (70, 70, 3)).astype(np.uint8)
    nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), tmp_path / "t1.nii.gz")
    where = ("--center", "1", "35", "35", "--slice", "--write", "json")
    assert segment(tmp_path / "a", "lidc", tmp_path / "t1.nii.gz", *where) == 0
    assert "do not look like" in facts(tmp_path / "a")["warnings"][0]
    nibabel.save(nibabel.Nifti1Image(values.astype(np.int16) * 20, np.eye(4)), tmp_path / "mr_seg.nii.gz")
    assert segment(tmp_path / "b", "lidc", tmp_path / "mr_seg.nii.gz", *where, "--force") == 0
    found = " ".join(facts(tmp_path / "b")["warnings"])
    assert "mask or label file" in found
    assert "looks like an MR" in found


def test_a_folder_of_masks_alone_is_one_sentence(tmp_path, capsys):
    (tmp_path / "in").mkdir()
    np.save(tmp_path / "in" / "b.npy", np.eye(70, dtype=np.int16))
    assert segment(tmp_path / "out", "lidc", tmp_path / "in", "--center", "35", "35") == 2
    assert "masks or labels" in capsys.readouterr().err.splitlines()[-1]
