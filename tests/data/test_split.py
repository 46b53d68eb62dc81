"""Splits by patient: disjoint, seeded, independent of the order of the files."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berdiff.data.split import check_own_split, leak, split_patients
from berdiff.errors import InputError

names = st.lists(st.text(min_size=1, max_size=8), unique=True, max_size=60)


@settings(max_examples=40)
@given(names, st.integers(0, 2**31), st.floats(0, 0.49), st.floats(0, 0.49), st.randoms())
def test_every_patient_once_whatever_the_order(patients, seed, val, test, random):
    split = split_patients(patients, seed, val, test)
    assert set(split) == set(patients)
    again = patients * 2  # a patient of several slices
    random.shuffle(again)
    assert split_patients(again, seed, val, test) == split
    counts = {name: list(split.values()).count(name) for name in ("train", "val", "test")}
    assert abs(counts["val"] - val * len(patients)) <= 1
    assert abs(counts["test"] - test * len(patients)) <= 1
    if len(patients) >= 3:
        assert (counts["val"] > 0) >= (val > 0)
        assert (counts["test"] > 0) >= (test > 0)
    if patients:
        assert counts["train"] > 0


def test_the_seed_matters_and_the_split_is_for_ever():
    patients = [f"LIDC-IDRI-{i:04d}" for i in range(100)]
    first, second = (split_patients(patients, seed, 0.1, 0.2) for seed in (0, 1))
    assert first != second
    assert sum(name == "test" for name in first.values()) == 20
    # written down: a new library or machine must give the same
    val = " ".join(name[-4:] for name, split in first.items() if split == "val")
    assert val == "0022 0095 0047 0051 0080 0018 0079 0090 0013 0072"


def test_bad_fractions():
    for val, test in ((-0.1, 0.2), (0.5, 0.5), (0.1, 1.0), (float("nan"), 0.1)):
        with pytest.raises(InputError, match="--val and --test: expected fractions that leave some for training"):
            split_patients(["a"], 0, val, test)


def test_leak():
    assert leak(["a", "b", "a"], ["train", "test", "train"]) is None
    assert leak(["a", "b", "a"], ["train", "test", "val"]) == "patient a in both train and val"


def test_own_split():
    check_own_split(["a", "b"], ["train", "test"], "x")
    with pytest.raises(InputError, match="x: expected every patient in one split, found patient a in both train and"):
        check_own_split(["a", "a"], ["train", "test"], "x")
    with pytest.raises(InputError, match="x: expected every case in one of train, val, test, found 'testing'"):
        check_own_split(["a"], ["testing"], "x")
