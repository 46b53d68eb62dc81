"""Held-out cases of the embedded data, made one nodule at a time, are those of the store."""

import numpy as np
import pytest

from berdiff.data import held_out
from berdiff.data.contours import read_scans
from berdiff.data.held_out import HeldOut, open_held_out
from berdiff.data.store import Store, open_store
from berdiff.data.subset import choose_cases


@pytest.fixture(scope="module")
def few() -> HeldOut:
    """The test split of the first scans alone: reading all of them takes seconds."""
    scans = read_scans()[:40]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held_out, "read_scans", lambda: scans)
        return HeldOut()


def test_a_nodule_is_made_when_it_is_read_and_once(few: HeldOut):
    assert set(few.cases.split) == {"test"}
    assert len(few) == few.manifest.counts["test"]["cases"] == few.manifest.counts["all"]["cases"]
    assert not few._made
    images, masks = few.read([0])
    assert images.shape == (1, 1, 128, 128)
    assert masks.shape == (1, 4, 1, 128, 128)
    assert masks.any()
    assert 0 <= images.min() < images.max() <= 1
    assert len(few._made) == 1
    again, _ = few.read(np.array([0, 0]))
    np.testing.assert_array_equal(again[1], images[0])
    assert len(few._made) == 1


def test_a_store_that_has_been_made_is_taken(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BERDIFF_CACHE", str(tmp_path))
    monkeypatch.setattr(held_out, "HeldOut", lambda: "made case by case")
    assert open_held_out() == "made case by case"
    held_out.embedded_path(tmp_path).mkdir()
    monkeypatch.setattr(Store, "open", lambda path: path)
    assert open_held_out() == held_out.embedded_path(tmp_path)


@pytest.mark.slow
def test_it_is_the_test_split_of_the_store():
    """Cases, their order, images and masks; so the demo shows the same whether the store has been made or not."""
    whole, few = open_store(), HeldOut()
    places = whole.indices("test")
    for column in ("case", "patient", "volume", "source", "raters"):
        np.testing.assert_array_equal(getattr(few.cases, column), getattr(whole.cases, column)[places])
    np.testing.assert_allclose(few.cases.spacing, whole.cases.spacing[places])
    assert few.input_spec == whole.input_spec
    chosen = [choose_cases(store, "test", 6, 0, one_per_patient=True, marked_by=2) for store in (few, whole)]
    np.testing.assert_array_equal(places[chosen[0]], chosen[1])
    for ours, theirs in zip(few.read_stored(chosen[0]), whole.read_stored(chosen[1]), strict=True):
        np.testing.assert_array_equal(ours, theirs)
