"""berdiff data: each layout by its one command, one sentence and exit code 2 for bad input."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from layouts import blobs, write_crops, write_hdf5, write_jpg_folders, write_png_tree
from PIL import Image

from berdiff.cli.main import main
from berdiff.data.sources import SOURCES, source


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


@pytest.mark.parametrize("name", LAYOUTS)
def test_prepare_verify_info_show(name, tmp_path, capsys):
    write, options, n = LAYOUTS[name]
    write(tmp_path / "in")
    store, picture = str(tmp_path / "s.zarr"), tmp_path / "sheet.png"
    assert main(["data", "prepare", name, str(tmp_path / "in"), store, *options]) == 0
    assert f"all      {n:>8}" in capsys.readouterr().out
    assert main(["data", "verify", store]) == 0
    assert capsys.readouterr().out == f"{store}: whole\n"
    assert main(["data", "info", store, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["source"], told["counts"]["all"]["cases"], told["size"]) == (name, n, [32, 32])
    if name == "lidc-pickle":
        assert told["split"] == {"by": "patient", "seed": 3, "val": 0.25, "test": 0.25}
    if name == "lidc-jpg":
        assert told["options"]["threshold"] == 120
    assert main(["data", "show", store, "--out", str(picture), "--count", "2"]) == 0
    with Image.open(picture) as sheet:
        assert sheet.format == "PNG"
        assert len(np.unique(np.asarray(sheet.convert("L")))) > 50


def test_prepare_as_json(tmp_path, capsys):
    write_hdf5(tmp_path / "a.hdf5")
    assert main(["data", "prepare", "lidc-hdf5", str(tmp_path / "a.hdf5"), str(tmp_path / "s"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["test"]["cases"] == 3


def told(arguments: list[str], capsys) -> str:
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
    assert "a.hdf5: expected a whole HDF5" in told(["prepare", "lidc-hdf5", str(tmp_path / "a.hdf5"), out], capsys)
    assert "a.hdf5: expected a folder" in told(["prepare", "lidc-png", str(tmp_path / "a.hdf5"), out], capsys)
    for name in ("lidc-png", "lidc-crops", "lidc-jpg"):
        assert "found none" in told(["prepare", name, str(tmp_path / "empty"), out], capsys)
    assert "source: expected one of" in told(["prepare", "lidc", "a", out], capsys)
    assert "expected a prepared store" in told(["verify", str(tmp_path / "empty")], capsys)
    assert "expected a prepared store" in told(["info", str(tmp_path / "empty")], capsys)
    assert "expected a prepared store" in told(["show", str(tmp_path / "empty")], capsys)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.hdf5", "empty"]


def test_a_pickle_that_runs_code(tmp_path, capsys):
    mark = tmp_path / "ran"
    (tmp_path / "a.pickle").write_bytes(b"cposix\nmkdir\n(S'" + str(mark).encode() + b"'\ntR.")
    sentence = told(["prepare", "lidc-pickle", str(tmp_path / "a.pickle"), str(tmp_path / "s")], capsys)
    assert "found posix.mkdir; not loaded" in sentence
    assert [path.name for path in tmp_path.iterdir()] == ["a.pickle"]


def test_verify_tells_each_fault(tmp_path, capsys):
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


def test_show_prints_the_notes(tmp_path, monkeypatch):
    """What the store says of itself is on the picture."""
    from matplotlib.figure import Figure

    write_jpg_folders(tmp_path / "in")
    main(["data", "prepare", "lidc-jpg", str(tmp_path / "in"), str(tmp_path / "s")])
    titles = []
    title = Figure.suptitle
    monkeypatch.setattr(
        Figure, "suptitle", lambda self, text, **style: titles.append(text) or title(self, text, **style)
    )
    main(["data", "show", str(tmp_path / "s"), "--out", str(tmp_path / "sheet.png")])
    assert titles == ["lidc-jpg; patients unknown: the source names none"]


def test_every_source_has_help(capsys):
    assert main(["data", "prepare"]) == 0
    listed = capsys.readouterr().out
    for name in SOURCES:
        assert f"  {name} " in listed
        assert source(name).Options is not None
        with pytest.raises(SystemExit) as left:
            main(["data", "prepare", name, "--help"])
        assert left.value.code == 0
        usage = capsys.readouterr().out
        assert ("PATH OUT" in usage) == (name != "lidc-readers")


def test_help_needs_no_torch():
    code = (
        "import sys; from berdiff.cli.main import main\n"
        "try: main(['data', '--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'monai', 'zarr'} & set(sys.modules), 'imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
