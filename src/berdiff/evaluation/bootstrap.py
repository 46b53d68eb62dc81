"""Bootstrap over patients: slices of one patient are not independent, so patients are drawn, not slices."""

from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000
LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean over units (slices, volumes or patients) and its 95 % interval; None where one patient is all there is."""

    value: float
    low: float | None
    high: float | None

    def plain(self) -> dict[str, float | None]:
        return {"value": self.value, "low": self.low, "high": self.high}


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

    def estimate(self, values: np.ndarray, patients: np.ndarray) -> Estimate:
        """The mean of all values and the interval of the resampled means."""
        value = float(values.mean())
        if len(self.patients) < 2:
            return Estimate(value, None, None)
        low, high = np.quantile(self.means(values, patients), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return Estimate(value, float(low), float(high))
