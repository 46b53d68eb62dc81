"""Only regular files are opened, and whatever else lies in a folder is reported by its name."""

import os
import socket

import numpy as np
import pytest
from dicom_writer import write_slice
from layouts import refused
from PIL import Image

from berdiff.data.paths import expect_file, expect_folder, fault_of, files_under, list_files
from berdiff.data.prepare import prepare
from berdiff.inference.inputs import find_inputs


@pytest.fixture
def odd(tmp_path):
    """A folder with one good picture and one of each thing that is none."""
    folder = tmp_path / "odd"
    folder.mkdir()
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(folder / "good.png")
    os.mkfifo(folder / "fifo.png")
    (folder / "nowhere.png").symlink_to("not-there")
    (folder / "loop.png").symlink_to("loop.png")
    (folder / "device.png").symlink_to("/dev/zero")
    (folder / "out.png").symlink_to("/etc/hostname")
    here = os.getcwd()
    os.chdir(folder)
    with socket.socket(socket.AF_UNIX) as end:
        end.bind("socket.png")
    os.chdir(here)
    with open(os.path.join(os.fsencode(folder), b"\xff\xfe.png"), "wb"):
        pass
    return folder


def test_each_is_named(odd):
    found = {path.name: fault for path, fault in list_files(odd)}
    assert found.pop("good.png") == ""
    for name, words in (
        ("fifo.png", "a FIFO"),
        ("nowhere.png", "a link to nothing"),
        ("loop.png", "too many levels of symbolic links"),
        ("device.png", "a device"),
        ("out.png", "leads to"),
        ("socket.png", "a socket"),
        (os.fsdecode(b"\xff\xfe.png"), "in UTF-8"),
    ):
        assert words in found.pop(name)
    assert not found
    refused(lambda: list(files_under(odd)), "expected")  # a source takes all or nothing


def test_inputs_go_on_without_them(odd, tmp_path):
    inputs = find_inputs([odd])
    assert [item.name for item in inputs if not item.error] == ["good"]
    assert len([item for item in inputs if item.error]) == 7
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "notes.txt").write_text("x")
    refused(lambda: find_inputs([tmp_path / "d"]), str(tmp_path / "d"))


def test_given_by_name(odd, tmp_path):
    for name, words in (
        (os.fsdecode(b"\xff\xfe.png"), "in UTF-8"),
        ("fifo.png", "a FIFO"),
        ("nowhere.png", "a link to nothing"),
        ("n" * 300, "nothing there"),
    ):
        (item,) = find_inputs([odd / name])
        assert words in item.error
    (item,) = find_inputs(["/dev/zero"])
    assert "a device" in item.error
    refused(lambda: expect_file(odd / "fifo.png", "a table"), "expected a table, found a FIFO")
    refused(lambda: expect_folder(odd / "fifo.png"), "expected a folder, found a FIFO")
    assert fault_of(tmp_path / ("n" * 300)) == "file name too long"


def test_closed_folders_are_reported(tmp_path, monkeypatch):
    (tmp_path / "d" / "closed").mkdir(parents=True)
    scandir = os.scandir

    def closed(path):  # tests may run as root, who may open anything
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", closed)
    ((path, fault),) = list_files(tmp_path / "d")
    assert path.name == "closed"
    assert "expected a folder that can be listed, found permission denied" in fault


def test_a_name_too_long_for_results_fails_alone(tmp_path):
    for name in ("n" * 220, "good"):
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / f"{name}.png")
    errors = {item.name: item.error for item in find_inputs([tmp_path])}
    assert errors.pop("good") == ""
    assert "expected a name of at most 200 bytes, found 220" in next(iter(errors.values()))


def test_objects_about_images_are_left_out_with_a_note(tmp_path):
    """A second run over a folder that holds results of the first beside the sources."""
    for z in range(2):
        write_slice(tmp_path / f"{z}.dcm", np.zeros((8, 8)), z)
    for number, sop in enumerate(("66.4", "30", "88.33")):
        sop = f"1.2.840.10008.5.1.4.1.1.{sop}"
        write_slice(tmp_path / f"result{number}.dcm", np.zeros((8, 8)), 9, series=f"1.9.{number}", SOPClassUID=sop)
    notes = []
    (item,) = find_inputs([tmp_path], note=notes.append)
    assert [path.name for path in item.paths] == ["0.dcm", "1.dcm"]
    (note,) = notes
    assert "1 DICOM PM and 1 DICOM SEG and 1 DICOM SR left out" in note


def test_a_source_of_another_name_than_utf_8(tmp_path):
    source = tmp_path / os.fsdecode(b"\xff\xfe")
    source.mkdir()
    refused(lambda: prepare("folder", source, tmp_path / "s"), "expected a name in UTF-8")
    assert not (tmp_path / "s").exists()
