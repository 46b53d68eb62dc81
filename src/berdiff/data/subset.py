"""THE way to choose cases of a store: by one seeded order of a split, so that smaller subsets lie in larger ones."""

import numpy as np

from berdiff.data.describe import expect
from berdiff.data.store import Store
from berdiff.errors import InputError

CHUNK = 16  # cases whose masks are looked at together


def choose_cases(
    store: Store,
    split: str,
    limit: int | None = None,
    seed: int = 0,
    *,
    spread: bool = False,
    one_per_patient: bool = False,
    marked_by: int = 0,
    option: str = "--limit",
) -> np.ndarray:
    """Places in the store of up to `limit` cases of a split (None: all), in the store's order. `spread` takes different
    patients first; `one_per_patient` exactly `limit` patients with a case that `marked_by` raters marked, in seeded
    order."""
    indices = store.indices(split)
    expect(len(indices), store.address, f"cases in the split {split!r}")
    expect(limit is None or limit >= 1, option, "at least 1 case", limit)
    expect(seed >= 0, "--seed", "at least 0", seed)
    for bare in store.cases.case[indices][store.cases.raters[indices] < 1]:
        wanted = "expected at least one rater for every case"
        raise InputError(f"{store.address}: {wanted}, found none for {bare}", "missing")
    if limit is None:
        return indices
    order = np.random.default_rng(seed).permutation(indices)
    if one_per_patient:
        return _one_per_patient(store, order, limit, marked_by, split)
    if spread:
        _, firsts = np.unique(store.cases.patient[order].astype(str), return_index=True)
        order = np.concatenate([order[np.sort(firsts)], np.delete(order, firsts)])
    return np.sort(order[:limit])


def choose_volumes(store: Store, split: str, limit: int | None, seed: int, least: int) -> list[np.ndarray]:
    """The same of volumes with at least so many slices: the places of the slices of each, in the store's order."""
    indices = choose_cases(store, split)
    names, first, number = np.unique(store.cases.volume[indices].astype(str), return_index=True, return_inverse=True)
    expect("" not in names, store.address, "cases that name their volume", "some that do not", "missing")
    slices = [indices[number == place] for place in range(len(names))]
    large = [place for place in np.argsort(first) if len(slices[place]) >= least]
    expect(large, store.address, f"volumes of {least} slices or more in the split {split!r}")
    if limit is not None:
        expect(limit >= 1, "--limit", "at least 1 case", limit)
        expect(seed >= 0, "--seed", "at least 0", seed)
        large = sorted(np.random.default_rng(seed).permutation(large)[:limit], key=lambda place: first[place])
    return [slices[place] for place in large]


def _one_per_patient(store: Store, order: np.ndarray, count: int, marked_by: int, split: str) -> np.ndarray:
    chosen: dict[str, int] = {}
    for first in range(0, len(order), CHUNK):
        some = order[first : first + CHUNK]
        marked = store.read_stored(some)[1].reshape(len(some), store.raters, -1).any(2).sum(1)  # (B,) raters
        for index in some[marked >= marked_by]:
            chosen.setdefault(str(store.cases.patient[index]), int(index))
            if len(chosen) == count:
                return np.array(list(chosen.values()))
    wanted = f"{count} patients with a case marked by {marked_by} raters or more in the split {split}"
    raise InputError(f"{store.address}: expected {wanted}, found {len(chosen)}", "missing")
