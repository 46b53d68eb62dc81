"""Parity and P(finding) over cases, with intervals over patients, against resampling by hand."""

from itertools import product

import numpy as np
import pytest

from berdiff.evaluation.bootstrap import PatientBootstrap
from berdiff.evaluation.over_cases import finding_figures, rater_parity


@pytest.fixture
def columns():
    rng = np.random.default_rng(0)
    count = 60
    q = rng.integers(0, 5, count) / 4
    return {
        "patient": np.array([f"p{i}" for i in rng.integers(9, size=count)], dtype=object),
        "raters": np.where(np.arange(count) < 50, 4, 1),
        "d_sy": rng.random(count),
        "d_raters": np.where(np.arange(count) < 50, rng.random(count), np.nan),
        "finding_samples": np.clip(np.round(16 * (q + rng.normal(0, 0.2, count))), 0, 16) / 16,
        "finding_raters": q,
    }


def brute_ece(p, q):
    """Case by case into ten bins."""
    bins: dict[int, list[tuple[float, float]]] = {}
    for a, b in zip(p, q, strict=True):
        bins.setdefault(min(int(round(a * 16) * 10 // 16), 9), []).append((a, b))
    return sum(
        len(of) / len(p) * abs(np.mean([a for a, _ in of]) - np.mean([b for _, b in of])) for of in bins.values()
    )


def brute_r2(p, q):
    return 1 - np.mean((p - q) ** 2) / np.var(q)


def test_figures_and_intervals_equal_resampling_the_cases_of_patients(columns):
    bootstrap = PatientBootstrap(columns["patient"], seed=1, resamples=300)
    found = finding_figures(columns, bootstrap)
    p, q = columns["finding_samples"], columns["finding_raters"]
    rows = [np.flatnonzero(columns["patient"] == name) for name in bootstrap.patients]
    for name, brute in (("ece", brute_ece), ("r2", brute_r2), ("ged", lambda p, q: 2 * np.mean((p - q) ** 2))):
        assert found[name]["value"] == pytest.approx(brute(p, q))
        resampled = []
        for times in bootstrap.times:
            drawn = np.concatenate([own for own, t in zip(rows, times, strict=True) for _ in range(t)])
            resampled.append(brute(p[drawn], q[drawn]))
        low, high = np.quantile(resampled, [0.025, 0.975])
        assert (found[name]["low"], found[name]["high"]) == pytest.approx((low, high))
    assert sum(row["cases"] for row in found["reliability"]) == 60


def test_parity_is_of_the_cases_with_two_raters(columns):
    found = rater_parity(columns, PatientBootstrap(columns["patient"]))
    assert found is not None
    assert found["samples"]["value"] == pytest.approx(1 - columns["d_sy"][:50].mean())
    assert found["raters"]["value"] == pytest.approx(1 - columns["d_raters"][:50].mean())
    assert found["difference"]["value"] == pytest.approx(found["samples"]["value"] - found["raters"]["value"])
    assert found["difference"]["low"] < found["difference"]["value"] < found["difference"]["high"]


def test_where_raters_always_agree_there_is_no_r2(columns):
    columns["finding_raters"][:] = 1
    found = finding_figures(columns, PatientBootstrap(columns["patient"]))
    assert found["r2"] == {"value": None, "low": None, "high": None}


def test_ece_if_calibrated_is_over_all_signs_of_the_patients_gaps(columns):
    """Nine patients have 512 signs, 2,000 draws are of these: the mean within five of its errors."""
    found = finding_figures(columns, PatientBootstrap(columns["patient"]))["ece_if_calibrated"]
    p, q, patients = columns["finding_samples"], columns["finding_raters"], columns["patient"]
    place = np.unique(patients, return_inverse=True)[1]
    every = [brute_ece(p, p + np.array(signs)[place] * (q - p)) for signs in product((-1, 1), repeat=9)]
    assert found["value"] == pytest.approx(np.mean(every), abs=5 * np.std(every) / np.sqrt(2000))
    assert np.quantile(every, 0.01) < found["low"] < np.quantile(every, 0.05)
    assert np.quantile(every, 0.95) < found["high"] < np.quantile(every, 0.99)


@pytest.mark.parametrize(("sharpened", "least", "most"), [(1.0, 0, 14), (1.6, 150, 200)])
def test_a_calibrated_model_is_seldom_above_its_interval(sharpened, least, most):
    """Raters' shares vary from patient to patient; of 200 data sets 2.5 % may be above: more than 14 once in 10,000."""
    rng, above = np.random.default_rng(0), 0
    for _ in range(200):
        patient = np.repeat(np.arange(60), 8)
        truth = np.clip(rng.beta(2, 2, 60)[patient] + rng.normal(0, 0.1, 480), 0.02, 0.98)
        mean = np.clip(truth + 0.1 * rng.choice((-1, 1), 60)[patient], 0, 1)  # of this patient's raters
        q = rng.binomial(4, mean) / 4
        p = np.clip(0.5 + sharpened * (truth - 0.5), 0, 1)
        columns = {"finding_samples": p, "finding_raters": q, "patient": patient.astype(str).astype(object)}
        found = finding_figures(columns, PatientBootstrap(columns["patient"], resamples=400))
        above += found["ece"]["value"] > found["ece_if_calibrated"]["high"]
    assert least <= above <= most


def test_of_one_patient_there_is_no_calibration_by_chance(columns):
    columns["patient"][:] = "p"
    found = finding_figures(columns, PatientBootstrap(columns["patient"]))
    assert found["ece_if_calibrated"] == {"value": None, "low": None, "high": None}
