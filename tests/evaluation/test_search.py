"""The search for a sampler: what is tried, in which order, and what is kept."""

import json
from pathlib import Path

import pytest

from berdiff.cli.search import command
from berdiff.diffusion.sampling import Sampler
from berdiff.diffusion.schedule import make_schedule
from berdiff.errors import InputError
from berdiff.evaluation import search as module
from berdiff.evaluation.evaluate import Settings
from berdiff.evaluation.search import ENDS, LAST, SIGMAS, grid, search
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.folder import load, save
from berdiff.networks.build import make_network
from training.standin import make_store

COUNT = len(ENDS) + len(LAST) + len(SIGMAS) - 1  # the best so far, sigma 1, is not judged again


def test_a_grid_falls_evenly_from_T_to_where_the_last_step_begins() -> None:
    assert grid(1000, 3, 0.2) == (1000, 600, 200)
    assert grid(1000, 1, 0.5) == (1000,)
    assert grid(10, 2, 0.01) == (10, 1)
    with pytest.raises(InputError, match="--counts: expected at most 6 steps"):
        grid(10, 7, 0.5)


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[Sampler]:
    """Figures made up so that the best is known: last step from 300, sampled, shared, sigma 0.5."""
    seen: list[Sampler] = []

    def evaluate(segmenter, store, out, settings, name):
        s: Sampler = settings.sampler
        seen.append(s)
        assert isinstance(s.steps, tuple)
        ged = abs(s.steps[-1] - 300) / 1000 + (s.last_step == "threshold") + (s.latent == "pixel") + abs(s.sigma - 0.5)
        values = {"ged_4": 2.0, "ged_4_unbiased": ged, "hm_iou_4": 0.5, "seconds": 0.1}
        return {"metrics": {key: {"value": value} for key, value in values.items()}}

    monkeypatch.setattr(module, "evaluate", evaluate)
    return seen


def test_one_setting_after_the_other_from_the_best_so_far(judged: list[Sampler], tmp_path: Path) -> None:
    model = BerDiff(make_network("fast-tiny"), make_schedule("linear", 1000))
    found = search(model, None, tmp_path, Settings(samples=4), (3,))  # type: ignore[arg-type]
    assert len(judged) == len(set(judged)) == COUNT, "nothing is judged twice"
    best = Sampler((1000, 650, 300), last_step="sample", latent="shared", sigma=0.5)
    assert found[3][0].sampler == best
    assert [t.ged_unbiased for t in found[3]] == sorted(t.ged_unbiased for t in found[3])
    assert [(s.last_step, s.latent) for s in judged[: len(ENDS)]] == list(ENDS), "what is drawn comes first"
    assert {s.steps for s in judged[: len(ENDS)]} == {grid(1000, 3, 1 / 3)}, "on even steps"
    first_row = (tmp_path / "search.md").read_text().splitlines()[2]
    assert first_row.startswith("| 3 | 300 | sample | shared | 0.5 |")


def test_the_command_keeps_the_best_as_the_models_own(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    store = make_store(tmp_path, size=32)
    own = tmp_path / "own"
    save(BerDiff(make_network("fast-tiny"), make_schedule("power2.5", 20)), own, {"size": [32, 32]})
    before = load(own)
    argv = [str(own), "--data", str(store), "--out", str(tmp_path / "s"), "--counts", "2", "--samples", "2"]
    command([*argv, "--limit", "3", "--keep", "2", "--json"])
    tried = json.loads(capsys.readouterr().out)["2"]
    assert len(tried) == COUNT - 1, "even steps of two are one of LAST"
    after = load(own)
    best = tried[0]["sampler"]
    assert after.sampler == Sampler(**{**best, "steps": tuple(best["steps"])})
    assert after.weights_sha256 == before.weights_sha256


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--keep", "4"], "--keep: expected one of --counts, 2, found 4"),
        (["--counts", "0"], "--counts: expected numbers of steps of at least 1, found [0]"),
    ],
)
def test_bad_requests_are_refused(extra: list[str], said: str, tmp_path: Path) -> None:
    own = tmp_path / "own"
    save(BerDiff(make_network("fast-tiny"), make_schedule("linear", 20)), own, {"size": [16, 16]})
    argv = [str(own), "--data", str(make_store(tmp_path)), "--out", str(tmp_path / "s"), "--counts", "2", *extra]
    with pytest.raises(InputError) as error:
        command(argv)
    assert str(error.value) == said
    assert not (tmp_path / "s").exists()


def test_the_bundled_models_are_not_written_to(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--keep: expected a model of your own"):
        command(["lidc", "--out", str(tmp_path / "s"), "--keep", "5"])
