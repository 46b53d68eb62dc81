"""Paired differences on the cases two evaluations share."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from berdiff.evaluation.compare import average, compare, compare_evaluations, comparison_tables, load
from berdiff.evaluation.evaluate import evaluate
from berdiff.evaluation.evaluation_folder import read_result
from berdiff.evaluation.per_case import from_csv
from berdiff.evaluation.report import markdown
from berdiff.evaluation.settings import EvaluationSettings
from berdiff.inference.model import Model
from fakes import Blur, MemoryStore
from refusals import refused

SETTINGS = EvaluationSettings(samples=4, batch_size=32)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    base = tmp_path_factory.mktemp("compare")

    def made(name: str, spread: float, store=MemoryStore(40), **change) -> None:  # noqa: B008 (one for all)
        model = Model(Blur(spread).build(store.input_spec), name, store.input_spec, store.size)
        evaluate(model, store, base / name, replace(SETTINGS, **change))

    made("a", 0.1)
    made("b", 0.3, limit=30)
    made("c", 0.0)
    made("cropped", 0.1, crop=8)
    made("chosen", 0.1, set="representative", pool=12)
    made("other", 0.1, MemoryStore(40, seed=1))
    made("ones", 0.1, batch_size=1)
    return base


def row_of(comparison, metric, other):
    return next(r for r in comparison["rows"] if r["metric"] == metric and r["other"] == other)


def test_differences_on_shared_cases(folders):
    found = compare([folders / "a", folders / "b"])
    a, b = from_csv(folders / "a" / "per_case.csv"), from_csv(folders / "b" / "per_case.csv")
    assert found["cases"] == len(b["case"]) == 30
    shared = np.isin(a["case"], b["case"])
    row = row_of(found, "ged_4", "b")
    assert row["first_value"] == pytest.approx(a["ged_4"][shared].mean())
    assert row["other_value"] == pytest.approx(b["ged_4"].mean())
    difference = row["difference"]
    assert difference["value"] == pytest.approx(row["other_value"] - row["first_value"])
    # by hand: draw patients, take all their slices' differences
    d, patients = b["ged_4"] - a["ged_4"][shared], b["patient"]
    rng, means = np.random.default_rng(5), []
    names = np.unique(patients.astype(str))
    for _ in range(2000):
        means.append(np.concatenate([d[patients == p] for p in rng.choice(names, len(names))]).mean())
    low, high = np.quantile(means, [0.025, 0.975])
    assert difference["low"] == pytest.approx(low, abs=0.1 * (high - low))
    assert difference["high"] == pytest.approx(high, abs=0.1 * (high - low))
    assert found["settings_that_differ"] == {"limit": [None, 30]}


def test_the_same_masks_do_not_differ_whatever_their_batches(folders):
    for row in compare([folders / "a", folders / "a"])["rows"]:
        assert row["difference"] == {"value": 0.0, "low": 0.0, "high": 0.0}
        assert row["better"] is None
    for row in compare([folders / "a", folders / "ones"])["rows"]:
        if row["metric"] != "seconds":
            assert row["difference"]["value"] == pytest.approx(0, abs=1e-9)


def test_the_average_of_seeds_is_the_mean_of_each_slice(folders):
    a, c = (load(folders / name, name) for name in "ac")
    both = average([a, c], "both")
    order = np.argsort(a.columns["case"])
    assert (both.columns["case"] == a.columns["case"][order]).all()
    for metric in ("ged_4", "hm_iou_4", "brier"):
        np.testing.assert_allclose(both.columns[metric], ((a.columns[metric] + c.columns[metric]) / 2)[order])
    found = compare_evaluations([average([a, a], "twice"), both])
    row = next(r for r in found["rows"] if r["metric"] == "ged_4")
    assert row["difference"]["value"] == pytest.approx((c.columns["ged_4"].mean() - a.columns["ged_4"].mean()) / 2)


def test_the_better_one_follows_the_direction_of_the_metric(folders):
    forth, back = compare([folders / "a", folders / "c"]), compare([folders / "c", folders / "a"])
    decided = [row for row in forth["rows"] if row["better"]]
    assert decided
    for row in decided:
        low_is_good = row["metric"].startswith(("ged", "ece", "brier", "nll", "d_sy", "finding"))
        c_is_lower = row["difference"]["high"] < 0
        assert row["better"] == ("c" if c_is_lower == low_is_good else "a")
        assert row_of(back, row["metric"], "a")["better"] == row["better"]


@pytest.fixture(scope="module")
def of_targets(tmp_path_factory):
    """Two models of three targets, and one of the last two of them."""
    base = tmp_path_factory.mktemp("targets")
    store = MemoryStore(40, targets=("whole", "core", "active"))
    fewer = MemoryStore(40, targets=("core", "active"))
    fewer.masks, fewer.images = store.masks[:, :, 1:], store.images
    fewer.cases.raters[:] = store.cases.raters
    for name, spread, data in (("a", 0.1, store), ("b", 0.4, store), ("fewer", 0.2, fewer)):
        model = Model(Blur(spread).build(data.input_spec), name, data.input_spec, data.size)
        evaluate(model, data, base / name, SETTINGS)
    return base


def test_each_target_is_paired_by_itself(of_targets):
    found = compare([of_targets / "a", of_targets / "b"])
    a, b = (from_csv(of_targets / name / "per_case.csv") for name in "ab")
    assert list(found["by_target"]) == found["targets"] == ["whole", "core", "active"]
    for metric in ("ged_4", "dice_patient", "dice_slice"):
        each = {name: next(row for row in rows if row["metric"] == metric) for name, rows in found["by_target"].items()}
        mean = row_of(found, metric, "b")
        values = [row["difference"]["value"] for row in each.values()]
        assert mean["difference"]["value"] == pytest.approx(np.mean(values))
        assert len(set(values)) == 3
    # by hand: the Dice of each patient's pixels
    own = a["target"] == "core"
    differences = []
    for patient in np.unique(a["patient"].astype(str)):
        here = own & (a["patient"] == patient)
        both = [[of[f"pixels_{what}"][here].sum() for what in ("both", "predicted", "majority")] for of in (a, b)]
        dice = [2 * i / (p + m) if p + m else 1.0 for i, p, m in both]
        differences.append(dice[1] - dice[0])
    row = next(row for row in found["by_target"]["core"] if row["metric"] == "dice_patient")
    assert row["difference"]["value"] == pytest.approx(np.mean(differences))
    tables = comparison_tables(found)
    assert [header[0] for header, _ in tables] == ["mean over targets", "target whole", "target core", "target active"]
    mean, *each = ([line[0] for line in body if line[0]] for _, body in tables)
    assert all("GED 4" in labels for labels in (mean, *each))
    assert all("Dice by patient where marked" in labels for labels in each)
    assert "Brier" in mean
    assert not any("Brier" in labels for labels in each)  # but in the JSON
    assert any(row["metric"] == "brier" for row in found["by_target"]["core"])
    assert all(len(line) == len(header) for header, body in tables for line in body)


def test_the_targets_that_all_have_are_compared(of_targets):
    found = compare([of_targets / "a", of_targets / "fewer"])
    assert found["targets"] == ["core", "active"]
    core = next(row for row in found["by_target"]["core"] if row["metric"] == "ged_4")
    columns = from_csv(of_targets / "a" / "per_case.csv")
    assert core["first_value"] == pytest.approx(columns["ged_4"][columns["target"] == "core"].mean())


def test_what_metrics_json_does_not_say_is_left_out_of_the_report(folders, tmp_path):
    """A file of 0.2.0, or a damaged one: its report ended in a traceback."""
    shutil.copytree(folders / "a", tmp_path / "a")
    file = tmp_path / "a" / "metrics.json"
    result = json.loads(file.read_text())
    assert "D, agreement and the exact model: of the 23 cases" in markdown(result)
    (finding,) = result["finding"].values()
    finding["ece_if_calibrated"] = None
    result["rater_parity"]["another"] = result["rater_parity"]["samples"]
    result["settings"]["by"] = "volume"  # without its coherence
    file.write_text(json.dumps(result))
    text = markdown(read_result(tmp_path / "a"))
    assert "every slice has random numbers of its own" in text
    assert "ECE if calibrated |" not in text


def test_models_of_different_crops_and_rules_are_compared_on_the_same_masks(folders):
    found = compare([folders / "a", folders / "cropped", folders / "chosen"])
    differing = {"crop": [None, 8, None], "set": ["independent", "independent", "representative"], "pool": [4, 4, 12]}
    assert found["settings_that_differ"] == differing
    assert row_of(found, "ged_4", "cropped")["difference"]["value"] > 0
    assert row_of(found, "ged_4", "chosen")["difference"]["value"] != 0


def test_bad_input(folders, tmp_path):
    with refused("a and other", "case case", code="changed"):
        compare([folders / "a", folders / "other"])
    with refused("two", code="missing"):
        compare([folders / "a"])
    with refused(tmp_path, "metrics.json", code="missing"):
        compare([folders / "a", tmp_path])
    shutil.copytree(folders / "a", tmp_path / "b")
    result = json.loads((tmp_path / "b" / "metrics.json").read_text())
    for content, where, code in (
        (result | {"format": 99}, "metrics.json", "value"),
        (result | {"format": 2}, "metrics.json", "version"),
        ([], "metrics.json", None),
        (result | {"data": {**result["data"], "size": [8, 8]}}, "8x8 and 16x16", "shape"),
    ):
        (tmp_path / "b" / "metrics.json").write_text(json.dumps(content))
        with refused(where, code=code):
            compare([tmp_path / "b", folders / "c"])
