"""Findings: places in voxels and millimetres against nibabel and pydicom, pieces of masks, and what is refused."""

import time
from pathlib import Path

import nibabel
import numpy as np
import pydicom
import pytest
from dicom_writer import write_slice
from nibabel.affines import apply_affine

from berdiff.inference.inputs import find_inputs, parse_part, take_part
from berdiff.inference.opening import read_input
from berdiff.inference.region import Region
from berdiff.inference.representatives import disagreement
from berdiff.inference.settings import FindingOptions, SegmentSettings
from berdiff.jobs.findings import open_findings, piece_centers
from fakes import bright_model, make_spec
from refusals import refused

CT = make_spec(rule="window", window=(-1000.0, 400.0))
MARK = 300
OBLIQUE = nibabel.affines.from_matvec(
    nibabel.eulerangles.euler2mat(0.3, -0.2, 0.15) @ np.diag([-0.7, 0.9, 2.5]), [31.0, -12.0, 7.0]
)


def read(path: Path):
    (item,) = find_inputs([path])
    return item, read_input(item, CT, SegmentSettings())


def centers(path: Path, text: str, unit: str = "voxel"):
    path.write_text(text)
    source = open_findings(FindingOptions(centers=path, centers_unit=unit), Region())  # type: ignore[arg-type]
    assert source is not None
    return source


@pytest.fixture
def oblique(tmp_path) -> Path:
    """A volume stored in an order of its own, with one voxel marked at (4, 9, 2) of the file."""
    values = np.zeros((18, 20, 6), np.int16)
    values[4, 9, 2] = MARK
    nibabel.save(nibabel.Nifti1Image(values, OBLIQUE), tmp_path / "a.nii.gz")
    return tmp_path / "a.nii.gz"


def test_millimetres_of_nifti_are_those_of_its_affine(oblique, tmp_path):
    x, y, z = apply_affine(OBLIQUE, (4, 9, 2))
    item, opened = read(oblique)
    (found,) = centers(tmp_path / "c.csv", f"case,z,y,x\na,{z},{y},{x}\n", "mm").find(item, opened)
    assert found.name == "finding-1"
    assert opened.file.values[0][found.center] == MARK
    np.testing.assert_allclose(opened.grid.to_mm(found.center), (x, y, z), atol=1e-6)
    at = " ".join(map(str, found.center))  # the same place in voxels
    (same,) = centers(tmp_path / "v.csv", f"Case, Z, Y, X, finding\na,{at.replace(' ', ',')},n1\n").find(item, opened)
    assert (same.name, same.center) == ("n1", found.center)


@pytest.mark.parametrize("orientation", [(1, 0, 0, 0, 1, 0), (0.98, 0.199, 0, -0.187, 0.921, 0.342)])
def test_millimetres_of_dicom_are_patient_coordinates(tmp_path, orientation):
    across = np.array(orientation[:3]) / np.linalg.norm(orientation[:3])
    down = np.array(orientation[3:]) - across * np.dot(across, orientation[3:])
    down /= np.linalg.norm(down)
    paths = []
    for k in range(5):
        stored = np.full((18, 20), 1024, np.int16)
        stored[11, 6] += MARK * (k == 3)
        place = np.array([-40.0, 12.5, 100.0]) + 2.5 * k * np.cross(across, down)
        tags = {
            "ImagePositionPatient": place.round(6).tolist(),
            "ImageOrientationPatient": [*across.round(8), *down.round(8)],
        }
        paths.append(write_slice(tmp_path / "s" / f"{(3 * k) % 5}.dcm", stored, spacing=(0.7, 0.6), **tags))
    for path in paths:
        data = pydicom.dcmread(path)
        if (data.pixel_array * data.RescaleSlope + data.RescaleIntercept).max() == MARK:
            along, across_rows = np.reshape(np.array(data.ImageOrientationPatient, float), (2, 3))
            row, column = map(float, data.PixelSpacing)
            x, y, z = np.array(data.ImagePositionPatient, float) + along * column * 6 + across_rows * row * 11
    item, opened = read(tmp_path / "s")
    (found,) = centers(tmp_path / "c.csv", f"case,x,y,z\ns,{x},{y},{z}\n", "mm").find(item, opened)
    assert opened.file.values[0][found.center] == MARK
    np.testing.assert_allclose(opened.grid.to_mm(found.center), (x, y, z), atol=1e-3)


def test_lines_of_the_table_fail_by_themselves(oblique, tmp_path):
    item, opened = read(oblique)
    text = "case,z,y,x,finding\na,1,2,3,ok\na,9,2,3,outside\na,one,2,3,word\na,,2,3,flat\na,1,2,3,twice\n"
    text += 'a,1,2,4,Twice\na,1,2,3,../up\na,1,2,3,"$x"\na,1,2,nan,nan\nb,1,2,3,\na,1,2.6,3.4,\na,1,2,3,4,5\n'
    source = centers(tmp_path / "c.csv", text)
    found = {one.name: one for one in source.find(item, opened)}
    assert (found["ok"].center, found["$x"].center, found["finding-9"].center) == ((1, 2, 3), (1, 2, 3), (1, 3, 3))
    lines = {"outside": 3, "word": 4, "flat": 5, "twice": 7, "../up": 8, "nan": 10, "4": 13}
    assert all(f"c.csv, line {line}: " in found[name].error for name, line in lines.items())
    assert "6x20x18 slices, rows, columns" in found["outside"].error
    assert len(found) == 10
    chosen = source.choose([item], every=True)
    assert [one.name for one in chosen] == ["a", "b"]
    assert "c.csv, line 11: no input is called 'b'" in chosen[1].error
    assert source.choose([item], every=False) == [item]


