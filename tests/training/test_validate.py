"""Validation during a training has the figures of an evaluation: on whole images, whatever the model sees of them."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from lightning_fabric import Fabric

from berdiff.evaluation.evaluate import evaluate
from berdiff.evaluation.settings import EvaluationSettings
from berdiff.inference.model import Model
from berdiff.training.config import ValidationConfig
from berdiff.training.validate import read_cases, validate
from fakes import Blur, MemoryStore


def test_figures_are_those_of_an_evaluation_on_the_whole_image(tmp_path: Path) -> None:
    store, config = MemoryStore(), ValidationConfig(split="test", cases=11, samples=3, batch_size=4, sheet_cases=2)
    store.masks[:, 0, :, 0, :5] = 1  # outside of what the model sees
    segmenter = Blur(0.3).build(store.input_spec)
    cases = read_cases(store, SimpleNamespace(validation=config, seed=5), (8, 8))  # type: ignore[arg-type]
    assert cases is not None
    fabric = Fabric(accelerator="cpu", devices=1)
    found, shown = validate(fabric, segmenter, cases, config, seed=5)
    model = Model(segmenter, "blur", store.input_spec, store.size)
    settings = EvaluationSettings(split="test", samples=3, seed=5, crop=8, limit=11)
    evaluated = evaluate(model, store, tmp_path / "e", settings)  # type: ignore[arg-type]
    figures = evaluated["metrics"]
    assert found["ged"] == pytest.approx(figures["ged_3"]["value"])
    assert found["hm_iou"] == pytest.approx(figures["hm_iou_3"]["value"])
    assert shown.shape == (2, 3, 1, 16, 16)
    assert cases.ged_limit(3) == pytest.approx(evaluated["references"]["exact model"]["ged_3"]["value"])
    store.cases.raters[:] = 1
    alone = read_cases(store, SimpleNamespace(validation=config, seed=5), (8, 8))  # type: ignore[arg-type]
    assert alone is not None
    assert alone.ged_limit(3) is None
