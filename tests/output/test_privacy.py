"""Who the patient is goes no further than docs/privacy.md says: markers in every text of a source, sought in files."""

import base64
import gzip
import json
import re
from pathlib import Path

import nibabel
import numpy as np
import pydicom
import pytest
from dicom_writer import write_slice
from nibabel.nifti1 import Nifti1Extension
from PIL import Image
from pydicom._dicom_dict import DicomDictionary  # type: ignore[import-not-found]
from validator import check_files

from berdiff.inference.inputs import Input, find_inputs
from berdiff.inference.settings import SegmentSettings
from berdiff.jobs.run import Outcome, SegmentationJob
from berdiff.output.anonymous import input_name
from berdiff.output.formats import FORMATS, OutputSettings
from fakes import MemoryStore, bright_model, make_spec

TEXTS = ("LO", "SH", "PN", "LT", "ST", "UT", "UC", "AE", "UR")
# What DICOM wants in every object of a study, and so what our DICOM files carry unless they are to be anonymous
TAKEN_OVER = ("PatientName", "PatientID", "AccessionNumber", "StudyID")
DATES = {"PatientBirthDate": "19010203", "StudyDate": "19020304", "StudyTime": "030405.67"}
ALWAYS_GONE = {
    "AcquisitionDate": "19040506",
    "SeriesDate": "19040507",
    "PatientAge": "099Y",
    "BodyPartExamined": "ZQXPART",
}


def marker(keyword: str) -> str:
    """Of at most 16 characters, and in no other text."""
    return f"ZQX{sum(ord(c) * 31**i for i, c in enumerate(keyword)) % 10**11:011d}"


def write_marked_series(folder: Path) -> list[str]:
    """Two slices with a marker in each text attribute that DICOM has, in sequences and in private elements; their
    keywords."""
    keywords = [
        keyword for tag, (vr, _, _, _, keyword) in DicomDictionary.items() if vr in TEXTS and keyword and tag >> 16 > 4
    ]
    rng = np.random.default_rng(0)
    for z in range(2):
        path = folder / f"ZQXZQFILE{z}.dcm"
        write_slice(path, rng.integers(0, 1400, (16, 16)), 2.5 * z, FrameOfReferenceUID="1.2.3.9", PatientSex="F")
        data = pydicom.dcmread(path)
        for keyword in keywords:
            setattr(data, keyword, marker(keyword))
        for keyword, value in (DATES | ALWAYS_GONE).items():
            setattr(data, keyword, value)
        for sequence in ("RequestAttributesSequence", "OtherPatientIDsSequence", "ReferencedStudySequence"):
            item = pydicom.Dataset()
            item.PatientID = item.RequestedProcedureDescription = "ZQXNESTED"
            setattr(data, sequence, [item])
        block = data.private_block(0x0029, "ZQXPRIVATE", create=True)
        block.add_new(0x10, "LO", "ZQXSECRET")
        data.save_as(path)
    return keywords


def segment(inputs: list[Path], out: Path, anonymous: bool, kinds: tuple[str, ...]) -> Outcome:
    model = bright_model(make_spec(rule="window", window=(-1024.0, 400.0)))
    job = SegmentationJob(model, SegmentSettings(samples=3), OutputSettings(out, kinds, anonymous=anonymous))
    return job.segment(find_inputs(inputs))