@pytest.mark.parametrize(
    ("options", "region", "named", "code"),
    [
        ({"centers": Path("c.csv"), "candidates": Path("m")}, {}, "--centers", None),
        ({"centers_unit": "mm"}, {}, "--centers-unit", None),
        ({"centers": Path("c.csv")}, {"center": (1, 2)}, "--centers", "conflict"),
        ({"candidates": Path("m")}, {"slices": "1:2"}, "--candidates", "conflict"),
        ({}, {"extent": 3.0}, "--extent", "conflict"),
        ({}, {"slice": True}, "--slice", "conflict"),
        ({"centers": Path("nowhere.csv")}, {}, "nowhere.csv", None),
        ({"candidates": Path("nowhere")}, {}, "nowhere", "missing"),
    ],
)
def test_options_that_do_not_go_together(options, region, named, code):
    with refused(named, code=code):
        open_findings(FindingOptions(**options), Region(**region))


@pytest.mark.parametrize("text", ["case,z,y\na,1,2\n", "", "case,z,y,x\n", 'case,z,y,x\n"a,1,2,3\n'])
def test_files_that_are_no_table(tmp_path, text):
    with refused("c.csv"):
        centers(tmp_path / "c.csv", text)


def test_plain_images_have_no_millimetres_and_no_slices(tmp_path):
    np.save(tmp_path / "v.npy", np.zeros((4, 16, 16), np.float32))
    np.save(tmp_path / "p.npy", np.zeros((16, 20), np.float32))
    item, opened = read(tmp_path / "v.npy")
    (found,) = centers(tmp_path / "c.csv", "case,z,y,x\nv,1,2,3\n", "mm").find(item, opened)
    assert "line 2: " in found.error
    item, opened = read(tmp_path / "p.npy")
    flat, deep = centers(tmp_path / "c.csv", "case,z,y,x\np,,2,19\np,0,2,3\n").find(item, opened)
    assert flat.center == (2, 19)
    assert "line 3: " in deep.error


def test_pieces_touch_by_corners_and_their_centres_lie_in_them():
    mask = np.zeros((4, 12, 12), bool)
    mask[0, 0, 0] = mask[1, 1, 1] = mask[2, 2, 2] = True  # one piece, by corners
    mask[3, 4:11, 4] = mask[3, 4:11, 10] = mask[3, 10, 4:11] = True  # a U, whose centre of mass is outside it
    first, second = piece_centers(mask, (2.5, 0.7, 0.7), "m")
    assert first == (1, 1, 1)
    assert mask[second]
    voxels = np.argwhere(mask[3])
    middle = voxels.mean(0)
    away = np.linalg.norm(voxels - middle, axis=1)
    assert np.linalg.norm(second[1:] - middle) == pytest.approx(away.min())
    # the nearest voxel is that in mm: slices are farther apart than pixels
    line = np.zeros((3, 1, 5), bool)
    line[0, 0, 0] = line[1, 0, 1] = line[1, 0, 2] = line[2, 0, 3] = True
    assert piece_centers(line, (9.0, 1.0, 1.0), "m")[0][0] == 1


def test_candidates(oblique, tmp_path):
    item, opened = read(oblique)
    values = np.zeros((18, 20, 6), np.uint8)
    values[3:6, 8:11, 1:4], values[15, 2, 5] = 7, 1
    folder = tmp_path / "masks"
    folder.mkdir()

    def candidates(array, affine=OBLIQUE, where=folder / "a.nii.gz"):
        nibabel.save(nibabel.Nifti1Image(array, affine), where)
        source = open_findings(FindingOptions(candidates=folder), Region())
        assert source is not None
        assert source.choose([item], True) == [item]
        return source.find(item, opened)

    for array in (values, values.astype(np.float32), -values.astype(np.int16)):
        found = candidates(array)
        assert sorted(one.name for one in found) == ["finding-1", "finding-2"]
        assert MARK in [opened.file.values[0][one.center] for one in found]
    flipped = values[::-1], OBLIQUE @ nibabel.affines.from_matvec(np.diag([-1, 1, 1]), [17, 0, 0])
    assert candidates(*flipped) == candidates(values)  # the same voxels in another order
    moved = OBLIQUE.copy()
    moved[0, 3] += 0.6
    for bad in ((values[:-1],), (values, moved), (values * 0,), (values * np.float32(0.3),)):
        with refused("a.nii.gz"):
            candidates(*bad)
    (folder / "a.nii.gz").unlink()
    source = open_findings(FindingOptions(candidates=folder), Region())
    assert source is not None
    with refused("masks/a.nii.gz", code="missing"):
        source.asked(item)
    single = open_findings(FindingOptions(candidates=oblique), Region())
    assert single is not None
    with refused(oblique, code="kind"):
        single.choose([item, item], True)


