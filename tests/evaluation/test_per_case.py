"""Units, bootstrap over patients, and the table of cases as a file."""

import numpy as np
import pytest

from berdiff.evaluation.bootstrap import PatientBootstrap
from berdiff.evaluation.per_case import by_target, from_csv, to_csv, units
from berdiff.metrics import find_metric
from refusals import refused


def test_resampled_means_equal_repeating_the_patients_slices():
    rng = np.random.default_rng(0)
    patients = np.array([f"p{i}" for i in rng.integers(6, size=40)], dtype=object)
    values = rng.random(40)
    bootstrap = PatientBootstrap(patients, seed=3, resamples=50)
    for times, mean in zip(bootstrap.times, bootstrap.means(values, patients), strict=True):
        assert times.sum() == len(bootstrap.patients)
        repeated = [values[patients == p] for p, t in zip(bootstrap.patients, times, strict=True) for _ in range(t)]
        assert abs(np.concatenate(repeated).mean() - mean) < 1e-12


def test_interval_is_that_of_independent_patients_not_of_slices():
    """Ten equal slices per patient: the interval must be that of 400 values, sqrt(10) wider than that of 4,000."""
    rng = np.random.default_rng(1)
    of_patient = rng.normal(5, 2, 400)
    patients = np.repeat([f"p{i}" for i in range(400)], 10)
    found = PatientBootstrap(patients, seed=0).estimate(np.repeat(of_patient, 10), patients)
    half = 1.96 * of_patient.std() / 20
    assert found["value"] == pytest.approx(of_patient.mean())
    assert found["low"] == pytest.approx(found["value"] - half, abs=0.15 * half)
    assert found["high"] == pytest.approx(found["value"] + half, abs=0.15 * half)
    one = PatientBootstrap(np.array(["p"] * 3)).estimate(np.array([1.0, 2.0, 3.0]), np.array(["p"] * 3))
    assert one == {"value": 2.0, "low": None, "high": None}


def test_what_some_cases_lack_is_the_mean_of_the_others():
    """NaN is left out, in the mean and in each resample; a metric that no case has is no metric."""
    patients = np.array(["a", "a", "b", "c"], dtype=object)
    values = np.array([1.0, np.nan, 3.0, np.nan])
    bootstrap = PatientBootstrap(patients, resamples=200)
    found = bootstrap.estimate(values, patients)
    assert found["value"] == 2
    assert found == bootstrap.estimate(values[[0, 2]], patients[[0, 2]])
    assert np.isnan(bootstrap.means(values[[0, 2]], patients[[0, 2]])).any()  # a resample of patient c alone
    nothing = np.full(4, np.nan)
    assert bootstrap.estimate(nothing, patients) == {"value": None, "low": None, "high": None}
    assert "d_raters" not in units(columns() | {"d_raters": nothing})
    assert "d_raters" in units(columns() | {"d_raters": values})


def columns():
    """Two patients; volume a has two slices, the others one; the last slice names no volume."""
    return {
        "case": np.array(["1", "2", "3", "4"], dtype=object),
        "patient": np.array(["x", "x", "x", "y"], dtype=object),
        "volume": np.array(["a", "a", "b", ""], dtype=object),
        "raters": np.array([4, 4, 4, 4]),
        "target": np.array(["t"] * 4, dtype=object),
        "ged_16": np.array([0.1, 1 / 3, 0.3, 0.4]),
        "dice": np.array([1.0, 0.5, 0.0, 1.0]),
        "pixels_both": np.array([10, 1, 0, 0]),
        "pixels_predicted": np.array([10, 2, 5, 0]),
        "pixels_majority": np.array([10, 2, 5, 0]),
        "d_yy": np.array([0.1, 0.2, 0.3, 0.4]),
    }


