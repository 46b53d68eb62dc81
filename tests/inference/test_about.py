"""From training to use: what a run writes beside its weights is how an image is later shown to them."""

from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from bright import make_model
from layouts import as_source, make_cases

from berdiff.data import prepare as preparing
from berdiff.data.store import open_store
from berdiff.evaluation.models import open_model
from berdiff.inference.intensity import Intensity
from berdiff.inference.reading import from_array
from berdiff.inference.region import Region
from berdiff.methods import folder
from berdiff.training.session import about

RNG = np.random.default_rng(0)


def test_a_run_tells_what_it_was_trained_on(tmp_path, monkeypatch):
    monkeypatch.setattr(preparing, "find_source", lambda name: as_source(make_cases(10)))
    preparing.prepare("made", None, tmp_path / "store")
    told = about(open_store(tmp_path / "store"), (16, 16))
    assert (told["size"], told["channels"], told["targets"]) == ([16, 16], ["ct"], ["nodule"])
    assert (told["window"], told["scale"], told["field"], told["notes"]) == (None, "auto", 32, ["made for a test"])


@pytest.mark.parametrize(
    ("source", "options", "window", "scale"),
    [
        ("folder", {"window": [0, 80], "scale": "auto", "tails": 1.0}, [0, 80], "auto"),
        ("folder", {"window": None, "scale": "percentiles", "tails": 2.0}, None, "percentiles"),
        ("lidc-dicom", {"hu_low": -900.0, "hu_high": 300.0}, [-900, 300], "auto"),
        ("lidc-readers", {}, [-1000, 400], "auto"),
        ("lidc-hdf5", {}, None, "minmax"),
        ("brats", {"tails": 1.0}, None, "brain"),
    ],
)
def test_intensities_by_the_source(source, options, window, scale):
    manifest = SimpleNamespace(source=source, options=options)
    store = SimpleNamespace(manifest=manifest, channels=("a",), targets=("b",), notes=(), size=(128, 128))
    told = about(store, (64, 64))  # type: ignore[arg-type]
    assert (told["window"], told["scale"]) == (window, scale)
    folder._about({"about": told}, None)  # type: ignore[arg-type]  # what is written can be read


def test_evaluation_crops_bundled_weights_as_they_were_trained(tmp_path):
    from berdiff.diffusion.schedule import linear
    from berdiff.methods.berdiff import BerDiff
    from berdiff.networks.build import make_network

    model = BerDiff(make_network("tiny"), linear(10))
    folder.save(model, tmp_path / "sized", {"size": [64, 64]})
    folder.save(model, tmp_path / "bare")
    assert open_model(tmp_path / "sized").crop == 64
    assert open_model(tmp_path / "bare").crop is None


def test_least_and_greatest_in_the_field_by_hand():
    volume = RNG.normal(0, 300, (3, 40, 50)).astype(np.float32)
    region = Region(center=(10, 20))
    found = from_array(volume, 1, Intensity(scale="minmax", field=16, region=region), "v").image[0]
    for z in range(3):
        seen = volume[z, 2:18, 12:28]
        expected = np.clip((volume[z] - seen.min()) / (seen.max() - seen.min()), 0, 1)
        np.testing.assert_allclose(found[z], expected, atol=1e-5)
    whole = from_array(volume, 1, Intensity(scale="minmax", field=128), "v").image[0]
    for z in range(3):
        np.testing.assert_allclose(whole[z], (volume[z] - volume[z].min()) / np.ptp(volume[z]), atol=1e-5)
    assert not from_array(np.full((8, 8), 7.0), 1, Intensity(scale="minmax"), "even").image.any()


def test_the_real_series_looks_as_the_packed_slices_of_the_same_patient(shared_data):
    """Slices of LIDC-IDRI-0001 in the public set against the DICOM: at most one grey level apart."""
    model = make_model(scale="minmax", field=128, size=(64, 64))
    series = next((shared_data / "layouts" / "lidc_dicom").glob("*/*/*"))
    image = model.open(series, region=Region(center=(366, 316))).image[0]
    with h5py.File(shared_data / "lidc" / "data_lidc.hdf5") as file:
        uids = file["test"]["uids"][:].astype(str)
        packed = file["test"]["images"][np.flatnonzero(uids == "LIDC-IDRI-0001")]
    for z, grey in zip(range(3, 12), packed, strict=True):
        assert np.abs(image[z, 302:430, 252:380] * 255 - grey).max() <= 1.0
