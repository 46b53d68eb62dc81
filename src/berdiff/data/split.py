"""Splits by patient: slices of one patient look alike, so a patient is in one split only."""

from collections.abc import Iterable

from berdiff.data.case import SPLITS
from berdiff.data.describe import expect
from berdiff.seeds import digest


def split_patients(patients: Iterable[str], seed: int, val: float, test: float) -> dict[str, str]:
    """patient -> split, with about the fractions `val` and `test` of the patients, the rest "train"; ordered by a hash
    of the seed and the name, so that nothing else matters."""
    fits = 0 <= val < 1 and 0 <= test < 1 and val + test < 1
    expect(fits, "--val and --test", "fractions that leave some for training", f"{val} and {test}")
    ordered = sorted(set(patients), key=lambda name: digest(f"{seed}\0{name}"))
    n = len(ordered)
    # at least one where a fraction is asked for and three or more are there; one is always left for training
    n_test, n_val = (max(round(n * fraction), int(fraction > 0 and n >= 3)) for fraction in (test, val))
    n_test = min(n_test, max(n - 1, 0))
    n_val = min(n_val, max(n - 1, 0) - n_test)
    return {name: "test" if i < n_test else "val" if i < n_test + n_val else "train" for i, name in enumerate(ordered)}


def leak(patients: Iterable[str], splits: Iterable[str]) -> str | None:
    """The first patient that is in two splits, as the end of a sentence; None where there is none."""
    seen: dict[str, str] = {}
    for patient, split in zip(patients, splits, strict=True):
        if (first := seen.setdefault(patient, split)) != split:
            return f"patient {patient} in both {first} and {split}"
    return None


def check_own_split(patients: list[str], splits: list[str], what: str) -> None:
    """The split a source brings: it must name a known split for every case and keep patients apart."""
    for split in splits:
        expect(split in SPLITS, what, f"every case in one of {', '.join(SPLITS)}", f"{split!r}")
    found = leak(patients, splits)
    expect(not found, what, "every patient in one split", f"{found}; --resplit splits by patient", "conflict")
