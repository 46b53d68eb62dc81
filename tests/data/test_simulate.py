"""The simulated CT: deterministic, plausible in Hounsfield units, led by the ratings, and telling no single reader."""

from dataclasses import replace

import numpy as np
import pytest

from berdiff.data.chest import Vessels, field
from berdiff.data.contours import Nodule, nodules, read_scans
from berdiff.data.intensity import to_uint8
from berdiff.data.simulate import simulate

SIZE = 128


@pytest.fixture(scope="module")
def drawn() -> list[Nodule]:
    """Nodules that all four readers saw, on four slices or more."""
    found = [n for scan in read_scans()[:150] for n in nodules(scan) if len(n.annotations) == 4]
    return [n for n in found if len(n.zs) >= 4][:40]


def shares_of(nodule: Nodule) -> np.ndarray:
    crop = nodule.crop(SIZE)
    masks = np.stack([nodule.masks(z, crop) for z in nodule.zs])
    return masks.sum(1, dtype=np.float32) / len(nodule.annotations)


def picture(nodule: Nodule, seed: int = 0, shares: np.ndarray | None = None) -> np.ndarray:
    shares = shares_of(nodule) if shares is None else shares
    return simulate(nodule, nodule.zs, shares, nodule.crop(SIZE), np.random.default_rng(seed))


def rated(nodule: Nodule, **ratings: int) -> Nodule:
    """The same nodule, with other opinions of it."""
    annotations = tuple(replace(a, ratings=a.ratings._replace(**ratings)) for a in nodule.annotations)
    return replace(nodule, annotations=annotations)


def contrast(nodule: Nodule) -> float:
    """HU that what all readers marked has over what none did."""
    shares, image = shares_of(nodule), picture(nodule, 1)
    return float(np.median(image[shares == 1]) - np.median(image[:, shares.max(0) == 0]))


def test_the_same_seed_gives_the_same_picture_and_another_seed_another(drawn):
    one = picture(drawn[0], 3)
    assert one.shape == (len(drawn[0].zs), SIZE, SIZE)
    assert one.dtype == np.float32
    np.testing.assert_array_equal(one, picture(drawn[0], 3))
    assert np.abs(one - picture(drawn[0], 4)).mean() > 10


def test_values_are_those_of_a_chest(drawn):
    values = np.concatenate([picture(n, k).ravel() for k, n in enumerate(drawn)])
    assert np.isfinite(values).all()
    lung, tissue = values[values < -700], values[(values > -150) & (values < 150)]
    assert -910 < np.median(lung) < -840
    assert 0.3 < len(lung) / len(values) < 0.95
    assert len(tissue) > 0.03 * len(values)


def test_neighbouring_slices_belong_together(drawn):
    """Outside the nodule, a slice is more like its neighbour than like the same slice of another draw."""
    near, far = [], []
    for nodule in drawn[:12]:
        shares = shares_of(nodule)
        away = shares.max(0) == 0
        one, other = picture(nodule, 1), picture(nodule, 2)
        near.append(np.corrcoef(one[1][away], one[2][away])[0, 1])
        far.append(np.corrcoef(one[1][away], other[1][away])[0, 1])
    assert np.median(near) > 0.6
    assert np.median(near) > np.median(far)


def test_the_readers_ratings_show(drawn):
    plain = {"subtlety": 5, "texture": 5, "margin": 5, "spiculation": 1, "calcification": 6, "internal_structure": 1}
    changes = {"plain": {}, "glass": {"texture": 1}, "subtle": {"subtlety": 1}, "calcium": {"calcification": 3}}
    seen = {name: np.median([contrast(rated(n, **(plain | c))) for n in drawn[:10]]) for name, c in changes.items()}
    assert 750 < seen["plain"] < 1000  # soft tissue in lung
    assert 150 < seen["glass"] < 450
    assert seen["subtle"] < 0.75 * seen["plain"]
    assert seen["calcium"] > seen["plain"] + 150


