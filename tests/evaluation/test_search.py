"""The search for a sampler: what is tried, in which order, and what is found."""

from pathlib import Path

import pytest

from berdiff.diffusion.sampler import Sampler
from berdiff.errors import InputError
from berdiff.evaluation import search as module
from berdiff.evaluation.search import ENDS, LAST, SIGMAS, grid, search
from berdiff.evaluation.settings import EvaluationSettings
from berdiff.inference.model import Model
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.gaussian import GaussianDiffusion
from berdiff.methods.unet import UNet
from fakes import TenLines, diffusion, make_spec

FOUR = EvaluationSettings(samples=4)


def opened(segmenter) -> Model:
    return Model(segmenter, "m", segmenter.input_spec, (16, 16))


def test_a_grid_falls_evenly_from_T_to_where_the_last_step_begins() -> None:
    assert grid(1000, 3, 0.2) == (1000, 600, 200)
    assert grid(1000, 1, 0.5) == (1000,)
    assert grid(10, 2, 0.01) == (10, 1)
    with pytest.raises(InputError, match="--counts: expected at most 6 steps"):
        grid(10, 7, 0.5)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Sampler]:
    """Figures made up so that the best is known: last step from 300, sampled, shared, sigma 0.5."""
    seen: list[Sampler] = []

    def evaluate(model, store, out, settings):
        s: Sampler = settings.sampler
        seen.append(s)
        assert isinstance(s.steps, tuple)
        ged = abs(s.steps[-1] - 300) / 1000 + (s.last_step == "threshold") + (s.noise == "independent")
        values = {
            "ged_4": 2.0,
            f"ged_{settings.drawn}_unbiased": ged + abs(s.sigma - 0.5),
            "hm_iou_4": 0.5,
            "seconds": 0.1,
        }
        return {"metrics": {key: {"value": value} for key, value in values.items()}}

    monkeypatch.setattr(module, "evaluate", evaluate)
    return seen


def test_one_setting_after_the_other_from_the_best_so_far(tried: list[Sampler], tmp_path: Path) -> None:
    found = search(opened(diffusion(TenLines(), BerDiff())), None, tmp_path, FOUR, (3,))  # type: ignore[arg-type]
    # the best so far, sigma 1, is not evaluated again
    assert len(tried) == len(set(tried)) == len(ENDS) + len(LAST) + len(SIGMAS) - 1
    best = Sampler((1000, 650, 300), last_step="sample", noise="shared", sigma=0.5)
    assert found[3][0].sampler == best
    assert [t.ged_unbiased for t in found[3]] == sorted(t.ged_unbiased for t in found[3])
    assert [(s.last_step, s.noise) for s in tried[: len(ENDS)]] == list(ENDS), "what is random comes first"
    assert {s.steps for s in tried[: len(ENDS)]} == {grid(1000, 3, 1 / 3)}, "on even steps"
    first_row = (tmp_path / "search.md").read_text().splitlines()[2]
    assert first_row.startswith("| 3 | 300 | sample | shared | 0.5 |")


def test_sets_are_ranked_by_the_unbiased_ged_of_their_pool(tried: list[Sampler], tmp_path: Path) -> None:
    sets = EvaluationSettings(samples=4, set="representative", pool=8)
    model = opened(diffusion(TenLines(), BerDiff()))
    found = search(model, None, tmp_path, sets, (3,))  # type: ignore[arg-type]
    assert found[3][0].sampler == Sampler((1000, 650, 300), last_step="sample", noise="shared", sigma=0.5)
    assert "| GED 8, unbiased | GED 4 | HM-IoU 4 |" in (tmp_path / "search.md").read_text()


def test_only_what_the_method_can_do_is_tried(tried: list[Sampler], tmp_path: Path) -> None:
    """A Gaussian kernel has independent noise and no last step to sample; a U-net has no sampler at all."""
    search(opened(diffusion(TenLines(), GaussianDiffusion())), None, tmp_path, FOUR, (3,))  # type: ignore[arg-type]
    assert {(s.last_step, s.noise) for s in tried} == {("threshold", "independent")}
    assert {s.sigma for s in tried} == set(SIGMAS)
    unet = opened(UNet("fast-tiny").build(make_spec()))
    with pytest.raises(InputError, match="m: expected a method with steps to search, found unet"):
        search(unet, None, tmp_path, FOUR, (3,))  # type: ignore[arg-type]
