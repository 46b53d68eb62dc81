"""Values that nobody can count with are refused, in pictures, volumes, slices and arrays alike."""

import nibabel
import numpy as np
import pytest
import tifffile
from dicom_writer import write_slice
from layouts import refused

from berdiff.cli.main import main
from berdiff.data.input_spec import Intensity
from berdiff.data.reading import read_image
from berdiff.device import choose_device


@pytest.mark.parametrize(("value", "found"), [(np.nan, "NaN or infinity"), (np.inf, "NaN or inf"), (1e300, "32 bits")])
def test_in_every_format(tmp_path, value, found):
    values = np.zeros((4, 4, 4))
    values[1, 2, 3] = value
    np.save(tmp_path / "a.npy", values)
    tifffile.imwrite(tmp_path / "a.tif", values[1])
    nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), tmp_path / "a.nii")
    for name in ("a.npy", "a.tif", "a.nii"):
        for channels in (1, None):  # as for a model, and as for a store
            refused(lambda name=name, channels=channels: read_image(tmp_path / name, channels), name, found)


def test_a_slope_that_overflows(tmp_path):
    write_slice(tmp_path / "a.dcm", np.ones((4, 4)), RescaleSlope="1e38")
    refused(lambda: read_image(tmp_path / "a.dcm"), "a.dcm: expected")


def test_an_image_of_nan_is_no_finding_of_area_0(tmp_path, capsys):
    np.save(tmp_path / "a.npy", np.full((16, 16), np.nan))
    assert main(["segment", "lidc", str(tmp_path / "a.npy"), "--out", str(tmp_path / "o")]) == 2
    assert "expected finite values, found NaN or infinity" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


def test_windows_seeds_counts_and_devices(tmp_path, capsys):
    for window in ((0.0, 1e39), (1.0, 1.0 + 1e-9), (5.0, 4.0)):
        refused(Intensity("window", window).check, "window: expected")
    for device in ("meta", "cpu:x", "", "nonsense"):
        refused(lambda device=device: choose_device(device), "--device: expected auto or a device of this machine")
    np.save(tmp_path / "a.npy", np.zeros((16, 16)))
    given = ["segment", "lidc", str(tmp_path / "a.npy"), "--out", str(tmp_path / "o")]
    for more in (["--seed", "-1"], ["--samples", "0"], ["--batch-size", "0"], ["--max-gigabytes", "0"]):
        assert main([*given, *more]) == 2
        assert f"{more[0]}: expected" in capsys.readouterr().err
    assert main(["data", "prepare", "folder", str(tmp_path), str(tmp_path / "s"), "--seed", "-3"]) == 2
    assert "--seed: expected at least 0, found -3" in capsys.readouterr().err
