"""The demo: chosen by rule, scored as the evaluation scores, one page; on a small store with random weights."""

from pathlib import Path

import numpy as np
import pytest
import torch

from berdiff import metrics
from berdiff.data.store import Store, open_store
from berdiff.data.subset import choose_cases
from berdiff.diffusion.random import sample_generators
from berdiff.diffusion.sampler import Sampler
from berdiff.inference.model import Model
from berdiff.inference.settings import SegmentSettings
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.sampling import SamplerOptions
from berdiff.output.demo import run_demo
from fakes import make_spec

SIZE = 32
SETTINGS = SegmentSettings(samples=4, seed=1, sampler=SamplerOptions(steps=2))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    from layouts import as_source, make_cases

    from berdiff.data import prepare as preparing

    out = tmp_path_factory.mktemp("demo") / "small.zarr"
    cases = [case for case in make_cases(40, patients=20) if case.masks.any(axis=(1, 2, 3)).sum() >= 2]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparing, "find_source", lambda name: as_source(cases))
        preparing.prepare("lidc-readers", None, out)
    return open_store(out)


@pytest.fixture(scope="module")
def model() -> Model:
    torch.manual_seed(0)
    spec = make_spec((16, 16))
    return Model(BerDiff(preset="tiny", T=50).build(spec).eval(), "tiny", spec, spec.size)


def iou(a: torch.Tensor, b: torch.Tensor) -> float:
    either = int((a | b).sum())
    return int((a & b).sum()) / either if either else 1.0


def test_scores_are_those_of_the_metrics_on_the_centre(store: Store, model: Model, tmp_path: Path):
    done = run_demo(model, store, tmp_path, 2, SETTINGS)
    chosen = choose_cases(store, "test", 2, seed=1, one_per_patient=True, marked_by=2)
    names = store.cases.case[chosen].tolist()
    assert [of.case for of in done.cases] == names
    low, high = SIZE // 2 - 8, SIZE // 2 + 8
    for of, index in zip(done.cases, chosen, strict=True):
        images, masks = (torch.from_numpy(array[..., low:high, low:high].copy()) for array in store.read([index]))
        masks = masks[:, : store.cases.raters[index]]
        samples = model.segmenter.sample(images, 4, sample_generators(1, [of.case], 4), Sampler(2))
        assert of.ged == pytest.approx(metrics.ged(samples, masks)[0, 0])
        assert of.hm_iou == pytest.approx(metrics.hm_iou(samples, masks)[0, 0])
        R = masks.shape[1]
        D = float(np.mean([1 - iou(masks[0, i], masks[0, j]) for i in range(R) for j in range(i)]))
        assert of.ged_limit == pytest.approx(D * (1 / R + 1 / 4))
        assert of.rater_agreement == pytest.approx(1 - D)
        assert of.agreement == pytest.approx(np.mean([iou(s, y) for s in samples[0] for y in masks[0]]))
    assert done.mean.ged == pytest.approx(np.mean([of.ged for of in done.cases]))


def test_the_page_holds_every_case(store: Store, model: Model, tmp_path: Path):
    steps = []
    done = run_demo(model, store, tmp_path, 2, SETTINGS, lambda *at: steps.append(at))
    assert steps == [(1, 2), (2, 2)]
    text = done.report.read_text(encoding="utf-8")
    for of in done.cases:
        assert f"<h2>{of.case}</h2>" in text
        assert f"GED {of.ged:.3f} (limit {of.ged_limit:.3f})" in text
    for words in ("made for a test", "LIDC-IDRI", "simulated", "ddim in 2 steps", "Not for clinical use."):
        assert words in text
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
