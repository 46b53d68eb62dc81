"""How values become [0, 1]: each rule by hand, what is left as it is, and preparing and use by one rule."""

import numpy as np
import pytest
from folder_writer import H, W, blob, cases, picture, save

from berdiff.data.input_spec import Intensity
from berdiff.data.intensity import to_unit
from berdiff.data.reading import read_images
from berdiff.errors import InputError

RNG = np.random.default_rng(0)
CT = RNG.normal(-300, 400, (1, 3, 8, 9)).astype(np.float32)


def test_what_is_scaled_already_stays(tmp_path):
    grey, unit = RNG.integers(0, 256, (1, 1, 8, 9), np.uint8), RNG.random((1, 3, 8, 9), np.float32)
    window = Intensity("window", (-1000, 400))
    for rule in (Intensity(), Intensity("dtype"), Intensity("minmax"), window):
        np.testing.assert_array_equal(to_unit(grey, rule, "x", planar=True), grey.astype(np.float32) / 255)
        np.testing.assert_array_equal(to_unit(unit, rule, "x", planar=False), unit)
    # but a window that the user asked for holds, and floats of a CT are Hounsfield units
    expected = np.clip((grey - 20.0) / 180, 0, 1)
    asked = Intensity("window", (20, 200))
    np.testing.assert_allclose(to_unit(grey, asked, "x", planar=True, forced=True), expected, atol=1e-6)
    np.testing.assert_allclose(to_unit(unit, window, "x", planar=False, ct=True), (unit + 1000) / 1400, atol=1e-6)


def test_each_rule_by_hand():
    deep = RNG.integers(0, 4000, (2, 3, 8, 9)).astype(np.uint16)
    low, high = (np.percentile(deep, q, axis=(1, 2, 3), keepdims=True) for q in (2, 98))
    percentiles = np.clip((deep - low) / (high - low), 0, 1)
    np.testing.assert_allclose(to_unit(deep, Intensity(tails=2), "x", planar=False), percentiles, atol=1e-5)
    np.testing.assert_allclose(to_unit(deep, Intensity("dtype"), "x", planar=False), deep / 65535, atol=1e-6)
    np.testing.assert_allclose(to_unit(deep[:, :1], Intensity(), "x", planar=True), deep[:, :1] / 65535, atol=1e-6)
    found = to_unit(CT, Intensity("minmax", field=4), "x", planar=False, ct=True, rows=slice(2, 6), columns=slice(1, 5))
    field = CT[..., 2:6, 1:5]
    low, high = (f(field, axis=(-2, -1), keepdims=True) for f in (np.min, np.max))
    np.testing.assert_allclose(found, np.clip((CT - low) / (high - low), 0, 1), atol=1e-6)
    assert (to_unit(np.full((1, 1, 4, 4), 7.0), Intensity("minmax"), "x", planar=True) == 0).all()


def test_refused():
    with pytest.raises(InputError, match=r"a\.dcm: expected a model that names its window of Hounsfield units, or --w"):
        to_unit(CT, Intensity(), "a.dcm", planar=False, ct=True)
    with pytest.raises(InputError, match="x: expected values that differ, found 5 at both percentiles"):
        to_unit(np.full((1, 2, 4, 4), 5.0), Intensity(), "x", planar=False)
    with pytest.raises(InputError, match="x: expected a brain, found only zeros"):
        to_unit(np.zeros((1, 2, 4, 4), np.int16), Intensity("brain"), "x", planar=False)
    for intensity in (Intensity("window"), Intensity("auto", (0, 1)), Intensity("window", (3, 1))):
        with pytest.raises(InputError, match="expected a"):
            intensity.check()


def test_a_file_is_used_by_the_rule_it_was_prepared_by(tmp_path):
    """Pictures in colour and stacks of slices too, where use once differed."""
    deep = {"dtype": np.uint16}
    files = {
        "grey.png": (picture(1), "percentiles"),
        "deep.png": (picture(2, **deep), "auto"),
        "colour.png": (picture(3, (H, W, 3)), "percentiles"),
        "stack.npy": (picture(4, (5, H, W), **deep), "auto"),
        "colour.npy": (RNG.normal(size=(H, W, 3)), "auto"),
        "volume.nii.gz": (RNG.normal(size=(5, H, W)).astype(np.float32), "auto"),
    }
    for name, (values, rule) in files.items():
        path = save(tmp_path / name / "images" / name, values)
        mask = blob(0, values.shape[:-1] if values.shape[-1] == 3 else values.shape)
        save(tmp_path / name / "masks" / name, mask)
        prepared = np.stack([case.image for case in cases(tmp_path / name, scale=rule)], axis=1)  # (C, Z, H, W)
        file = read_images([path], len(prepared))
        kind = {"planar": file.grid.planar, "colour": file.colour, "stack": file.stack, "ct": file.ct}
        np.testing.assert_allclose(to_unit(file.values, Intensity(rule), name, **kind), prepared, atol=1e-6)


def test_slices_that_come_normalised_are_no_brain_to_scale():
    unit = np.zeros((1, 1, 8, 8), np.float32)
    unit[..., 2:6, 2:6] = RNG.random((4, 4)) * 0.5
    np.testing.assert_array_equal(to_unit(unit, Intensity("brain"), "x", planar=True, forced=True), unit)
    assert to_unit(unit, Intensity("brain"), "x", planar=False, forced=True).max() == 1
