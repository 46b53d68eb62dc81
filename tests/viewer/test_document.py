"""What the page gets is the result: the same bits, counts and values, where they lie, in bounded size."""

import base64
import gzip
import json
from dataclasses import replace

import nibabel
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_results import chosen_2d, part_of, result_2d, several_2d, volume_result, write_series

from berdiff.data.apply import Prepared
from berdiff.data.image import Grid
from berdiff.data.reading import read_images
from berdiff.inference.result import Result
from berdiff_viewer import document as module
from berdiff_viewer.document import (
    MAX_SIDE,
    around,
    bounded_box,
    cut,
    image_document,
    live_document,
    marked_box,
    overlap,
    result_document,
)


def unpack(text: str, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.frombuffer(gzip.decompress(base64.b64decode(text)), np.dtype(dtype).newbyteorder("<")).reshape(shape)


def from_bits(packed: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """(m, K, B) -> (m, K, *shape) uint8."""
    return np.unpackbits(packed, axis=-1, count=int(np.prod(shape))).reshape(*packed.shape[:2], *shape)


def put_back(part: np.ndarray, box, shape) -> np.ndarray:
    whole = np.zeros((*part.shape[: -len(box)], *shape), part.dtype)
    whole[(..., *(slice(*ends) for ends in box))] = part
    return whole


def sides(box) -> tuple[int, ...]:
    return tuple(last - first for first, last in box)


def all_masks(document) -> np.ndarray:
    """(m, K, [Z,] H, W) of the whole image, as the page decodes them."""
    masks = document["masks"]
    size = sides(masks["box"])
    packed = unpack(masks["data"], "uint8", (masks["count"], masks["targets"], -(-int(np.prod(size)) // 8)))
    return put_back(from_bits(packed, size), masks["box"], document["shape"])


def image_of(document) -> np.ndarray:
    of = document["image"]
    values = unpack(of["data"], of["dtype"], (len(of["channels"]), *sides(of["box"])))
    return put_back(values / np.float32(of["top"]), of["box"], document["shape"])


def volume(n=4, shape=(5, 9, 7), kind="") -> Result:
    return volume_result(np.random.default_rng(0).integers(0, 100, shape), (2.5, 0.7, 0.9), n=n, kind=kind)


@pytest.mark.parametrize(
    "result",
    [
        result_2d(raters=3),
        chosen_2d(),
        volume(),
        volume(kind="nested"),
        several_2d("exclusive"),
        several_2d("independent"),
    ],
    ids=["raters", "set", "volume", "nested", "exclusive", "independent"],
)
def test_masks_counts_and_image_are_the_results(result):
    document = json.loads(json.dumps(result_document(result)))
    masks, n = all_masks(document), len(result.samples)
    np.testing.assert_array_equal(masks[:n], result.samples)
    np.testing.assert_array_equal(masks[document["majority"]], result.majority())
    for told, found in zip(document["representatives"], result.representatives(), strict=True):
        np.testing.assert_array_equal(masks[told["mask"]], found.mask)
        assert told["share"] == found.frequency
        assert told["sample"] == found.index + 1
    for told, mask in zip(document["raters"], () if result.raters is None else result.raters, strict=True):
        np.testing.assert_array_equal(masks[told["mask"]], mask)
    saliency, box = document["saliency"], document["masks"]["box"]
    counts = unpack(saliency["data"], saliency["dtype"], (len(result.targets), *sides(box)))
    np.testing.assert_array_equal(put_back(counts, box, document["shape"]), result.pool.sum(0))
    np.testing.assert_allclose(image_of(document), result.image, atol=0.5 / document["image"]["top"] + 1e-6)
    assert [target["name"] for target in document["targets"]] == list(result.targets)
    assert "not for clinical use" in document["notes"]


def test_eight_bits_stay_exact_and_others_get_twelve():
    values = np.random.default_rng(1).integers(0, 256, (1, 20, 24))
    eight = result_document(result_2d(image=(values / 255).astype(np.float32)))
    assert eight["image"]["dtype"] == "uint8"
    np.testing.assert_array_equal(np.rint(255 * image_of(eight)), values)
    assert result_document(result_2d())["image"]["top"] == 4095


def test_more_than_255_samples_are_counted():
    pool = np.ones((300, 1, 4, 4), np.uint8)
    document = result_document(result_2d(size=(4, 4), pool=pool))
    assert document["saliency"]["dtype"] == "uint16"
    assert unpack(document["saliency"]["data"], "uint16", (16,)).tolist() == [300] * 16


def test_slices_of_a_volume_have_the_places_of_the_volume():
    """As a click on a volume leaves them: 5 slices of 40, from the 12th on."""
    whole = volume()
    own, grid = result_document(whole, image=False), Grid((40, 12, 7), (2.5, 0.7, 0.9))
    part = replace(whole, grid=grid.part(((11, 16), (2, 11), (0, 7))))
    document = json.loads(json.dumps(result_document(part)))  # of the image, the region alone is known
    assert document["shape"] == [40, 12, 7]
    assert document["region"] == document["image"]["box"] == [[11, 16], [2, 11], [0, 7]]
    assert document["start"] == [own["start"][0] + 11, own["start"][1] + 2, own["start"][2]]
    np.testing.assert_array_equal(all_masks(document)[:, :, 11:16, 2:11], all_masks(own))
    assert all_masks(document).sum() == all_masks(own).sum()  # outside of it there is nothing


def test_the_page_of_one_slice_shows_all_of_the_volume_and_masks_in_that_slice_alone():
    whole = volume()
    one = part_of(whole, (2, 3), (1, 8), (0, 7))
    document = json.loads(json.dumps(result_document(one)))
    assert document["image"]["box"] == [[0, 5], [0, 9], [0, 7]]
    np.testing.assert_allclose(image_of(document), whole.image, atol=0.5 / document["image"]["top"] + 1e-6)
    n, masks = len(one.samples), all_masks(document)
    np.testing.assert_array_equal(masks[:n, :, 2, 1:8], one.samples[:, :, 0])
    assert masks[:n].sum() == one.samples.sum()
    assert document["start"][0] == 2


def test_a_large_volume_is_cut_around_the_finding():
    image = np.full((30, 40, 50), 50)
    image[20:22, 5:9, 40:44] = 99
    result = volume_result(image, (2.0, 1.0, 1.0))
    document = result_document(result, limit=8000)
    box = document["image"]["box"]
    assert np.prod(sides(box)) <= 8000
    assert all(
        first <= a and b <= last for (first, last), (a, b) in zip(box, ((20, 22), (5, 9), (40, 44)), strict=True)
    )
    np.testing.assert_array_equal(all_masks(document)[: len(result.samples)], result.samples)
    assert sides(result_document(result)["image"]["box"]) == (30, 40, 50)


def test_more_masks_than_a_browser_holds_are_cut_to_the_first(monkeypatch):
    result = result_2d(raters=2)
    monkeypatch.setattr(module, "MAX_MASK_BYTES", 5 * 60)  # of a box of at most 20 x 24 voxels
    document = result_document(result)
    n = document["samples"]["count"]
    assert 1 <= n < 16 == document["samples"]["of"]
    np.testing.assert_array_equal(all_masks(document)[:n], result.samples[:n])
    rater = document["raters"][1]["mask"]
    np.testing.assert_array_equal(all_masks(document)[rater], result.raters[1])


def test_of_nothing_marked_and_of_no_image():
    result = result_2d(pool=np.zeros((3, 1, 20, 24), np.uint8))
    document = result_document(result, image=False)
    assert document["image"] is None
    assert not all_masks(document).any()
    assert document["start"] == [10, 12]
    assert live_document("secret")["mode"] == "live"


def test_an_image_alone_with_its_raters():
    result = result_2d(raters=2)
    alone = opened(result)
    document = json.loads(
        json.dumps(
            image_document(alone, channels=("ct",)),
        )
    )
    assert document["image"]["channels"] == ["ct"]
    assert [rater["name"] for rater in document["raters"]] == ["rater 1", "rater 2"]
    np.testing.assert_array_equal(all_masks(document), result.raters)
    assert "samples" not in document
    assert not image_document(replace(alone, raters=None))["raters"]


def opened(result) -> Prepared:
    return Prepared(result.name, result.image, result.grid, raters=result.raters, notes=result.notes)


def mm(document, place) -> np.ndarray:
    """As the page has it: of (slice, row, column)."""
    return (np.array(document["affine"]) @ [*place[::-1], 1])[:3]


def test_millimetres_of_an_oblique_nifti_are_nibabels(tmp_path):
    values = np.random.default_rng(0).permutation(7 * 6 * 5).reshape(7, 6, 5).astype(np.int16)
    turn = nibabel.eulerangles.euler2mat(0.3, -0.2, 2.0)
    affine = nibabel.affines.from_matvec(turn @ np.diag([0.7, 0.9, 2.5]), (-31.5, 12.25, 7.125))
    nibabel.save(nibabel.Nifti1Image(values, affine), tmp_path / "a.nii.gz")
    file = read_images([tmp_path / "a.nii.gz"], 1)
    result = volume_result(file.values[0] % 100, file.grid.spacing, file.grid)
    document = result_document(result)
    assert document["placed"]
    for value in (0, 57, 101, 209):
        stored, upright = np.argwhere(values == value)[0], np.argwhere(file.values[0] == value)[0]
        expected = nibabel.affines.apply_affine(affine, stored)
        np.testing.assert_allclose(mm(document, upright), expected, atol=1e-4)


def test_millimetres_of_a_dicom_series_and_of_a_picture(tmp_path):
    hu = np.random.default_rng(0).integers(0, 100, (4, 6, 5)).astype(np.int16)
    files = write_series(tmp_path / "series", hu)
    file = read_images(files, 1)
    document = result_document(volume_result(file.values[0], file.grid.spacing, file.grid))
    where = np.argwhere(file.values[0] == file.values[0, 0, 0, 0])[0]
    np.testing.assert_allclose(mm(document, where), [40.0, -12.5, 100.0], atol=1e-6)  # DICOM's left and back are minus
    picture = result_document(result_2d(spacing=(0.5, 0.8)))
    assert not picture["placed"]
    np.testing.assert_allclose(mm(picture, (0, 3, 2)), [1.6, 1.5, 0])
    unknown = result_document(result_2d(grid=Grid((20, 24), (float("nan"),) * 2)))
    assert unknown["affine"] is None
    assert unknown["spacing_mm"] == [None, None]


@st.composite
def shapes_and_cores(draw):
    shape = draw(st.lists(st.integers(1, 300), min_size=2, max_size=3))
    firsts = [draw(st.integers(0, side - 1)) for side in shape]
    core = tuple((first, draw(st.integers(first + 1, side))) for first, side in zip(firsts, shape, strict=True))
    return tuple(shape), core


def voxels(box):
    return int(np.prod([last - first for first, last in box]))


@settings(max_examples=50)
@given(shapes_and_cores(), st.integers(1, 10**6))
def test_it_is_as_large_as_it_may_be_and_holds_the_core_where_that_fits(case, most):
    shape, core = case
    box = bounded_box(shape, core, most)
    assert all(0 <= first < last <= side for (first, last), side in zip(box, shape, strict=True))
    assert voxels(box) <= most
    if int(np.prod(shape)) <= most:
        assert box == tuple((0, side) for side in shape)
    elif voxels(core) <= most:
        assert all(a <= c and d <= b for (a, b), (c, d) in zip(box, core, strict=True))


def test_a_side_is_no_longer_than_a_graphics_card_takes():
    assert bounded_box((5000, 100), ((10, 20), (0, 5)), 10**9)[0][1] <= 5000
    (first, last), _ = bounded_box((5000, 100), ((4900, 4990), (0, 5)), 10**9)
    assert last - first == MAX_SIDE
    assert first <= 4900
    assert last >= 4990


def test_what_is_marked():
    masks = np.zeros((2, 1, 4, 6, 8), np.uint8)
    assert marked_box(masks, axes=3) is None
    masks[0, 0, 1, 2, 3] = masks[1, 0, 2, 2, 6] = 1
    assert marked_box(masks, axes=3) == ((1, 3), (2, 3), (3, 7))
    other = np.zeros((1, 1, 4, 6, 8), np.uint8)
    other[..., 0, 5, 3] = 1
    assert around(marked_box(masks, 3), None, marked_box(other, 3)) == ((0, 3), (2, 6), (3, 7))
    assert around(None) is None
    assert cut(masks, ((1, 3), (2, 3), (3, 7))).shape == (2, 1, 2, 1, 4)
    part = masks[..., 1:3, 2:5, 3:8]  # of a region: what of it is in a box, 0 around it
    region = ((1, 3), (2, 5), (3, 8))
    np.testing.assert_array_equal(cut(part, ((0, 2), (0, 4), (2, 8)), region), masks[..., :2, :4, 2:8])
    assert not cut(part, ((3, 4), (0, 6), (0, 8)), region).any()
    assert overlap(((0, 3), (2, 6)), ((2, 9), (0, 4))) == ((2, 3), (2, 4))
    assert overlap(((0, 3),), ((3, 5),)) is None
