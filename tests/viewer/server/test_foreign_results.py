"""A folder of results may come from anybody: an address in it is not opened."""

import json

import pytest

from berdiff.viewer.server.results import saved_results


@pytest.mark.parametrize("address", ["s3://bucket/store", "http://127.0.0.1:9/store", "https://x/y"])
def test_an_address_in_done_json_is_not_opened(tmp_path, monkeypatch, address):
    monkeypatch.setattr("berdiff.remote.filesystem", lambda *_: pytest.fail("it was opened"))
    monkeypatch.setattr("berdiff.inference.copies.filesystem", lambda *_: pytest.fail("it was opened"))
    facts = {"targets": ["nodule"], "kind": "independent", "region": None, "settings": {}, "notes": []}
    (tmp_path / "a").mkdir()
    (tmp_path / "settings.json").write_text("{}")
    (tmp_path / "a" / "done.json").write_text(json.dumps({"name": "a", "sources": [{"path": address, "case": "a"}]}))
    (tmp_path / "a" / "result.json").write_text(json.dumps(facts))
    (one,) = saved_results(tmp_path)
    assert "addresses out of files are not opened" in one.source.error
