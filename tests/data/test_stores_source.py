"""Stores joined into one: every case as it was, and nothing that does not fit."""

from dataclasses import replace

import numpy as np
import pytest
from layouts import as_source, make_cases

from berdiff.data import prepare as preparing
from berdiff.data.prepare import prepare
from berdiff.data.sources.stores import Options
from berdiff.data.store import Store
from berdiff.data.verify import verify
from berdiff.errors import InputError


@pytest.fixture
def make(tmp_path, monkeypatch):
    """A store of the given cases."""
    real = preparing.find_source

    def made(name, cases, **about):
        source = as_source(cases, **about)
        monkeypatch.setattr(preparing, "find_source", lambda _: source)
        prepare("made", None, tmp_path / name)
        monkeypatch.setattr(preparing, "find_source", real)
        return tmp_path / name

    return made


def split(cases, name, prefix):
    return [replace(case, split=name, name=prefix + case.name, patient=prefix + case.patient) for case in cases]


def test_every_case_is_as_it_was(make, tmp_path):
    human = split(make_cases(70), "train", "h")
    human = [*human[:60], *(replace(case, split="test", patient=f"t{case.patient}") for case in human[60:])]
    silver = split(make_cases(5), "train", "s")
    one, two = make("one", human), make("two", silver)
    manifest = prepare("stores", one, tmp_path / "both", Options(also=(two,)))
    assert verify(tmp_path / "both") == []
    assert (manifest.counts["train"]["cases"], manifest.counts["test"]["cases"]) == (65, 10)
    both, parts = Store.open(tmp_path / "both"), [Store.open(one), Store.open(two)]
    images, masks = both.read_stored(np.arange(75))
    for k, found in enumerate((images, masks)):
        stored = [part.read_stored(np.arange(len(part)))[k] for part in parts]
        np.testing.assert_array_equal(found, np.concatenate(stored))
    for column in ("case", "patient", "volume", "spacing", "source", "split", "raters"):
        expected = np.concatenate([getattr(part.cases, column) for part in parts])
        np.testing.assert_array_equal(getattr(both.cases, column), expected)
    assert both.input_spec.intensity == parts[0].input_spec.intensity


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"split": "train"}, "expected every case once, found a second one"),
        ({"name": "another", "split": "test"}, "expected every patient in one split"),
    ],
)
def test_cases_and_patients_in_two_places_are_refused(make, tmp_path, change, sentence):
    human = split(make_cases(5), "train", "h")
    one, two = make("one", human), make("two", [replace(human[0], **change)])
    with pytest.raises(InputError, match=sentence):
        prepare("stores", one, tmp_path / "both", Options(also=(two,)))
    assert not (tmp_path / "both").exists()


def test_images_that_do_not_look_alike_are_refused(make, tmp_path):
    one = make("one", split(make_cases(3), "train", "h"))
    two = make("two", split(make_cases(3), "train", "s"), targets=("other",))
    with pytest.raises(InputError, match=r"two: expected the targets of .*one, \('nodule',\), found \('other',\)"):
        prepare("stores", one, tmp_path / "both", Options(also=(two,)))
    with pytest.raises(InputError, match="missing: expected a prepared store"):
        prepare("stores", one, tmp_path / "both", Options(also=(tmp_path / "missing",)))