def contents(path: Path) -> bytes:
    """What is in a file, with what is packed in it."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        assert data[3] == 0  # no name of a file in the header
        return gzip.decompress(data)
    if path.suffix == ".html":
        packed = re.findall(rb"base64,([A-Za-z0-9+/=]+)", data)
        assert packed
        whole = [one for one in packed if len(one) % 4 == 0]  # scripts of the viewer speak of base64 too
        return b"\0".join([data, *map(base64.b64decode, whole)])
    return data


def sought(folder: Path, words: dict[str, str]) -> dict[str, set[str]]:
    """The words that are in a file or in its name, by its suffix."""
    found: dict[str, set[str]] = {}
    for path in folder.rglob("*"):
        texts = [str(path.relative_to(folder)).encode(), contents(path) if path.is_file() else b""]
        for name, word in words.items():
            if any(word.encode() in text or word.encode("utf-16-le") in text for text in texts):
                found.setdefault(path.suffix or "folder", set()).add(name)
    return found


@pytest.mark.filterwarnings("ignore::UserWarning")  # of writing markers where other values belong
def test_markers_in_every_text_of_a_dicom_series(tmp_path: Path):
    folder = tmp_path / "ZQXDOE^JOHN"
    keywords = write_marked_series(folder)
    assert len(keywords) > 700
    words = {keyword: marker(keyword) for keyword in keywords} | DATES | ALWAYS_GONE
    words |= {"nested": "ZQXNESTED", "private": "ZQXPRIVATE", "secret": "ZQXSECRET"}
    assert len(set(words.values())) == len(words)
    kinds = tuple(FORMATS)
    words_only = tuple(kind for kind in FORMATS if kind not in ("panel", "overlay"))  # not the slowest twice
    assert segment([folder], tmp_path / "plain", False, words_only).done == ["ZQXDOE^JOHN"]
    found = sought(tmp_path / "plain", words)
    # in our DICOM files what DICOM wants, in what people read what they know a series by, and nothing more
    title = {"PatientID", "SeriesDescription"}
    assert found == {".dcm": {*TAKEN_OVER, *DATES}, ".json": title, ".html": title}
    # the folder's name is the user's: files are called by it, and say where the source was
    assert "ZQXDOE" in (tmp_path / "plain/ZQXDOE^JOHN/result.json").read_text()

    assert segment([folder], tmp_path / "anonymous", True, kinds).done == ["ZQXDOE^JOHN"]
    every = {"any marker": "ZQX", "path": str(tmp_path), "file": "ZQFILE"}
    assert sought(tmp_path / "anonymous", words | every) == {}
    (out,) = [path for path in (tmp_path / "anonymous").iterdir() if path.is_dir()]
    assert re.fullmatch("case-[0-9a-f]{12}", out.name)
    for path in out.glob("*.dcm"):
        data = pydicom.dcmread(path)
        assert data.PatientIdentityRemoved == "YES"
        assert data.StudyInstanceUID == "1.2.3"  # so that it joins its study
        assert not any(data[tag].value for tag in (*TAKEN_OVER, *DATES, "PatientSex", "ReferringPhysicianName"))
    check_files(sorted(out.glob("*.dcm")))
    facts = json.loads((out / "result.json").read_text())
    assert (facts["name"], facts["source"]) == (out.name, {"kind": "dicom", "files": []})
    # the masks are the same; so is the place of the files
    for name in ("samples", "saliency"):
        one, two = (nibabel.load(of / f"{name}.nii.gz") for of in (tmp_path / "plain/ZQXDOE^JOHN", out))
        np.testing.assert_array_equal(one.get_fdata(), two.get_fdata())
        np.testing.assert_array_equal(one.affine, two.affine)
    # another header is another object
    uids = [pydicom.dcmread(of / "mask.seg.dcm").SOPInstanceUID for of in (tmp_path / "plain/ZQXDOE^JOHN", out)]
    assert uids[0] != uids[1]


def test_texts_of_a_nifti_header(tmp_path: Path):
    affine = np.diag([-1.5, 0.75, 2.0, 1.0])
    volume = nibabel.Nifti1Image(np.random.default_rng(0).random((16, 18, 3)), affine)
    header = volume.header
    for field in ("descrip", "aux_file", "intent_name", "db_name", "data_type"):
        header[field] = f"ZQX{field}"[: header[field].dtype.itemsize]
    header.set_xyzt_units("mm", "sec")
    header.extensions.append(Nifti1Extension("comment", b"ZQXextension"))
    path = tmp_path / "in" / "ZQXDOE.nii.gz"
    path.parent.mkdir()
    nibabel.save(volume, path)
    assert b"ZQXdescrip" in gzip.decompress(path.read_bytes())
    kinds = ("nifti", "json", "csv", "overlay")
    for anonymous in (False, True):
        out = tmp_path / str(anonymous)
        outcome = segment([path], out, anonymous, kinds)
        assert outcome.done == ["ZQXDOE"]
        files = list(out.rglob("*.nii.gz"))
        for file in files:
            written = nibabel.load(file)
            assert b"ZQX" not in gzip.decompress(file.read_bytes())
            np.testing.assert_array_equal(written.affine, affine)
            assert written.header.get_xyzt_units()[0] == "mm"
        assert len(files) > 5
    assert sought(tmp_path / "True", {"any": "ZQX", "path": str(tmp_path)}) == {}


def test_anonymous_names_follow_from_the_content(tmp_path: Path):
    rng = np.random.default_rng(0)
    one, other = (rng.integers(0, 256, (16, 16), dtype=np.uint8) for _ in range(2))
    for name, pixels in (("a", one), ("b", other), ("c", one)):
        Image.fromarray(pixels).save(tmp_path / f"ZQX{name}.png")
    files = [tmp_path / f"ZQX{name}.png" for name in "abc"]
    names = [input_name(item) for item in find_inputs(files)]
    assert names[0] == names[2] != names[1]
    outcome = segment(files, tmp_path / "out", True, ("mask", "report"))
    assert outcome.done == ["ZQXa", "ZQXb", "ZQXc"]  # for the terminal
    assert {path.name for path in (tmp_path / "out").iterdir() if path.is_dir()} == set(names)
    assert sought(tmp_path / "out", {"any": "ZQX", "path": str(tmp_path)}) == {}
    assert segment(files[::-1], tmp_path / "out", True, ("mask", "report")).skipped == ["ZQXa", "ZQXb", "ZQXc"]
    # of a store, by the image of the case
    store = MemoryStore()
    items = [Input(f"ZQX{i}", (Path("/x/ZQX.zarr"),), store, i) for i in (3, 4)]  # type: ignore[arg-type]
    assert segment_items(items, tmp_path / "cases").done == ["ZQX3", "ZQX4"]
    names = {path.name for path in (tmp_path / "cases").iterdir() if path.is_dir()}
    assert names == set(map(input_name, items))
    assert sought(tmp_path / "cases", {"any": "ZQX", "case": "case 3"}) == {}
    assert segment_items(items, tmp_path / "cases").skipped == ["ZQX3", "ZQX4"]


def segment_items(items: list[Input], out: Path) -> Outcome:
    output = OutputSettings(out, ("mask", "json"), anonymous=True)
    return SegmentationJob(bright_model(), SegmentSettings(samples=2), output).segment(items)
