"""The frontier figure: which points are on it, whose seconds they have, and what cannot stand in one figure."""

import csv
import json
import random
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import pytest
import torch

from berdiff.errors import InputError
from berdiff.evaluation.evaluate import evaluate
from berdiff.evaluation.per_case import from_csv
from berdiff.evaluation.settings import EvaluationSettings
from berdiff.inference.model import Model, load
from berdiff.methods import folder
from berdiff.training.config import TrainConfig
from fakes import Blur, Bright, MemoryStore, bright_segmenter, make_spec
from reproduce import frontier
from reproduce.frontier import Frontier, Point, fresh_models, make_frontier, write_frontier
from reproduce.tables.kept import write_trained

SETTINGS = EvaluationSettings(samples=4, batch_size=32)


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    """Models, and an evaluation of each: narrow, wide, of a chosen set, of other data, of more samples."""
    base = tmp_path_factory.mktemp("frontier")

    def made(name: str, spread: float, store=MemoryStore(20), **change) -> None:  # noqa: B008 (one for all)
        folder.save(Blur(spread).build(store.input_spec), base / "models" / name)
        evaluate(load(base / "models" / name, "cpu"), store, base / name, replace(SETTINGS, **change))  # type: ignore

    made("narrow", 0.1)
    made("wide", 0.5)
    made("chosen", 0.1, set="representative", pool=12)
    made("other", 0.1, MemoryStore(20, seed=1))
    made("more", 0.1, samples=8)
    return base


def models_of(base: Path, *names: str) -> list[Model]:
    return [load(base / "models" / name, "cpu") for name in names]


def test_the_best_are_those_that_none_is_cheaper_and_better_than():
    rng = random.Random(0)
    for metric, sign in (("ged_16", -1), ("dice_slice", 1)):
        for _ in range(50):
            pairs = [(rng.randint(1, 6), rng.randint(1, 6) / 10) for _ in range(8)]
            points = [Point(str(i), v, None, s, s, s) for i, (s, v) in enumerate(pairs)]
            found = {point.name for point in Frontier(metric, 16, points, "measured").best()}
            for i, (s, v) in enumerate(pairs):
                beaten = any(
                    (t <= s and sign * w >= sign * v) and (t < s or sign * w > sign * v)
                    for j, (t, w) in enumerate(pairs)
                    if i != j
                )
                assert (str(i) in found) == (not beaten)


def test_seconds_are_measured_in_turns_and_figures_are_the_evaluations(base: Path, tmp_path: Path, monkeypatch):
    def rounds(*runs, repeats, progress):
        for run in runs:
            run()
        return [[1.0, 3.0, 2.0], [0.5, 0.5, 0.6]][: len(runs)]

    monkeypatch.setattr(frontier, "rounds", rounds)
    models, drawn = models_of(base, "narrow", "chosen"), []
    for model in models:
        true = model.segmenter.sample
        model.segmenter.sample = lambda image, n, *rest, true=true: drawn.append(n) or true(image, n, *rest)
    made = make_frontier([base / "narrow", base / "chosen"], models, "ged_4")
    assert drawn == [4, 12], "a set is chosen out of a pool, all of which is drawn"
    assert made.seconds == "measured"
    assert made.data == "17 cases of 6 patients, split test of lidc-test. made for tests."
    assert [(point.seconds, point.fastest, point.slowest) for point in made.points] == [(2, 1, 3), (0.5, 0.5, 0.6)]
    for out in (tmp_path / "a", tmp_path / "b"):
        text = write_frontier(made, out)
    assert "Seconds for 4 masks of one image, measured side by side." in text
    for name in ("frontier.png", "frontier.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    with (tmp_path / "a/frontier.csv").open(newline="") as file:
        rows = {row["evaluation"]: row for row in csv.DictReader(file)}
    assert list(rows) == ["chosen", "narrow"], "from cheap to dear"
    for name, row in rows.items():
        figure = json.loads((base / name / "metrics.json").read_text())["metrics"]["ged_4"]
        assert [float(row[key]) for key in ("ged_4", "low", "high")] == list(figure.values())


def test_without_models_the_recorded_seconds_are_taken_and_that_is_said(base: Path, tmp_path: Path):
    made = make_frontier([base / "narrow", base / "wide"], metric="dice_slice")
    for point in made.points:
        recorded = from_csv(base / point.name / "per_case.csv")["seconds"]
        assert point.seconds == median(recorded.tolist())
        assert (point.fastest, point.slowest) == tuple(np.quantile(recorded, [0.25, 0.75]))
    assert "as each evaluation recorded them" in write_frontier(made, tmp_path)


def test_kept_rows_without_weights_are_measured_on_fresh_ones(base: Path, tmp_path: Path):
    """Each is built as trained.json says, and drawn from by its evaluation's sampler and number of masks."""
    store, rows = MemoryStore(20), [tmp_path / "narrow", tmp_path / "wide"]
    for row, spread in zip(rows, (0.1, 0.5), strict=True):
        row.mkdir()
        for name in ("metrics.json", "per_case.csv"):
            (row / name).write_bytes((base / row.name / name).read_bytes())
        write_trained(row, 7, TrainConfig(model=Blur(spread)))
    models = fresh_models(rows, store, "cpu")  # type: ignore[arg-type]
    assert [model.segmenter.config for model in models] == [Blur(0.1), Blur(0.5)]
    drawn = []
    for model in models:
        assert not model.segmenter.training
        true = model.segmenter.sample
        model.segmenter.sample = lambda image, n, *rest, true=true: drawn.append(n) or true(image, n, *rest)
    made = make_frontier(rows, models, "ged_4", repeats=1, fresh=True)
    assert set(drawn) == {4}
    assert "fresh weights" in write_frontier(made, tmp_path / "out")
    with pytest.raises(InputError, match=r"^--data: expected the data of .*narrow, found other data, memory$"):
        fresh_models(rows, MemoryStore(20, seed=1), "cpu")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="found other weights in blur"):  # not called fresh
        make_frontier(rows, models, "ged_4")


