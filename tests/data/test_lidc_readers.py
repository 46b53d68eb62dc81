"""The embedded data: the contract of every source, the real masks, and pictures that depend on their nodule alone."""

from collections import Counter

import numpy as np
import pytest

from berdiff.data.contours import nodules, read_scans
from berdiff.data.input_spec import Intensity
from berdiff.data.prepare import prepare
from berdiff.data.sources import lidc_readers
from berdiff.data.sources.lidc_readers import Options, read
from berdiff.errors import InputError
from refusals import refused


@pytest.fixture(scope="module")
def some():
    reading = read(None, Options(patients=6))
    return reading, list(reading.cases)


def test_what_the_reading_says(some):
    reading, cases = some
    assert reading.notes == ("real readers, simulated CT",)
    assert reading.intensity == Intensity("window", (-1000, 400))
    assert (reading.channels, reading.targets, reading.raters) == (("ct",), ("nodule",), 4)
    assert (reading.size, reading.dtype, reading.total) == ((128, 128), "uint8", len(cases))
    assert len({case.patient for case in cases}) == 6
    for case in cases:
        assert len(case.masks) == 4
        assert case.masks.any()
        assert case.split == ""
        assert 0.4 < case.spacing[0] == case.spacing[1] < 1.0
        assert case.volume.startswith(case.patient)


def test_the_masks_are_the_readers(some):
    _, cases = some
    by_name = {case.name: case for case in cases}
    scan = next(s for s in read_scans() if s.patient == "LIDC-IDRI-0001")
    (nodule,) = nodules(scan)
    for z in nodule.zs:
        case = by_name[f"LIDC-IDRI-0001/scan-12/nodule-0/slice-{int(np.flatnonzero(scan.zs == z)[0])}"]
        np.testing.assert_array_equal(case.masks[:, 0], nodule.masks(z, nodule.crop(128)))


def test_a_picture_depends_on_its_nodule_and_the_seed_alone(some):
    _, cases = some
    for first, again in zip(cases, read(None, Options(patients=1)).cases, strict=False):
        assert first.name == again.name
        np.testing.assert_array_equal(first.image, again.image)
    other = next(read(None, Options(patients=1, ct_seed=1)).cases)
    assert (other.image != cases[0].image).any()
    np.testing.assert_array_equal(other.masks, cases[0].masks)


def test_a_small_crop_is_the_middle_of_a_large_one(some):
    """The masks of size 64 are the centre of those of size 128, cut where a nodule is larger."""
    _, cases = some
    small = {case.name: case for case in read(None, Options(patients=6, size=64)).cases}
    assert len(small) == len(cases)
    for case in cases:
        np.testing.assert_array_equal(small[case.name].masks, case.masks[..., 32:96, 32:96])


@pytest.mark.slow
def test_all_of_it_has_1_to_4_readers_per_slice(monkeypatch):
    """Without the pictures, which take most of the time."""
    monkeypatch.setattr(lidc_readers, "simulate", lambda nodule, zs, shares, crop, generator: shares)
    readers, patients = Counter(), set()
    for case in read(None, Options()).cases:
        readers[int(case.masks.any((1, 2, 3)).sum())] += 1
        patients.add(case.patient)
    assert set(readers) == {1, 2, 3, 4}
    assert readers.total() == pytest.approx(15500, rel=0.03)
    assert len(patients) == 875


def test_bad_options_and_a_path(tmp_path):
    for change, word in (({"size": 16}, "--size"), ({"ct_seed": -1}, "--ct-seed"), ({"patients": 0}, "--patients")):
        with pytest.raises(InputError, match=word):
            prepare("lidc-readers", None, tmp_path / "s", Options(**change))
    with refused(tmp_path, code="conflict"):
        prepare("lidc-readers", tmp_path, tmp_path / "s")
