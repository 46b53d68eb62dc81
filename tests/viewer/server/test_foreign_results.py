"""A folder of results may come from anybody: an address in it is not opened, and no path in it ends the list."""

import json
import os
from pathlib import Path

import pytest

from berdiff_viewer.server.items import SavedResult, saved_results


def result_of(folder: Path, source: dict[str, str]) -> SavedResult:
    """As it is read of a folder whose result says that it was made of this."""
    facts = {"targets": ["nodule"], "kind": "independent", "region": None, "settings": {}, "notes": []}
    (folder / "a").mkdir()
    (folder / "settings.json").write_text("{}")
    (folder / "a" / "done.json").write_text(json.dumps({"name": "a", "sources": [source]}))
    (folder / "a" / "result.json").write_text(json.dumps(facts))
    (one,) = saved_results(folder)
    return one


@pytest.mark.parametrize("address", ["s3://bucket/store", "http://127.0.0.1:9/store", "https://x/y"])
def test_an_address_in_done_json_is_not_opened(tmp_path, monkeypatch, address):
    monkeypatch.setattr("berdiff.remote.filesystem", lambda *_: pytest.fail("it was opened"))
    monkeypatch.setattr("berdiff.inference.copies.filesystem", lambda *_: pytest.fail("it was opened"))
    assert "addresses out of files are not opened" in result_of(tmp_path, {"path": address, "case": "a"}).source.error


@pytest.mark.parametrize(
    ("path", "found"), [("x" * 5000, "too long"), ("gone.png", "no such file"), ("fifo", "a FIFO")]
)
def test_a_path_in_done_json_that_is_no_file_is_a_sentence(tmp_path, monkeypatch, path, found):
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.chdir(tmp_path)
    error = result_of(tmp_path, {"path": path}).source.error
    assert "a: expected the image that it was made of, found" in error
    assert found in error
