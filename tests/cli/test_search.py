"""`berdiff search`: what it prints, and the sampler that it keeps."""

import json
from pathlib import Path

import pytest

from berdiff.cli.search import command
from berdiff.diffusion.sampler import Sampler
from berdiff.errors import InputError
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.folder import load, save
from fakes import make_spec, make_store


@pytest.fixture
def own(tmp_path: Path) -> list[str]:
    """MODEL --data STORE --out OUT --counts 2"""
    save(BerDiff("fast-tiny", "power2.5", 20).build(make_spec()), tmp_path / "own")
    store = make_store(tmp_path, train=2, val=3)
    return [str(tmp_path / "own"), "--data", str(store), "--out", str(tmp_path / "s"), "--counts", "2"]


def test_the_command_keeps_the_best_as_the_models_own(own: list[str], capsys: pytest.CaptureFixture) -> None:
    before = load(own[0])
    command([*own, "--samples", "2", "--limit", "2", "--keep", "2", "--json"])
    tried = json.loads(capsys.readouterr().out)["2"]
    assert len(tried) == 14, "of 17, the even steps, sigma 1 and one view come twice"
    after = load(own[0])
    best = tried[0]["sampler"]
    assert after.sampler == Sampler(**{**best, "steps": tuple(best["steps"])})
    assert after.weights_sha256 == before.weights_sha256


def test_bad_requests_are_refused_and_bundled_models_are_not_written_to(own: list[str], tmp_path: Path) -> None:
    for argv, words in (
        ([*own, "--keep", "4"], "--keep: expected one of --counts, 2, found 4"),
        ([*own[:-1], "0"], "--counts: expected at least 1, found 0"),
        (["lidc", *own[1:], "--keep", "2"], "--keep: expected a model of your own to write to, found the bundled lidc"),
    ):
        with pytest.raises(InputError) as error:
            command(argv)
        assert str(error.value) == words
        assert not (tmp_path / "s").exists()
