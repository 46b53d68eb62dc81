"""THE transform: to the model's spacing and back, on grids as real files have them; and headers read once."""

from dataclasses import replace

import nibabel
import numpy as np
import pydicom.filereader
import pytest
from dicom_writer import write_slice

import berdiff
from berdiff.data.apply import Prepared, at_spacing, resample, resample_masks, restore
from berdiff.data.image import Grid
from berdiff.data.input_spec import InputSpec
from berdiff.inference.inputs import find_inputs
from berdiff.inference.opening import open_input
from berdiff.inference.settings import SegmentSettings
from berdiff.methods import folder
from fakes import Levels, make_spec

SHAPE, MM = (30, 60, 70), (2.5, 0.9, 0.8)
OBLIQUE = np.array([[-0.7, 0.1, 0.3, 5.0], [0.1, -0.9, 0.2, 6], [0.2, 0.1, 2.4, 7], [0, 0, 0, 1]])


def ellipsoid():
    z, y, x = np.mgrid[: SHAPE[0], : SHAPE[1], : SHAPE[2]] * np.reshape(MM, (3, 1, 1, 1))
    return (((z - 36) / 24) ** 2 + ((y - 26) / 18) ** 2 + ((x - 29) / 20) ** 2 < 1).astype(np.uint8)[None]


@pytest.mark.parametrize("spacing", [(2.0, 1.2, 1.2), (1.3, 1.3), (1.0, 0.5, 0.5), (4.0, 1.5, 1.5)])
def test_an_ellipsoid_keeps_its_volume_on_the_way_and_back(spacing):
    mask, grid = ellipsoid(), Grid(SHAPE, MM, OBLIQUE)
    network = at_spacing(grid, spacing)
    there = resample_masks(mask, grid, network)
    assert there.sum() * np.prod(network.spacing) == pytest.approx(mask.sum() * np.prod(MM), rel=0.02)
    place, back = restore(there, network, Prepared("a", mask, grid, network), "independent")
    assert place is grid
    assert back.sum() == pytest.approx(mask.sum(), rel=0.02)


def test_the_outer_edges_stay_where_they_are():
    grid = Grid(SHAPE, MM, OBLIQUE)
    network = at_spacing(grid, (1.25, 0.45, 0.4))
    for edge in (lambda shape: (-0.5,) * 3, lambda shape: tuple(n - 0.5 for n in shape)):
        np.testing.assert_allclose(grid.to_mm(edge(grid.shape)), network.to_mm(edge(network.shape)), atol=1e-9)


def test_what_stays_as_it_is():
    grid = Grid(SHAPE, MM)
    assert at_spacing(grid, None) is None
    assert at_spacing(grid, MM) is None
    assert at_spacing(Grid(SHAPE, (np.nan,) * 3), (1.0, 1.0)) is None
    assert at_spacing(grid, (0.5, 0.9, 0.8)) is None  # between slices so far apart nothing is known


def test_a_region_is_what_it_is_of_the_whole():
    grid = Grid(SHAPE, MM)
    network = at_spacing(grid, (2.0, 1.3, 1.3))
    values = np.random.default_rng(0).random((1, *SHAPE), np.float32)
    place, part = Prepared("a", values, grid, network).part(((5, 12), (20, 44), (30, 56)), (16, 16))
    assert place.shape[1:] == (17, 16)
    np.testing.assert_allclose(part, resample(values, grid, network)[(..., *place.box)], atol=1e-6)


def test_ties_are_background_and_touching_classes_leave_no_gap():
    one, half = Grid((4, 4), (1.0, 1.0)), np.array([[[1, 0]]], np.uint8)
    assert not resample_masks(half, Grid((1, 2), (1.0, 1.0)), Grid((1, 1), (1.0, 2.0))).any()
    touching = np.stack([np.arange(16).reshape(4, 4) % 4 < 2, np.arange(16).reshape(4, 4) % 4 >= 2]).astype(np.uint8)
    assert resample_masks(touching, one, Grid((8, 8), (0.5, 0.5)), "exclusive").sum(0).min() == 1


def test_a_header_is_read_once(tmp_path, monkeypatch):
    for z in range(4):
        write_slice(tmp_path / f"{z}.dcm", np.arange(20 * 20).reshape(20, 20) + z, 2.5 * z)
    reads = {True: 0, False: 0}
    real = pydicom.filereader.read_partial

    def counted(file, stop_when=None, **options):
        reads[stop_when._before_pixels] += 1
        return real(file, stop_when, **options)

    monkeypatch.setattr("pydicom.filereader.read_partial", counted)
    (item,) = find_inputs([tmp_path])
    spec = InputSpec((16, 16), ("ct",), ("nodule",))
    opened = open_input(item, spec, SegmentSettings(window=(-1000.0, 400.0)))
    assert reads == {True: 4, False: 4}  # by its header alone, to tell series apart; then with its pixels
    assert len(opened.grid.source.headers) == 4  # what DICOM outputs take over


def test_a_model_with_a_spacing_writes_masks_on_the_files_own_grid(tmp_path):
    affine = np.diag([-0.5, 0.5, 2.0, 1.0])
    stored = np.random.default_rng(0).integers(0, 900, (48, 40, 3)).astype(np.int16)
    nibabel.save(nibabel.Nifti1Image(stored, affine), tmp_path / "a.nii.gz")
    folder.save(Levels().build(replace(make_spec((16, 16)), spacing=(1.0, 1.0))), tmp_path / "m")
    result = berdiff.load(tmp_path / "m").segment(tmp_path / "a.nii.gz", n=2)
    assert result.grid.shape == result.pool.shape[2:] == (3, 40, 48)
    (file,) = result.save(tmp_path / "mask.nii.gz")
    written = nibabel.load(file)
    assert written.shape[:3] == stored.shape
    np.testing.assert_array_equal(written.affine, affine)