def test_extent_is_in_millimetres_or_slices():
    shape, nan = (40, 30, 30), float("nan")
    for extent, spacing, z, slices in [
        (15.0, 2.5, 20, "14:27"),
        (15.0, 0.6, 20, "0:40"),
        (1.5, 0.3, 20, "15:26"),
        (2.4, 2.5, 20, "20:21"),
        (15.0, 2.5, 1, "0:8"),
        (3.0, nan, 20, "17:24"),
    ]:
        region = Region((z, 4, 5), extent=extent).around(shape, (spacing, 1, 1), "x")
        assert region == Region((4, 5), slices=slices)
    assert Region((20, 4, 5)).around(shape, (2.5, 1, 1), "x") == Region((4, 5), slices="14:27")  # 15 mm by itself
    assert Region((20, 4, 5), slice=True).around(shape, (2.5, 1, 1), "x") == Region((4, 5), slices="20:21")
    assert Region((4, 5)).around(shape, (2.5, 1, 1), "x") == Region((4, 5))
    regions = (Region((40, 4, 5), extent=1), shape), (Region((0, 4, 5), extent=1), (30, 30)), (Region(extent=1), shape)
    for region, size in regions:
        with refused("x: "):
            region.around(size, (1, 1, 1), "x")
    for region, named in [
        (Region((1, 2), extent=3), "extent"),
        (Region((1, 2), slice=True), "slice"),
        (Region((1, 2, 3), slice=True, extent=3), "slice"),
        (Region((1, 2), center_unit="mm"), "center_unit"),
        (Region((1.5, 2, 3)), "center"),
    ]:
        with refused(named):
            region.check()
    Region((1.5, -2, 3), center_unit="mm").check()


def test_segment_around_a_centre_is_the_same_slices_by_hand():
    volume = np.random.default_rng(0).random((12, 20, 20), np.float32) * 900
    for rule in ({"rule": "minmax"}, {"rule": "percentiles"}):
        model = bright_model(make_spec(**rule))
        around = model.segment(volume, n=3, center=(6, 10, 9), extent=5, spacing_mm=(2.5, 1, 1))
        by_hand = model.segment(volume, n=3, center=(10, 9), slices=(4, 9), spacing_mm=(2.5, 1, 1))
        assert around.pool.any()
        np.testing.assert_array_equal(around.pool, by_hand.pool)
        assert around.region == by_hand.region == ((4, 9), (2, 18), (1, 17))
        assert around.settings["region"]["center"] == [6, 10, 9]
        assert around.settings["region"]["extent"] == 5
        np.testing.assert_array_equal(around.image[:, 4:9], by_hand.image[:, 4:9])
        unknown = model.segment(volume, n=3, center=(6, 10, 9), extent=2)
        in_slices = model.segment(volume, n=3, center=(10, 9), slices=(4, 9))
        np.testing.assert_array_equal(unknown.pool, in_slices.pool)
        assert unknown.notes == ("distance of slices unknown: segmented 2 slices below and above the centre",)


def test_disagreement_is_the_mean_over_pairs():
    masks = np.zeros((4, 2, 3, 3), np.uint8)
    assert disagreement(masks) == [0.0, 0.0]  # two empty masks agree
    masks[0, 0, 0] = 1  # three pixels
    masks[1, 0, 0, :2] = 1  # two of them
    masks[2, 0, 2] = 1  # three others; the last is empty
    pairs = [1 / 3, 1, 1, 1, 1, 1]
    assert disagreement(masks) == pytest.approx([np.mean(pairs), 0])
    assert disagreement(masks[:1]) == [None, None]


def test_parts_are_every_input_once(tmp_path):
    for name in "edcba":
        np.save(tmp_path / f"{name}.npy", np.zeros((16, 16), np.float32))
    inputs = find_inputs([tmp_path])[::-1]
    parts = [[item.name for item in take_part(inputs, parse_part(f"{i}/3"))] for i in (1, 2, 3)]
    assert parts == [["a", "d"], ["b", "e"], ["c"]]
    assert take_part(inputs, (7, 9)) == []
    for bad in ("0/3", "4/3", "3", "1/", "a/b", "-1/3", "1/2/3", "1.5/2"):
        with refused("--part"):
            parse_part(bad)


def test_a_long_table_of_centres_is_read_in_linear_time(tmp_path):
    """A line was compared with all lines of its case before it: hours for a table of a screening."""
    lines = "".join(f"a,1,2,3,n{i}\n" for i in range(40_000))
    begun = time.process_time()
    source = centers(tmp_path / "c.csv", f"case,z,y,x,finding\n{lines}")
    assert len(source.rows["a"]) == 40_000
    assert time.process_time() - begun < 10