def test_dice_by_slice_volume_and_patient_keeps_targets_apart():
    found = units(columns())
    dice = ["dice_slice", "dice_volume", "dice_patient", "dice_slice_marked", "dice_patient_marked"]
    assert list(found) == ["ged_16", *dice, "d_yy"]
    assert found["dice_slice"][0].tolist() == [1.0, 0.5, 0.0, 1.0]
    values, patients = found["dice_volume"]
    assert dict(zip(values.tolist(), patients.tolist(), strict=True)) == {22 / 24: "x", 0.0: "x", 1.0: "y"}
    values, patients = found["dice_patient"]
    assert dict(zip(patients.tolist(), values.tolist(), strict=True)) == {"x": 22 / 34, "y": 1.0}
    double = {name: np.concatenate([values, values]) for name, values in columns().items()}
    double["target"][4:] = "u"
    double["pixels_both"][4:] = 0
    assert sorted(units(double)["dice_patient"][0].tolist()) == [0.0, 22 / 34, 1.0, 1.0]
    assert not [name for name in units(double) if "marked" in name]  # it would be no mean over targets
    each = by_target(double)
    assert list(each) == ["t", "u"]
    assert sorted(units(each["u"])["dice_patient"][0].tolist()) == [0.0, 1.0]


def test_what_is_marked_is_also_scored_alone():
    """Two empty masks have Dice 1: the fourth slice, the only one of patient y. A false finding there is not seen."""
    found = units(columns())
    assert found["dice_slice_marked"][0].tolist() == [1.0, 0.5, 0.0]
    assert found["dice_slice_marked"][1].tolist() == ["x", "x", "x"]
    assert found["dice_patient_marked"][0].tolist() == [22 / 34]
    nothing = columns() | {name: np.zeros(4, int) for name in ("pixels_both", "pixels_predicted", "pixels_majority")}
    assert not [name for name in units(nothing) if "marked" in name]
    assert units(nothing)["dice_patient"][0].tolist() == [1.0, 1.0]


def test_dice_of_the_likeliest_class_has_the_same_units():
    more = {"dice_likeliest": np.array([1.0, 1.0, 0.5, 0.0]), "pixels_both_likeliest": np.array([10, 2, 3, 0])}
    found = units(columns() | more | {"pixels_likeliest": np.array([10, 2, 7, 1])})
    assert found["dice_likeliest_slice"][0].tolist() == [1.0, 1.0, 0.5, 0.0]
    values, patients = found["dice_likeliest_patient"]
    assert dict(zip(patients.tolist(), values.tolist(), strict=True)) == {"x": 2 * 15 / (19 + 17), "y": 0.0}
    assert find_metric("dice_likeliest_patient").label == "Dice of the likeliest class by patient"
    assert find_metric("dice_slice_marked").label == "Dice by slice where marked"
    assert find_metric("dice_likeliest_slice").direction == "higher"


def test_a_table_of_cases_survives_the_file(tmp_path):
    odd = columns()
    odd["case"][0] = 'a "quoted", name\nover two lines'
    (tmp_path / "per_case.csv").write_text(to_csv(odd), encoding="utf-8", newline="")
    back = from_csv(tmp_path / "per_case.csv")
    assert list(back) == list(odd)
    for name, values in odd.items():
        np.testing.assert_array_equal(back[name], values)


def test_damaged_tables_and_labels(tmp_path):
    third = to_csv(columns()).replace("0.3333", "a third")
    for text, code in (("case,patient\n1,2\n", "missing"), (third, "damaged"), ("", "damaged")):
        (tmp_path / "per_case.csv").write_text(text)
        with refused(tmp_path / "per_case.csv", code=code):
            from_csv(tmp_path / "per_case.csv")
    assert find_metric("ged_16_unbiased").label == "GED 16, unbiased"
    assert find_metric("hm_iou_16").label == "HM-IoU 16"
    assert find_metric("d_max_4").label == "D_max 4"


def test_every_metric_that_is_declared_says_its_direction_and_no_other_is_guessed(tmp_path):
    """A metric whose name begins like another's is not taken for it."""
    directions = {"ged_16": "lower", "hm_iou_16": "higher", "soft_dice": "higher", "dice_patient_marked": "higher"}
    directions |= {"d_max_4": "higher", "nll": "lower", "d_sy": "lower", "d_ss": "", "d_raters": "", "seconds": ""}
    assert {name: find_metric(name).direction for name in directions} == directions
    for name in ("dice_boundary", "hm_iou", "ged_unbiased", "dice", "surface_distance", "ged_16_biased", "d_maximum"):
        with refused(repr(name), code="name"):
            find_metric(name)
    more = columns() | {"hausdorff": np.zeros(4)}
    (tmp_path / "per_case.csv").write_text(to_csv(more))
    with refused("per_case.csv", "hausdorff", code="name"):
        from_csv(tmp_path / "per_case.csv")
