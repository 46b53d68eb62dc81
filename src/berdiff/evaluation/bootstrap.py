"""Bootstrap over patients: slices of one patient are not independent, so patients are drawn, not slices."""

import numpy as np

RESAMPLES = 2000
LEVEL = 0.95


Figure = dict[str, float | None]
"""value: a mean over units (slices, volumes or patients); low, high: its 95 % interval, None with one patient only."""


class PatientBootstrap:
    """One seeded set of resamples for all metrics, so that differences between them and between methods are paired."""

    def __init__(self, patients: np.ndarray, seed: int = 0, resamples: int = RESAMPLES) -> None:
        """`patients`: any array that names every patient, with repetitions."""
        self.patients = np.unique(patients)
        count = len(self.patients)
        # how often each patient is drawn in each resample (resamples, patients)
        self.times = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=resamples)

    def means(self, values: np.ndarray, patients: np.ndarray) -> np.ndarray:
        """The mean of `values` in each resample `(resamples,)`; `patients` names the patient of each value."""
        index = np.searchsorted(self.patients, patients)
        total = np.bincount(index, values, minlength=len(self.patients))
        units = np.bincount(index, minlength=len(self.patients))
        return (self.times @ total) / (self.times @ units)

    def estimate(self, values: np.ndarray, patients: np.ndarray) -> Figure:
        """The mean of all values and the interval of the resampled means."""
        value = float(values.mean())
        if len(self.patients) < 2:
            return {"value": value, "low": None, "high": None}
        low, high = np.quantile(self.means(values, patients), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return {"value": value, "low": float(low), "high": float(high)}
