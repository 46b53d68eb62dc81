"""The search for a sampler: what is tried, in which order, and what is found."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from berdiff.data.input_spec import Kind
from berdiff.diffusion.sampler import Sampler
from berdiff.evaluation import search as module
from berdiff.evaluation.search import ENDS, LAST, RULES, VIEWS, grid, search
from berdiff.evaluation.settings import EvaluationSettings
from berdiff.inference.model import Model
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.families.diffusion_config import DiffusionConfig
from berdiff.methods.flow import FlowMatching
from berdiff.methods.gaussian import GaussianDiffusion
from berdiff.methods.medsegdiff import MedSegDiff
from berdiff.methods.segdiff import SegDiff
from berdiff.methods.unet import UNet
from berdiff.recipes import RECIPES
from fakes import MemoryStore, TenLines, diffusion, make_spec, real
from refusals import refused

FOUR = EvaluationSettings(samples=4)
BEST = Sampler(
    (1000, 650, 300), rule="ddpm", posterior="marginal", last_step="sample", noise="shared", views=4, sigma=1.0
)


def opened(segmenter) -> Model:
    return Model(segmenter, "m", segmenter.input_spec, (16, 16))


def test_a_grid_falls_evenly_from_T_to_where_the_last_step_begins() -> None:
    assert grid(1000, 3, 0.2) == (1000, 600, 200)
    assert grid(1000, 1, 0.5) == (1000,)
    assert grid(10, 2, 0.01) == (10, 1)
    with refused("--counts", "6 steps"):
        grid(10, 7, 0.5)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Sampler]:
    """Figures made up so that the best is known: last step from 300, sampled, shared, DDPM's marginal, four views."""
    seen: list[Sampler] = []

    def evaluate(model, store, out, settings):
        s: Sampler = settings.sampler
        seen.append(s)
        assert isinstance(s.steps, tuple)
        ged = abs(s.steps[-1] - 300) / 1000 + (s.last_step == "threshold") + (s.noise == "independent")
        values = {
            "ged_4": 2.0,
            f"ged_{settings.drawn}_unbiased": ged + (s.rule == "ddim") + (s.posterior == "soft") - s.views / 10,
            "hm_iou_4": 0.5,
            "seconds": 0.1,
        }
        return {"metrics": {key: {"value": value} for key, value in values.items()}}

    monkeypatch.setattr(module, "evaluate", evaluate)
    return seen


def test_one_setting_after_the_other_from_the_best_so_far(tried: list[Sampler], tmp_path: Path) -> None:
    found = search(opened(diffusion(TenLines(), BerDiff())), None, tmp_path, FOUR, (3,))  # type: ignore[arg-type]
    # the best so far, sigma 1 and one view, are not evaluated again
    assert len(tried) == len(set(tried)) == len(ENDS) + len(LAST) + len(RULES) + len(VIEWS) - 2
    assert found[3][0].sampler == BEST
    assert [t.ged_unbiased for t in found[3]] == sorted(t.ged_unbiased for t in found[3])
    assert [{"last_step": s.last_step, "noise": s.noise} for s in tried[: len(ENDS)]] == ENDS, (
        "what is random comes first"
    )
    assert {s.steps for s in tried[: len(ENDS)]} == {grid(1000, 3, 1 / 3)}, "on even steps"
    first_row = (tmp_path / "search.md").read_text().splitlines()[2]
    assert first_row.startswith("| 3 | 300 | sample | shared | ddpm marginal | 4 |")


def test_sets_are_ranked_by_the_unbiased_ged_of_their_pool(tried: list[Sampler], tmp_path: Path) -> None:
    sets = EvaluationSettings(samples=4, set="representative", pool=8)
    model = opened(diffusion(TenLines(), BerDiff()))
    found = search(model, None, tmp_path, sets, (3,))  # type: ignore[arg-type]
    assert found[3][0].sampler == BEST
    assert "| GED 8, unbiased | GED 4 | HM-IoU 4 |" in (tmp_path / "search.md").read_text()


def test_only_what_the_method_can_do_is_tried(tried: list[Sampler], tmp_path: Path) -> None:
    """A Gaussian kernel has independent noise and no last step to sample; a U-net has no sampler at all."""
    search(opened(diffusion(TenLines(), GaussianDiffusion())), None, tmp_path, FOUR, (3,))  # type: ignore[arg-type]
    assert {(s.last_step, s.noise) for s in tried} == {("threshold", "independent")}
    assert {(s.rule, s.posterior, s.sigma) for s in tried} == {
        *(("ddim", "soft", sigma) for sigma in (1.0, 0.5, 0.0)),
        ("ddpm", "soft", 1.0),
    }
    unet = opened(UNet("fast-tiny").build(make_spec()))
    with refused("unet", code="unsupported"):
        search(unet, None, tmp_path, FOUR, (3,))  # type: ignore[arg-type]


