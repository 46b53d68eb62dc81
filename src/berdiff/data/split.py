"""Splits by patient: slices of one patient look alike, so a patient is in one split only."""

import hashlib
from collections.abc import Iterable

from berdiff.data.case import SPLITS
from berdiff.errors import InputError


def split_patients(patients: Iterable[str], seed: int, val: float, test: float) -> dict[str, str]:
    """patient -> split, with about the fractions `val` and `test` of the patients, the rest "train".

    Patients are ordered by a hash of the seed and their name, so the split depends on nothing else: not on the order
    in which files are found, nor on a library's random numbers.
    """
    if not (0 <= val < 1 and 0 <= test < 1 and val + test < 1):
        raise InputError(f"--val and --test: expected fractions that leave some for training, found {val} and {test}")
    ordered = sorted(set(patients), key=lambda name: hashlib.sha256(f"{seed}\0{name}".encode()).digest())
    spare = max(len(ordered) - 1, 0)  # one is always left for training
    n_test = min(_share(len(ordered), test), spare)
    n_val = min(_share(len(ordered), val), spare - n_test)
    return {name: "test" if i < n_test else "val" if i < n_test + n_val else "train" for i, name in enumerate(ordered)}


def _share(n: int, fraction: float) -> int:
    """How many of n patients a fraction is: at least one where it is asked for and three or more are there."""
    return max(round(n * fraction), int(fraction > 0 and n >= 3))


def leak(patients: Iterable[str], splits: Iterable[str]) -> str | None:
    """The first patient that is in two splits, as the end of a sentence; None where there is none."""
    seen: dict[str, str] = {}
    for patient, split in zip(patients, splits, strict=True):
        first = seen.setdefault(patient, split)
        if first != split:
            return f"patient {patient} in both {first} and {split}"
    return None


def check_own_split(patients: list[str], splits: list[str], what: str) -> None:
    """The split a source brings: it must name a known split for every case and keep patients apart."""
    unknown = next((split for split in splits if split not in SPLITS), None)
    if unknown is not None:
        raise InputError(f"{what}: expected every case in one of {', '.join(SPLITS)}, found {unknown!r}")
    found = leak(patients, splits)
    if found:
        raise InputError(f"{what}: expected every patient in one split, found {found}; --resplit splits by patient")
