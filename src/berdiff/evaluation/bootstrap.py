"""Bootstrap over patients: slices of one patient are not independent, so patients are drawn, not slices."""

import numpy as np
from typing_extensions import TypedDict

RESAMPLES = 2000
LEVEL = 0.95


class Figure(TypedDict):
    """A mean over units (slices, volumes or patients), None where there is none, and its 95 % interval, None with one
    patient only."""

    value: float | None
    low: float | None
    high: float | None


class PatientBootstrap:
    """One seeded set of resamples for all metrics, so that differences between them and between methods are paired."""

    def __init__(self, patients: np.ndarray, seed: int = 0, resamples: int = RESAMPLES) -> None:
        """`patients`: any array that names every patient, with repetitions."""
        self.patients = np.unique(patients)
        count = len(self.patients)
        rng = np.random.default_rng(seed)
        # how often each patient is drawn in each resample (resamples, patients)
        self.times = rng.multinomial(count, np.full(count, 1 / count), size=resamples)
        self.signs = rng.choice((-1.0, 1.0), (resamples, count))

    def totals(self, values: np.ndarray, patients: np.ndarray) -> np.ndarray:
        """The sums of `values` `(N, F)` in each resample `(resamples, F)`; `patients` names the patient of each row."""
        return self.times @ self._by_patient(values, patients)

    def flipped_totals(self, values: np.ndarray, patients: np.ndarray) -> np.ndarray:
        """The same sums with a random sign for all values of a patient: what they could be if they were 0 on average,
        and those of a patient belong together (a wild bootstrap)."""
        return self.signs @ self._by_patient(values, patients)

    def _by_patient(self, values: np.ndarray, patients: np.ndarray) -> np.ndarray:
        """The sums of `values` `(N, F)` of each patient."""
        out = np.zeros((len(self.patients), values.shape[1]))
        np.add.at(out, np.searchsorted(self.patients, patients), values)
        return out

    def means(self, values: np.ndarray, patients: np.ndarray) -> np.ndarray:
        """The mean of `values` `(N,)` in each resample `(resamples,)`; NaN where it has none of their patients."""
        total, units = self.totals(np.stack([values, np.ones_like(values)], 1), patients).T
        return total / np.where(units > 0, units, np.nan)

    def estimate(self, values: np.ndarray, patients: np.ndarray) -> Figure:
        """The mean of all values that are not NaN, and the interval of the resampled means."""
        known = ~np.isnan(values)
        if not known.any():
            return {"value": None, "low": None, "high": None}
        return self.interval(float(values[known].mean()), self.means(values[known], patients[known]))

    def interval(self, value: float, resampled: np.ndarray) -> Figure:
        """A value, None for NaN, with the interval of what the resamples have in its place."""
        resampled = resampled[~np.isnan(resampled)]
        if np.isnan(value) or len(self.patients) < 2 or not len(resampled):
            return {"value": None if np.isnan(value) else value, "low": None, "high": None}
        low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return {"value": value, "low": float(low), "high": float(high)}