def test_the_search_begins_from_what_the_model_is(tried: list[Sampler], tmp_path: Path) -> None:
    """Its rule and its smallest mask; what the rule does not look at is the same in all, so no two are alike."""
    own = Sampler(3, rule="ddpm", posterior="marginal", sigma=0.2, smallest=4, spacing="quadratic", views=2)
    model = opened(BerDiff("fast-tiny", hurdle=0.05, sampler=own).build(make_spec()))
    search(model, None, tmp_path, FOUR, (3,))  # type: ignore[arg-type]
    assert {s.smallest for s in tried} == {4}
    assert {(s.rule, s.posterior, s.sigma, s.views) for s in tried[: len(ENDS)]} == {("ddpm", "marginal", 1.0, 1)}
    assert len({module._name(s) for s in tried}) == len(tried)


def test_a_count_without_room_is_refused_before_anything_is_sampled(tried: list[Sampler], tmp_path: Path) -> None:
    model = opened(diffusion(TenLines(), BerDiff(T=12)))
    with refused("--counts", "7 steps"):
        search(model, None, tmp_path, FOUR, (3, 8))  # type: ignore[arg-type]
    assert not tried


FEW = Sampler(2, sigma=0.0)
OURS = BerDiff("fast-tiny", T=12, prediction="mask", sampler=Sampler(2))
DIFFUSIONS: dict[str, tuple[DiffusionConfig, Kind]] = {
    "bernoulli": (BerDiff("fast-tiny", T=12, sampler=Sampler(2)), "independent"),
    "prior": (replace(OURS, prediction="prior"), "independent"),
    "hurdle": (replace(OURS, hurdle=0.05, sampler=Sampler(2, smallest=3)), "independent"),
    "nested": (OURS, "nested"),
    "nested, hurdle": (replace(OURS, hurdle=0.05), "nested"),
    "categorical": (OURS, "exclusive"),
    "ccdm": (replace(RECIPES["ccdm-cpu"].config.model, preset="fast-tiny", T=12, sampler=Sampler(2)), "exclusive"),
    "gaussian": (GaussianDiffusion("fast-tiny", T=12, sampler=FEW), "independent"),
    "gaussian, mask": (GaussianDiffusion("fast-tiny", T=12, prediction="mask", sampler=FEW), "independent"),
    "segdiff": (SegDiff("tiny", T=12, sampler=FEW), "independent"),
    "medsegdiff": (MedSegDiff("tiny", T=12, sampler=FEW), "independent"),
    "flow": (FlowMatching("fast-tiny", T=12, sampler=FEW), "independent"),
    "flow, mask": (FlowMatching("fast-tiny", T=12, prediction="mask", sampler=FEW), "independent"),
}
RULES_OF = {"flow": {"ddim 0"}, "gaussian": {"ddim 0", "ddim 0.5", "ddim 1", "ddpm soft"}}
RULES_OF |= {"segdiff": RULES_OF["gaussian"], "medsegdiff": RULES_OF["gaussian"]}


@pytest.mark.parametrize("name", DIFFUSIONS)
def test_every_diffusion_can_be_searched(name: str, tmp_path: Path) -> None:
    """With its own sampling, on two cases; what its kernel refuses is skipped."""
    config, kind = DIFFUSIONS[name]
    targets = ("disc",) if kind == "independent" else ("outer", "inner")
    store = MemoryStore(6, targets)
    store.masks[:, :, 1:] *= store.masks[:, :, :1] if kind == "nested" else 1 - store.masks[:, :, :1]
    store.input_spec = replace(store.input_spec, kind=kind)
    model = opened(real(config, store.input_spec))
    found = search(model, store, tmp_path, EvaluationSettings(samples=2, limit=2, split="val"), (2,))[2]  # type: ignore[arg-type]
    samplers = [t.sampler for t in found]
    rules = {f"ddim {s.sigma:g}" if s.rule == "ddim" else f"ddpm {s.posterior}" for s in samplers}
    method = name.partition(",")[0]
    assert rules == RULES_OF.get(method, {*RULES_OF["gaussian"], "ddpm marginal"})
    assert {s.views for s in samplers} == {1, 2, 4}
    assert {s.noise for s in samplers} == ({"independent"} if method in RULES_OF else {"independent", "shared"})
    assert all(np.isfinite(t.ged_unbiased) for t in found)
