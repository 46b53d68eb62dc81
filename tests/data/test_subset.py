"""Choosing cases: seeded, smaller subsets in larger ones, and what the contact sheet and the demo ask for."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from layouts import as_source, make_cases

from berdiff.data import prepare as preparing
from berdiff.data.store import Store
from berdiff.data.subset import choose_cases
from berdiff.errors import InputError


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Forty cases of eight patients, case i with 1 + i % 4 raters, all for test."""
    out: Path = tmp_path_factory.mktemp("data") / "s"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparing, "find_source", lambda name: as_source(make_cases(40, patients=8, split="test")))
        preparing.prepare("made", None, out)
    return Store.open(out)


def test_smaller_subsets_lie_in_larger_ones(store):
    """The order is that of 0.1.0: evaluations of then are of the same cases."""
    np.testing.assert_array_equal(choose_cases(store, "test"), np.arange(40))
    subsets = [choose_cases(store, "test", limit, seed=3) for limit in (1, 5, 20, 40, 99)]
    for small, large in pairwise(subsets):
        assert set(small) <= set(large)
        assert (np.diff(large) > 0).all()
    assert [len(subset) for subset in subsets] == [1, 5, 20, 40, 40]
    np.testing.assert_array_equal(subsets[1], np.sort(np.random.default_rng(3).permutation(40)[:5]))
    assert set(subsets[1]) != set(choose_cases(store, "test", 5, seed=4))


def test_different_patients_come_first(store):
    chosen = choose_cases(store, "all", 8, spread=True)
    assert len(set(store.cases.patient[chosen])) == 8
    assert len(choose_cases(store, "all", 12, spread=True)) == 12
    assert set(chosen) <= set(choose_cases(store, "all", 12, spread=True))


def test_one_case_per_patient_that_several_raters_marked(store):
    chosen = choose_cases(store, "test", 3, one_per_patient=True, marked_by=2)
    assert len(set(store.cases.patient[chosen])) == 3
    marked = store.read(chosen)[1].any(axis=(2, 3, 4)).sum(1)
    assert (marked >= 2).all()
    np.testing.assert_array_equal(chosen[:2], choose_cases(store, "test", 2, one_per_patient=True, marked_by=2))


def test_refused(store):
    for arguments, keywords, sentence in (
        (("val",), {}, "expected cases in the split 'val', found none"),
        (("test", 0), {}, "--limit: expected at least 1 case, found 0"),
        (("test", 0), {"option": "--count"}, "--count: expected at least 1 case, found 0"),
        (
            ("test", 9),
            {"one_per_patient": True, "marked_by": 2},
            "expected 9 patients with a case marked by 2 raters or more in the split test, found",
        ),
    ):
        with pytest.raises(InputError, match=sentence):
            choose_cases(store, *arguments, **keywords)
