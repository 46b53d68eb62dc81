"""berdiff data: each layout by its one command, one sentence and exit code 2 for bad input."""

import json
import pickle
from pathlib import Path

import pytest
from layouts import blobs, write_crops, write_hdf5, write_jpg_folders, write_png_tree

from berdiff.cli.main import main
from berdiff.data.sources import SOURCES


def write_pickle(path: Path) -> None:
    images, masks = blobs(4)
    slices = {i: {"image": images[i] / 255, "masks": list(masks[i]), "series_uid": f"1.{i}"} for i in range(4)}
    path.write_bytes(pickle.dumps(slices))


LAYOUTS = {
    "lidc-hdf5": (write_hdf5, [], 11),
    "lidc-pickle": (write_pickle, ["--seed", "3", "--val", "0.25", "--test", "0.25"], 4),
    "lidc-png": (write_png_tree, ["--readers", "4"], 12),
    "lidc-crops": (write_crops, ["--size", "32"], 7),
    "lidc-jpg": (write_jpg_folders, ["--threshold", "120"], 5),
}


def test_prepare_verify_info(tmp_path, capsys):
    for name, (write, options, n) in LAYOUTS.items():
        write(tmp_path / name)
        store = str(tmp_path / f"{name}.zarr")
        assert main(["data", "prepare", name, str(tmp_path / name), store, *options]) == 0
        assert f"all      {n:>8}" in capsys.readouterr().out
        assert main(["data", "verify", store]) == 0
        assert capsys.readouterr().out == f"{store}: whole\n"
        assert main(["data", "info", store, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["source"], found["counts"]["all"]["cases"], found["size"]) == (name, n, [32, 32])
        if name == "lidc-pickle":
            assert found["split"] == {"by": "patient", "seed": 3, "val": 0.25, "test": 0.25}
        if name == "lidc-jpg":
            assert found["options"]["threshold"] == 120


def test_show_takes_cases_of_different_patients(tmp_path, monkeypatch, capsys):
    write_hdf5(tmp_path / "a.hdf5", {"train": 12})
    main(["data", "prepare", "lidc-hdf5", str(tmp_path / "a.hdf5"), str(tmp_path / "s")])
    asked = []
    monkeypatch.setattr(
        "berdiff.output.contact_sheet.contact_sheet", lambda store, indices, path: asked.append((store, indices, path))
    )
    out = tmp_path / "sheet.png"
    assert main(["data", "show", str(tmp_path / "s"), "--out", str(out), "--count", "6", "--split", "train"]) == 0
    ((store, indices, path),) = asked
    assert path == out
    assert len(set(store.cases.patient[indices])) == len(indices) == 6
    capsys.readouterr()
    assert main(["data", "show", str(tmp_path / "s"), "--out", str(out), "--count", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {"figure": str(out), "cases": list(store.cases.case[asked[-1][1]])}
    assert "--count: expected at least 1 case, found 0" in refusal(
        ["show", str(tmp_path / "s"), "--count", "0"], capsys
    )


def refusal(arguments: list[str], capsys) -> str:
    """The one line on standard error with which a command ends with exit code 2."""
    assert main(["data", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("berdiff data: ")
    assert error.count("\n") == 1
    assert "Traceback" not in error
    return error


def test_bad_input_is_one_sentence(tmp_path, capsys):
    (tmp_path / "a.hdf5").write_text("not HDF5")
    (tmp_path / "empty").mkdir()
    out = str(tmp_path / "s")
    assert "a.hdf5: expected a whole HDF5" in refusal(["prepare", "lidc-hdf5", str(tmp_path / "a.hdf5"), out], capsys)
    assert "a.hdf5: expected a folder" in refusal(["prepare", "lidc-png", str(tmp_path / "a.hdf5"), out], capsys)
    for name in ("lidc-png", "lidc-crops", "lidc-jpg"):
        assert "found none" in refusal(["prepare", name, str(tmp_path / "empty"), out], capsys)
    assert "source: expected one of" in refusal(["prepare", "lidc", "a", out], capsys)
    assert "expected a prepared store" in refusal(["verify", str(tmp_path / "empty")], capsys)
    assert "expected a prepared store" in refusal(["info", str(tmp_path / "empty")], capsys)
    assert "expected a prepared store" in refusal(["show", str(tmp_path / "empty")], capsys)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.hdf5", "empty"]


def test_a_pickle_that_runs_code(tmp_path, capsys):
    mark = tmp_path / "ran"
    (tmp_path / "a.pickle").write_bytes(b"cposix\nmkdir\n(S'" + str(mark).encode() + b"'\ntR.")
    sentence = refusal(["prepare", "lidc-pickle", str(tmp_path / "a.pickle"), str(tmp_path / "s")], capsys)
    assert "posix.mkdir" in sentence
    assert [path.name for path in tmp_path.iterdir()] == ["a.pickle"]


def test_verify_prints_each_fault(tmp_path, capsys):
    write_hdf5(tmp_path / "a.hdf5")
    main(["data", "prepare", "lidc-hdf5", str(tmp_path / "a.hdf5"), str(tmp_path / "s")])
    (tmp_path / "s" / "cases.csv").write_text((tmp_path / "s" / "cases.csv").read_text().replace("0", "1"))
    (tmp_path / "s" / "more").write_text("")
    capsys.readouterr()
    assert main(["data", "verify", str(tmp_path / "s")]) == 2
    streams = capsys.readouterr()
    assert "faults" in streams.out
    assert "s/more: expected only files of the manifest" in streams.err
    assert "cases.csv: expected SHA-256" in streams.err
    assert main(["data", "verify", str(tmp_path / "s"), "--json"]) == 2
    assert len(json.loads(capsys.readouterr().out)["faults"]) >= 2


def test_every_source_has_help(capsys):
    assert main(["data", "prepare"]) == 0
    listed = capsys.readouterr().out
    for name in SOURCES.names():
        assert f"  {name} " in listed
        with pytest.raises(SystemExit) as left:
            main(["data", "prepare", name, "--help"])
        assert left.value.code == 0
        usage = capsys.readouterr().out
        assert ("PATH OUT" in usage) == (name != "lidc-readers")


SOURCE = '''"""One white slice per patient.

More about it.
"""
from dataclasses import dataclass
import numpy as np
from berdiff.data.case import Case, Reading
from berdiff.data.input_spec import Intensity

NEEDS_PATH = False

@dataclass(frozen=True)
class Options:
    patients: int = 5
    """How many."""

def read(path, options):
    white, mask = np.full((1, 8, 8), 255, np.uint8), np.ones((1, 1, 8, 8), np.uint8)
    cases = (Case(f"c{i}", f"p{i}", white, mask) for i in range(options.patients))
    return Reading(channels=("grey",), targets=("all",), intensity=Intensity("dtype"), raters=1, size=(8, 8),
                   dtype="uint8", total=options.patients, cases=cases)
'''


def test_a_source_of_another_package_joins_by_an_entry_point(tmp_path, monkeypatch, capsys):
    (tmp_path / "white_source.py").write_text(SOURCE)
    info = tmp_path / "white-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: white\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[berdiff.sources]\nwhite = white_source\nbroken = no_such_module\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["data", "prepare", "--help"]) == 0
    listed = capsys.readouterr().out
    assert "  white         One white slice per patient.\n" in listed
    assert "  broken        the entry point broken = no_such_module" in listed
    assert main(["data", "prepare", "white", str(tmp_path / "s"), "--patients", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["source"], found["counts"]["all"]["cases"], found["intensity"]["rule"]) == ("white", 4, "dtype")
    assert "expected something to import" in refusal(["prepare", "broken", str(tmp_path / "t")], capsys)