def test_what_cannot_stand_in_one_figure_is_one_sentence(base: Path, tmp_path: Path):
    narrow, wide = base / "narrow", base / "wide"
    for folders, models, options, message in (
        ([], [], {}, "EVALUATION: expected at least one finished evaluation, found none"),
        ([tmp_path], [], {}, ".*: expected a finished evaluation with metrics.json, found none"),
        ([narrow], [], {"metric": "ged_16"}, "--metric: expected one of ged_1, .* of narrow, found ged_16"),
        ([narrow], [], {"metric": "seconds"}, "--metric: expected one of .*, found seconds"),
        ([narrow, base / "other"], [], {}, "other: expected the data sha256 of narrow, .*, found "),
        ([narrow, base / "more"], [], {}, r"EVALUATION: expected evaluations of the same number of samples, found \[4"),
        ([narrow, wide], ["narrow"], {}, "--models: expected one for each of 2 evaluations, found 1"),
        ([narrow, wide], ["wide", "narrow"], {}, "--models: expected the model that narrow evaluated, found other"),
        ([narrow], ["narrow"], {"repeats": 0}, "--repeats: expected at least 1, found 0"),
    ):
        with pytest.raises(InputError, match=f"^{message}"):
            make_frontier(folders, models_of(base, *models), **{"metric": "ged_4", **options})


@pytest.fixture
def passes(monkeypatch) -> list[tuple]:
    """What the network is given, pass by pass, and in which precision; measurements are one pass of each run."""
    seen: list[tuple] = []

    class Noted(Bright):
        def encode(self, image):
            precision = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32
            seen.append((tuple(image.shape), precision))
            return super().encode(image)

    monkeypatch.setattr("fakes.Bright", Noted)
    monkeypatch.setattr(frontier, "rounds", lambda *runs, repeats, progress: [[1.0] for run in runs if not run()])
    monkeypatch.setattr("berdiff.device.bf16_ends_by", lambda: "")  # no product here is large enough to need it
    return seen


def bright(side: int, patches: bool = False) -> Model:
    segmenter = bright_segmenter(replace(make_spec((side, side)), patches=patches))
    return Model(segmenter, "bright", segmenter.input_spec, (side, side))


@pytest.mark.parametrize("patches", [False, True])
def test_seconds_are_of_what_the_evaluation_saw(passes: list[tuple], tmp_path: Path, patches: bool):
    """The network is given the same, pass by pass, as for one case of the evaluation: its centre, all its tiles."""
    model, counts = bright(8 if patches else 16, patches), []
    for crop in (8, 12, None):
        passes.clear()
        settings = EvaluationSettings(samples=16, crop=crop, limit=1, batch_size=1)
        evaluate(model, MemoryStore(20), tmp_path / str(crop), settings)  # type: ignore[arg-type]
        evaluated = passes.copy()
        passes.clear()
        make_frontier([tmp_path / str(crop)], [model])
        assert passes == evaluated
        counts.append(len(passes))
        assert {shape[-1] for shape, _ in passes} == {8 if patches else crop or 16}
    assert counts == ([1, 4, 9] if patches else [1, 1, 1])


def test_an_evaluation_that_cannot_be_measured_here_is_one_sentence(passes: list[tuple], tmp_path: Path, monkeypatch):
    """Its recorded seconds can be drawn all the same."""
    for name in ("bf16", "compiled"):
        model = bright(16)
        model.segmenter.precision = "bf16" if name == "bf16" else "fp32"
        model.segmenter.compiled = name == "compiled"
        settings = EvaluationSettings(samples=2, limit=1)
        evaluate(model, MemoryStore(20), tmp_path / name, settings)  # type: ignore[arg-type]
    monkeypatch.setattr("berdiff.device.bf16_ends_by", lambda: "SIGILL")
    passes.clear()
    for name, message in (
        ("bf16", "expected a processor that can compute in bf16, found one where .* SIGILL; .*"),
        ("compiled", "expected an evaluation without --compile, to measure its seconds, found one with it"),
    ):
        with pytest.raises(InputError, match=f"^{name}: {message}$"):
            make_frontier([tmp_path / name], [bright(16)], "ged_2")
        assert make_frontier([tmp_path / name], metric="ged_2").seconds == "recorded"
    assert not passes