def test_a_poor_margin_is_a_softer_edge(drawn):
    def steepness(margin: int) -> float:
        found = []
        for nodule in drawn[:8]:
            image = picture(rated(nodule, margin=margin, spiculation=1, texture=5), 1)
            shares = shares_of(nodule)
            rim = (shares > 0) & (shares < 1)
            rows, columns = np.gradient(image, axis=(1, 2))
            found.append(np.median(np.hypot(rows, columns)[rim]))
        return float(np.median(found))

    assert steepness(1) < 0.8 * steepness(5)


def best_overlaps(image: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """(4,) for each reader, the best IoU that any threshold of the image near the nodule reaches."""
    near = np.zeros(image.shape, bool)
    rows, columns = np.nonzero(masks.any(0))
    near[max(0, rows.min() - 2) : rows.max() + 3, max(0, columns.min() - 2) : columns.max() + 3] = True
    grey = np.where(near, image, -2000)
    best = np.zeros(len(masks))
    for level in np.arange(-850, 300, 25):
        found = grey > level
        overlap = (found & masks).sum((1, 2)) / np.maximum(1, (found | masks).sum((1, 2)))
        best = np.maximum(best, overlap)
    return best


def test_the_image_tells_the_nodule_but_no_single_reader(drawn):
    overlaps = []
    for k, nodule in enumerate(drawn):
        z = len(nodule.zs) // 2
        masks = nodule.masks(nodule.zs[z], nodule.crop(SIZE)).astype(bool)
        if masks.any((1, 2)).all():
            overlaps.append(best_overlaps(picture(nodule, k)[z], masks))
    assert len(overlaps) > 20
    # Two readers overlap by 0.78. An image of the bare shares has a quarter of the readers above 0.95, one of smooth
    # shares without chance a tenth.
    assert 0.75 < np.median(overlaps) < 0.88
    assert np.mean(np.array(overlaps) > 0.95) < 0.05


def test_a_random_field_is_centred_scaled_and_as_smooth_as_asked():
    fields = np.stack([field(np.random.default_rng(k), 64, 8.0) for k in range(20)])
    np.testing.assert_allclose(fields.mean((1, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(fields.std((1, 2)), 1, atol=1e-4)

    def likeness(shift: int) -> float:
        return float(np.mean(fields * np.roll(fields, shift, axis=2)))

    assert likeness(1) > 0.9
    assert abs(likeness(32)) < 0.3


def test_a_tube_covers_the_pixels_within_its_radius():
    """Against the distance to many points along the tube."""
    axis = ((np.arange(40) + 0.5) * 0.7 - 14).astype(np.float32)
    start = np.array([[-3.0, -6.0, 2.0], [1.0, 4.0, -30.0]], np.float32)
    direction = np.array([[0.3, 0.9, -0.2], [0.0, 0.6, 0.8]], np.float32)
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    length, radius = np.array([15.0, 30.0], np.float32), np.array([2.5, 1.5], np.float32)
    vessels = Vessels(40.0, start, direction, length, radius, axis, soft=0.8)
    for height in (-4.0, 0.0, 1.5, 30.0):
        pixels = np.stack(np.meshgrid([height], axis, axis, indexing="ij"), -1).reshape(-1, 3)
        expected = np.zeros(len(pixels))
        for s, d, n, r in zip(start, direction, length, radius, strict=True):
            line = s + np.linspace(0, n, 3000)[:, None] * d
            away = np.sqrt(((pixels[:, None] - line[None, ::3]) ** 2).sum(-1)).min(1)
            expected = np.maximum(expected, np.clip((r - away) / 0.8 + 0.5, 0, 1))
        np.testing.assert_allclose(vessels.cover(height).ravel(), expected, atol=0.02)


def test_grey_values_clip_and_round():
    hu = np.array([-2000.0, -1000.0, -300.0, 400.0, 3000.0])
    np.testing.assert_array_equal(to_uint8(hu, -1000, 400), [0, 0, 128, 255, 255])
