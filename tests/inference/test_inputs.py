"""Arguments to inputs: names that depend on nothing else, series and sequences put together, bad ones reported."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dicom_writer import write_slice
from layouts import as_source, make_cases

from berdiff.data import prepare as preparing
from berdiff.errors import InputError
from berdiff.inference.inputs import Input, find_inputs

SEQUENCES = ("t1", "t1ce", "t2", "flair")


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def names(inputs: list[Input]) -> list[str]:
    return [item.name for item in inputs]


def test_files_folders_and_globs_in_any_order(tmp_path):
    touch(tmp_path / "a.png", tmp_path / "b" / "c.tif", tmp_path / "b" / "d.nii.gz", tmp_path / "b" / "notes.txt")
    touch(tmp_path / "b" / "e.npy", tmp_path / ".hidden.png")
    assert names(find_inputs([tmp_path])) == ["a", "b/c", "b/d", "b/e"]
    assert names(find_inputs([tmp_path / "b"])) == ["c", "d", "e"]
    assert names(find_inputs([tmp_path / "b" / "d.nii.gz"])) == ["d"]
    assert names(find_inputs([f"{tmp_path}/*/*.[tn]i*"])) == ["b/c", "b/d"]
    assert names(find_inputs([f"{tmp_path}/**/*.png"])) == ["a"]
    files = [tmp_path / "b" / name for name in ("c.tif", "d.nii.gz", "e.npy")]
    for given in (files, files[::-1], [*files, *files], [tmp_path / "b", *files]):
        assert names(find_inputs(given)) == ["c", "d", "e"]


def test_what_is_no_image_is_reported_and_the_others_go_on(tmp_path):
    touch(tmp_path / "a.png", tmp_path / "letter.txt")
    (tmp_path / "empty").mkdir()
    given = [tmp_path / "a.png", tmp_path / "letter.txt", tmp_path / "nothing.png", tmp_path / "empty"]
    errors = {item.name: item.error for item in find_inputs(given)}
    assert errors["a"] == ""
    kinds = "a picture (PNG, JPG, TIFF), NIfTI, DICOM or .npy file, found another kind of file"
    assert errors["letter"].endswith(f"letter.txt: expected {kinds}")
    assert errors["nothing.png"].endswith("expected an image, a folder, a glob or a store, found nothing there")
    assert errors["empty"].endswith("empty: expected a folder with images, found no files in it")
    with pytest.raises(InputError, match="INPUT: expected at least one"):
        find_inputs([])


def test_one_name_for_two_inputs_is_refused(tmp_path):
    touch(tmp_path / "x" / "a.png", tmp_path / "y" / "a.png", tmp_path / "a.png", tmp_path / "a" / "b.png")
    with pytest.raises(InputError, match="expected inputs of different names, found 'a' for"):
        find_inputs([tmp_path / "x" / "a.png", tmp_path / "y" / "a.png"])
    with pytest.raises(InputError, match="found 'a/b' inside 'a'"):
        find_inputs([tmp_path])


def test_dicom_slices_of_a_folder_are_one_input_per_series(tmp_path):
    pixels = np.zeros((4, 4), np.int16)
    for z in range(3):
        write_slice(tmp_path / "p" / "s" / f"{z}.dcm", pixels, z)
        write_slice(tmp_path / "q" / f"{z}.dcm", pixels, z, series="1.1")
        write_slice(tmp_path / "q" / f"r{z}.dcm", pixels, z, series="1.2")
    write_slice(tmp_path / "q" / "scout.dcm", pixels, series="1.3")
    found = find_inputs([tmp_path])
    assert names(found) == ["p/s", "q/1.1", "q/1.2", "q/scout"]
    assert [len(item.paths) for item in found] == [3, 3, 3, 1]
    assert names(find_inputs([tmp_path / "p" / "s"])) == ["s"]
    assert names(find_inputs([tmp_path / "q" / "scout.dcm"])) == ["scout"]
    (tmp_path / "p" / "s" / "1.dcm").write_bytes(b"broken" * 100)  # one broken slice fails its series alone
    errors = {item.name: item.error for item in find_inputs([tmp_path])}
    assert "1.dcm: expected a DICOM file" in errors.pop("p/s")
    assert set(errors.values()) == {""}


def test_sequences_of_a_case_are_put_together_in_the_channels_order(tmp_path):
    case = tmp_path / "BraTS_1"
    touch(*(case / f"BraTS_1_{part}.nii.gz" for part in ("seg", "flair", "t1", "t1ce", "t2")))
    (item,) = find_inputs([case], SEQUENCES)
    assert item.name == "BraTS_1"
    assert [path.name for path in item.paths] == [f"BraTS_1_{part}.nii.gz" for part in SEQUENCES]
    assert names(find_inputs([tmp_path], SEQUENCES)) == ["BraTS_1/BraTS_1"]
    assert names(find_inputs(sorted(case.iterdir()), SEQUENCES)) == ["BraTS_1"]  # as a shell expands CASE/*
    touch(*(tmp_path / "nn" / f"C_000{i}.nii.gz" for i in range(4)))
    (item,) = find_inputs([tmp_path / "nn"], SEQUENCES)
    assert (item.name, len(item.paths)) == ("C", 4)
    touch(tmp_path / "few" / "A_t1.nii.gz", tmp_path / "few" / "A_t2.nii.gz")
    (item,) = find_inputs([tmp_path / "few"], SEQUENCES)
    assert item.error.endswith("A: expected the 4 sequences t1, t1ce, t2, flair, found only t1, t2")


def test_cases_of_a_store_by_names_that_stay_inside_the_results(tmp_path, monkeypatch):
    bad = ["../../etc/x", "/etc/x", "a/../../x", ".x", "b\\..\\x"]
    cases = [replace(case, name=(bad[i] + str(i)) if i < 5 else f"case {i}") for i, case in enumerate(make_cases(10))]
    monkeypatch.setattr(preparing, "find_source", lambda name: as_source(cases))
    preparing.prepare("made", None, tmp_path / "s.zarr")
    found = find_inputs([tmp_path / "s.zarr"], split="all")
    assert names(found)[5:] == [f"case {i}" for i in range(5, 10)]
    for item in found:
        assert (tmp_path / "out" / item.name).resolve().is_relative_to((tmp_path / "out").resolve())
        assert not any(part.startswith(".") for part in Path(item.name).parts)
    some, more = (find_inputs([tmp_path / "s.zarr"], split="all", limit=limit, seed=1) for limit in (4, 6))
    assert (len(some), len(more)) == (4, 6)
    assert set(names(some)) < set(names(more))
    with pytest.raises(InputError, match="split: expected one of"):
        find_inputs([tmp_path / "s.zarr"], split="tst")
    with pytest.raises(InputError, match="--limit: expected at least 1, found 0"):
        find_inputs([tmp_path / "s.zarr"], limit=0)
    nameless = [replace(case, name=".." if i == 0 else f"c{i}") for i, case in enumerate(make_cases(10))]
    monkeypatch.setattr(preparing, "find_source", lambda name: as_source(nameless))
    preparing.prepare("made", None, tmp_path / "t.zarr")
    with pytest.raises(InputError, match="expected a name to call its results by"):
        find_inputs([tmp_path / "t.zarr"], split="all")
