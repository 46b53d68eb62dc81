"""Values that nobody can count with are refused, in pictures, volumes, slices and arrays alike."""

import nibabel
import numpy as np
import pytest
import tifffile
from dicom_writer import write_slice
from layouts import refused

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


def test_windows_and_devices():
    for window in ((0.0, 1e39), (1.0, 1.0 + 1e-9), (5.0, 4.0)):
        refused(Intensity("window", window).check, "window")
    for device in ("meta", "cpu:x", "", "nonsense"):
        refused(lambda device=device: choose_device(device), "--device")
