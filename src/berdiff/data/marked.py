"""What raters marked in a store, from a bounded number of its cases: how often nothing, and how much outside a crop."""

from collections.abc import Iterator

import numpy as np

from berdiff.data.augment import crop
from berdiff.data.input_spec import Size
from berdiff.data.store import Store
from berdiff.data.subset import CHUNK, choose_cases

LOOKED_AT = 500  # cases at most: their masks alone are read


def looked_at(store: Store, split: str) -> np.ndarray:
    """Places in the store of the cases of a split that are looked at."""
    return choose_cases(store, split, LOOKED_AT)


def share_empty(store: Store, split: str) -> float:
    """The share of the raters' masks in which no pixel of any target is marked."""
    empty = total = 0
    for own, masks in _masks(store, split):
        present = np.arange(masks.shape[1]) < own[:, None]  # the masks after a case's own raters are padding
        empty += int((present & ~masks.any(axis=tuple(range(2, masks.ndim)))).sum())
        total += int(present.sum())
    return empty / total


def share_outside(store: Store, split: str, size: Size) -> float:
    """The share of the marked pixels, over all raters and targets, outside the centre of `size`."""
    inside = total = 0
    for _, masks in _masks(store, split):
        inside += int(crop(masks, size).sum(dtype=np.int64))
        total += int(masks.sum(dtype=np.int64))
    return 1 - inside / total if total else 0.0


def _masks(store: Store, split: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(how many raters each case has, masks (B, R, K, *S)), a few cases at a time."""
    indices = looked_at(store, split)
    for first in range(0, len(indices), CHUNK):
        some = indices[first : first + CHUNK]
        yield store.cases.raters[some], store.read_masks(some)
