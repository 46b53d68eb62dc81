"""Models on a hub: published by `berdiff push`, loaded by `berdiff.load("hf://owner/name")`; the hub is on loopback."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import berdiff
from berdiff import hub
from berdiff.cli.main import main
from berdiff.errors import InputError
from berdiff.methods import folder
from fake_hub import TOKEN, FakeHub
from fakes import Blur, make_spec

pytest.importorskip("huggingface_hub")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    from huggingface_hub import _commit_api, constants

    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    # weights then go by LFS, which the server speaks; Xet is a service of its own
    monkeypatch.setattr(_commit_api, "is_xet_available", lambda: False)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    found = FakeHub()
    monkeypatch.setenv("HF_ENDPOINT", found.address)
    yield found
    found.close()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder.save(Blur().build(make_spec(targets=("disc",))), tmp_path / "blur")
    return tmp_path / "blur"


def test_a_model_goes_round_and_the_commit_is_pinned(server: FakeHub, model: Path, tmp_path: Path, capsys):
    assert main(["push", str(model), "hf://someone/blur", "--license", "apache-2.0", "--json"]) == 0
    pinned = json.loads(capsys.readouterr().out)["address"]
    files = server.repositories["someone/blur"].commits[pinned.split("@")[1]]
    assert sorted(files) == [".gitattributes", "README.md", "config.json", "model.safetensors"]
    assert files["model.safetensors"] == (model / "model.safetensors").read_bytes()
    card = files["README.md"].decode()
    assert card.startswith("---\nlibrary_name: berdiff\n")
    assert "license: apache-2.0" in card
    assert "not for clinical use" in card
    assert 'berdiff.load("hf://someone/blur")' in card
    # others put more into the repository: it is neither downloaded nor loaded
    server.repositories["someone/blur"].commit(
        "main", {"evil.py": b"1 / 0", "weights.bin": b"0" * 9, "sub/x.json": b"{}"}
    )
    loaded = berdiff.load("hf://someone/blur")
    newest = server.repositories["someone/blur"].branches["main"]
    assert loaded.name == f"hf://someone/blur@{newest}"
    assert f"model: hf://someone/blur@{newest}" in capsys.readouterr().err
    here = [path.name for path in (tmp_path / "cache").rglob("*") if "snapshots" in path.parts and not path.is_dir()]
    assert sorted(here) == ["README.md", "config.json", "model.safetensors"]
    assert not any("evil" in request or "weights.bin" in request for request in server.requests)
    image = np.random.default_rng(0).random((16, 16), dtype=np.float32)
    theirs, ours = (of.segment(image, n=2) for of in (loaded, berdiff.load(model)))
    np.testing.assert_array_equal(theirs.samples, ours.samples)
    assert theirs.settings["model"] == loaded.name  # recorded with every result
    # the commit that was published first, by its address, and again without any server
    assert berdiff.load(pinned).name == pinned
    asked = len(server.requests)
    assert berdiff.load(pinned).name == pinned
    assert len(server.requests) == asked


def test_branches_and_private_repositories(server: FakeHub, model: Path, monkeypatch, capsys):
    assert main(["push", str(model), "hf://someone/hidden", "--private", "--revision", "trial", "--quiet"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    repository = server.repositories["someone/hidden"]
    assert repository.private
    assert set(repository.commits[repository.branches["main"]]) == {".gitattributes"}
    assert berdiff.load("hf://someone/hidden@trial").name.endswith(repository.branches["trial"])
    assert f"published as hf://someone/hidden@{repository.branches['trial']}" in printed.out
    assert main(["push", str(model), "hf://someone/hidden"]) == 0  # a second time, to what is there
    monkeypatch.setenv("HF_TOKEN", "")
    with pytest.raises(InputError, match="no such repository that your token"):
        berdiff.load("hf://someone/hidden")


def test_what_goes_wrong_is_one_sentence(server: FakeHub, model: Path, tmp_path, monkeypatch, capsys):
    assert main(["push", str(model), "hf://someone/blur"]) == 0
    out = ["in.png", "--out", str(tmp_path / "out")]
    server.repositories["someone/empty"] = empty = type(server.repositories["someone/blur"])()
    empty.commit("main", {"README.md": b"nothing here"})

    def sentence(*argv: str) -> str:
        capsys.readouterr()
        assert main(list(argv)) == 2
        lines = capsys.readouterr().err.splitlines()
        assert not any("Traceback" in line for line in lines)
        return lines[-1]

    assert "no such repository" in sentence("segment", "hf://someone/nothing", *out)
    assert "no such branch, tag or commit" in sentence("segment", "hf://someone/blur@v9", *out)
    assert "the repository has no config.json" in sentence("segment", "hf://someone/empty", *out)
    for bad in ("hf://blur", "hf://a/b/c", "hf://a/../b", "hf://a/b@"):
        assert "expected hf://owner/name" in sentence("segment", bad, *out)
    server.sizes["model.safetensors"] = 10**15
    assert "expected model.safetensors of at most" in sentence("segment", "hf://someone/blur", *out)
    server.sizes["model.safetensors"] = 7 * 2**30
    monkeypatch.setattr(hub.shutil, "disk_usage", lambda path: type("Free", (), {"free": 10}))
    assert "bytes free in" in sentence("segment", "hf://someone/blur", *out)
    assert not list((tmp_path / "cache").rglob("model.safetensors"))
    assert "a commit cannot be written to" in sentence("push", str(model), f"hf://someone/blur@{'a' * 40}")
    assert "--license: expected an identifier" in sentence("push", str(model), "hf://a/b", "--license", "a\nb: c")
    monkeypatch.setenv("HF_TOKEN", "hf_a_wrong_token")
    assert "your token (HF_TOKEN) does not allow this" in sentence("push", str(model), "hf://someone/blur")
    assert "your token (HF_TOKEN) does not allow this" in sentence("segment", "hf://someone/blur", *out)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody listens
    assert "the hub does not answer" in sentence("segment", "hf://someone/blur", *out)
    monkeypatch.setattr("builtins.__import__", _without_huggingface_hub)
    assert 'pip install "berdiff[hub]"' in sentence("segment", "hf://someone/blur", *out)


_IMPORT = __import__


def _without_huggingface_hub(name, *args, **options):
    if name == "huggingface_hub":
        raise ImportError(name)
    return _IMPORT(name, *args, **options)
