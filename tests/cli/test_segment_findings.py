"""`berdiff segment` with findings and parts, from the command line."""

import csv
import json
from pathlib import Path

import nibabel
import numpy as np
import pytest
from PIL import Image

import berdiff
from berdiff.cli.main import main
from berdiff.inference.settings import SegmentSettings

from .test_segment import FAST, errors

AFFINE = np.diag([-0.8, -0.8, 2.5, 1])


@pytest.fixture
def scans(tmp_path) -> Path:
    rng = np.random.default_rng(0)
    (tmp_path / "in").mkdir()
    for name in "ab":
        image = nibabel.Nifti1Image(rng.integers(-1000, 400, (40, 48, 8), dtype=np.int16), AFFINE)
        nibabel.save(image, tmp_path / "in" / f"{name}.nii.gz")
    Image.fromarray(rng.integers(0, 256, (40, 40), dtype=np.uint8)).save(tmp_path / "in" / "p.png")
    return tmp_path / "in"


def run(model: Path, scans: Path, out: Path, *options: str) -> int:
    return main(["segment", str(model), str(scans), "--out", str(out), *FAST, "--write", "json", *options])


def test_centres_fail_alone_and_the_others_are_in_table_json_and_cohort(grey, scans, tmp_path, capsys):
    (tmp_path / "c.csv").write_text(
        "case,z,y,x,finding\na,4,20,20,n1\na,2,30,25,[b]n2\na,9,1,1,far\np,,20,20,\nq,,1,1,\n"
    )
    options = ("--centers", str(tmp_path / "c.csv"), "--extent", "2.5")
    assert run(grey, scans, tmp_path / "out", *options) == 2
    printed = capsys.readouterr()
    assert "a/n1" in printed.out
    assert "a/[b]n2" in printed.out
    assert "3 segmented, 0 found done, 2 failed" in printed.out
    assert "cohort.html" in printed.out.replace("\n", "")
    left_out, far, unknown, last = errors(printed.err)
    assert left_out == "1 of 3 inputs have no finding and are left out"
    assert far.startswith(f"{tmp_path / 'c.csv'}, line 4: ")
    assert unknown.startswith(f"{tmp_path / 'c.csv'}, line 6: ")
    assert last == "berdiff segment: 2 of 5 findings failed, as reported above"
    facts = json.loads((tmp_path / "out/a/n1/result.json").read_text())
    assert facts["region"] == [[3, 6], [4, 36], [4, 36]]
    model = berdiff.load(grey)
    assert 0 <= facts["measurements"]["finding"]["disagreement"] <= 1
    result = model.segment(scans / "a.nii.gz", n=2, steps=2, center=(4, 20, 20), extent=2.5)
    assert result.region == ((3, 6), (4, 36), (4, 36))
    with (tmp_path / "out/cohort.csv").open() as file:
        assert {row["folder"] for row in csv.DictReader(file)} == {"a/n1", "a/[b]n2", "p/finding-1"}
    assert run(grey, scans, tmp_path / "out", *options, "--json") == 2
    outcome = json.loads(capsys.readouterr().out)
    assert (outcome["done"], outcome["skipped"]) == ([], ["a/n1", "a/[b]n2", "p/finding-1"])
    assert list(outcome["failed"]) == ["a/far", "q"]


