"""What is counted of the raters' masks is what brute force counts, and no more cases are read than is said."""

from dataclasses import replace

import numpy as np
import pytest
from layouts import NoOptions, as_source, make_cases

from berdiff.data import marked
from berdiff.data import prepare as preparing
from berdiff.data.store import Store, open_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Discs around the centre in 24 cases of 1 to 4 raters; some of the masks are empty, some cases lack raters."""
    cases = [replace(case, split="train" if i % 3 else "test") for i, case in enumerate(make_cases(24, 24))]
    out = tmp_path_factory.mktemp("marked") / "store.zarr"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparing, "find_source", lambda name: as_source(cases))
        preparing.prepare("made", None, out, NoOptions())
    return open_store(out)


def masks(store: Store) -> list[np.ndarray]:
    indices = store.indices("train")
    read = store.read(indices)[1]
    assert (store.read_masks(indices) == read).all()
    return [of[:own] for of, own in zip(read, store.cases.raters[indices], strict=True)]


def test_shares(store: Store) -> None:
    every = [rater for case in masks(store) for rater in case]
    empty = np.mean([not rater.any() for rater in every])
    assert 0 < empty < 0.5
    assert marked.share_empty(store, "train") == pytest.approx(empty, abs=1e-12)
    for side in (32, 12, 5):
        first = (32 - side) // 2
        inside = sum(int(rater[:, first : first + side, first : first + side].sum()) for rater in every)
        outside = 1 - inside / sum(int(rater.sum()) for rater in every)
        assert marked.share_outside(store, "train", (side, side)) == pytest.approx(outside, abs=1e-12)
    assert marked.share_outside(store, "train", (32, 32)) == 0
    assert marked.share_outside(store, "train", (5, 5)) > 0.1


def test_no_more_cases_are_read_than_is_said(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    read, own = [], Store.read_masks
    monkeypatch.setattr(marked, "LOOKED_AT", 7)
    monkeypatch.setattr(Store, "read_masks", lambda self, indices: read.extend(indices) or own(self, indices))
    marked.share_outside(store, "train", (12, 12))
    assert len(read) == len(set(read)) == 7
    assert sorted(read) == marked.looked_at(store, "train").tolist()
