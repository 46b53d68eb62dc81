"""Figures of all cases together that are no mean of one metric: how many are marked, parity, and P(finding)."""

import numpy as np

from berdiff.evaluation.bootstrap import Figure, PatientBootstrap
from berdiff.evaluation.per_case import Columns
from berdiff.evaluation.result_file import Marked, OfFinding
from berdiff.evaluation.scores import SIZE_GAPS
from berdiff.metrics.finding import finding_ece, finding_gaps, finding_ged, finding_r2, finding_sums, reliability


def marked(columns: Columns) -> Marked:
    """In how many slices, and in how many patients, most raters mark a target: in the others an empty mask is right."""
    rows = columns["pixels_majority"] > 0
    return {"cases": int(rows.sum()), "patients": len(set(columns["patient"][rows]))}


def rater_parity(columns: Columns, bootstrap: PatientBootstrap) -> dict[str, Figure] | None:
    """How far a sample agrees with a rater, 1 - d_SY, and another rater does, 1 - D: at parity they are equal.

    Of the cases with two raters or more; None where there are none.
    """
    several = columns["raters"] > 1
    if not several.any():
        return None
    d_sy, D, patients = (columns[name][several] for name in ("d_sy", "d_raters", "patient"))
    each = {"samples": 1 - d_sy, "raters": 1 - D, "difference": D - d_sy}
    return {name: bootstrap.estimate(values, patients) for name, values in each.items()}


def size_spread(columns: Columns, bootstrap: PatientBootstrap) -> dict[str, Figure] | None:
    """How far two samples of a volume differ in size, how far two raters do, and the ratio of both over all volumes.

    None for slices, and where no volume has two raters.
    """
    if SIZE_GAPS[0] not in columns or not (known := ~np.isnan(columns[SIZE_GAPS[1]])).any():
        return None
    gaps, patients = np.stack([columns[name][known] for name in SIZE_GAPS], 1), columns["patient"][known]
    samples, raters = bootstrap.totals(gaps, patients).T
    ratio = bootstrap.interval(float(np.divide(*gaps.sum(0))), samples / np.where(raters > 0, raters, np.nan))
    each = zip(("samples", "raters"), gaps.T, strict=True)
    return {name: bootstrap.estimate(values, patients) for name, values in each} | {"ratio": ratio}


def finding_figures(columns: Columns, bootstrap: PatientBootstrap) -> OfFinding:
    """P(finding) of one target: ECE, R^2 and the GED of this decision with intervals, and the reliability table.

    `ece_if_calibrated`: what ECE would be of a model whose p is right on average, on as few patients: chance leaves a
    gap in every bin. Each patient's q - p gets a random sign; the mean, and the middle 95 %.
    """
    p, q, patients = columns["finding_samples"], columns["finding_raters"], columns["patient"]
    sums = finding_sums(p, q)
    resampled = bootstrap.totals(sums, patients)
    return {
        "ece": bootstrap.interval(float(finding_ece(sums.sum(0))), finding_ece(resampled)),
        "r2": bootstrap.interval(float(finding_r2(sums.sum(0))), finding_r2(resampled)),
        "ged": bootstrap.estimate(finding_ged(p, q), patients),
        "ece_if_calibrated": _ece_if_calibrated(sums, patients, bootstrap),
        "reliability": reliability(p, q),
    }


def _ece_if_calibrated(sums: np.ndarray, patients: np.ndarray, bootstrap: PatientBootstrap) -> Figure:
    gaps = bootstrap.flipped_totals(finding_gaps(sums), patients)
    ece = np.abs(gaps).sum(-1) / len(sums)
    return bootstrap.interval(float(ece.mean()) if len(bootstrap.patients) > 1 else np.nan, ece)