def test_a_centre_is_the_finding_that_a_table_would_name(grey, scans, tmp_path, capsys):
    scan = scans / "a.nii.gz"
    model = berdiff.load(grey)
    opened = model.open(scan, SegmentSettings())
    mm = [f"{at:.3f}" for at in reversed(opened.grid.to_mm((4, 20, 20)))]
    assert any(at.startswith("-") for at in mm)
    found = {}
    for name, asked in {
        "table": ["--extent", "2.5", "--centers", str(tmp_path / "c.csv")],
        "commas": ["--extent", "2.5", "--center", "4,20,20"],
        "mm": ["--extent", "2.5", "--center-unit", "mm", "--center", *mm],
        "usual": ["--center", "4", "20", "20"],
        "slice": ["--slice", "--center", "4", "20", "20"],
    }.items():
        (tmp_path / "c.csv").write_text("case,z,y,x,finding\na,4,20,20,n1\n")
        assert run(grey, scan, tmp_path / name, *asked) == 0
        (path,) = (tmp_path / name).glob("a/**/result.json")
        found[name] = json.loads(path.read_text())
    printed = capsys.readouterr().out
    assert "marked by" in printed
    assert {tuple(found[name]["region"][0]) for name in ("table", "commas", "mm")} == {(3, 6)}
    assert found["commas"]["measurements"] == found["mm"]["measurements"]
    assert found["usual"]["region"][0] == [0, 8]
    assert found["usual"]["settings"]["region"]["extent"] == 15
    assert found["slice"]["region"][0] == [4, 5]
    for name, facts in found.items():
        (of,) = facts["measurements"].values()
        size = "area" if name == "slice" else "volume"
        assert {"area", "volume"} & {*of} == {size}
        depth = facts["region"][0][1] - facts["region"][0][0]
        assert of.get("extent_mm") == (None if name == "slice" else depth * facts["spacing_mm"][0])


def test_candidates_in_parts(grey, scans, tmp_path, capsys):
    (scans / "p.png").unlink()
    (tmp_path / "masks").mkdir()
    for name, marked in (("a", 2), ("b", 1)):
        values = np.zeros((40, 48, 8), np.uint8)
        values[10:14, 20:24, 3:6] = marked
        values[30, 40, 7] = marked - 1
        nibabel.save(nibabel.Nifti1Image(values, AFFINE), tmp_path / "masks" / f"{name}.nii.gz")
    options = ("--candidates", str(tmp_path / "masks"), "--extent", "0", "--json")
    done = []
    for part in ("2/2", "1/2"):
        assert run(grey, scans, tmp_path / "out", *options, "--part", part) == 0
        done.append(json.loads(capsys.readouterr().out)["done"])
    assert done == [["b/finding-1"], ["a/finding-1", "a/finding-2"]]
    assert run(grey, scans, tmp_path / "out", *options, "--part", "3/3") == 0  # more tasks than inputs
    whole = (tmp_path / "out/cohort.csv").read_bytes()
    assert run(grey, scans, tmp_path / "out", *options) == 0
    assert (tmp_path / "out/cohort.csv").read_bytes() == whole
    assert whole.count(b"\n") == 4
    facts = json.loads((tmp_path / "out/a/findings.json").read_text())
    assert [one["center"] for one in facts["findings"]] == [[4, 21, 11], [7, 40, 30]]
    values = np.zeros((40, 48, 8), np.uint8)
    nibabel.save(nibabel.Nifti1Image(values, AFFINE), tmp_path / "masks/a.nii.gz")
    nibabel.save(nibabel.Nifti1Image(values + 1, np.eye(4)), tmp_path / "masks/b.nii.gz")
    capsys.readouterr()
    assert run(grey, scans, tmp_path / "new", *options) == 2
    empty, moved, last = errors(capsys.readouterr().err)
    assert empty.startswith(f"{tmp_path}/masks/a.nii.gz: ")
    assert moved.startswith(f"{tmp_path}/masks/b.nii.gz: ")
    assert last == "berdiff segment: 2 of 2 findings failed, as reported above"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--part", "5/4"], "--part"),
        (["--centers", "c.csv", "--candidates", "m"], "--centers"),
        (["--extent", "3"], "--extent"),
        (["--center", "1,2,3,4"], "--center"),
        (["--center"], "--center"),
        (["--center", "7;3;1"], "--center"),
        (["--center", "1.5", "2", "3"], "--center"),
        (["--center-unit", "mm", "--center", "1", "2"], "--center-unit"),
        (["--centers", "nothing.csv"], "nothing.csv"),
    ],
)
def test_bad_options_are_one_sentence(grey, scans, tmp_path, capsys, options, named):
    assert run(grey, scans, tmp_path / "out", *options) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"berdiff segment: {named}: ")
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists()
