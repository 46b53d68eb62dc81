"""The torch side: pure functions of seeds and positions, whatever the processes, the batch, or where it was killed."""

import hashlib
import tracemalloc
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts import as_source, make_cases

from berdiff.data import prepare as preparing
from berdiff.data.augment import augmented, crop, negative
from berdiff.data.batches import Batch, Batches, batch_draws
from berdiff.data.dataset import CaseDataset
from berdiff.data.store import Store
from refusals import refused


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return make_store(tmp_path_factory.mktemp("data") / "s", 24)


def make_store(out: Path, n: int) -> Store:
    """All of it for training; rater k of a case marks row k and nothing else, so masks show who drew them."""
    rows = np.zeros((4, 1, 32, 32), np.uint8)
    for k in range(4):
        rows[k, 0, k + 14] = 1
    cases = [replace(c, masks=rows[: len(c.masks)], split="train") for c in make_cases(n)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparing, "find_source", lambda name: as_source(cases))
        preparing.prepare("made", None, out)
    return Store.open(out)


def rater_of(masks: torch.Tensor) -> int:
    (row,) = np.flatnonzero(masks[0, 0].any(1).numpy())
    return int(row) - 14


def same(a, b) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_a_draw_is_the_stores_slice(store):
    image, masks = CaseDataset(store, "train", raters="all")[(0, 3)]  # case 3 has four raters
    stored_image, stored_masks = store.read([3])
    np.testing.assert_array_equal(image, stored_image[0])
    np.testing.assert_array_equal(masks, stored_masks[0])
    assert (image.dtype, masks.dtype) == (torch.float32, torch.uint8)
    cropped = CaseDataset(store, "train", raters="all", crop=16)[(0, 3)]
    assert same(cropped, (image[:, 8:24, 8:24], masks[..., 8:24, 8:24]))


def test_one_rater_is_the_cases_own_and_even(store):
    """Case 2 has three raters; the fourth mask is padding and never drawn. 3000 draws: 5 sigma is 129."""
    dataset = CaseDataset(store, "train", raters="one")
    counts = np.zeros(4)
    for first in range(0, 3000, 100):
        _, masks = dataset.batch([(epoch, 2) for epoch in range(first, first + 100)])
        np.add.at(counts, [rater_of(mask) for mask in masks], 1)
    assert counts[3] == 0
    assert np.abs(counts[:3] - 1000).max() < 129


def test_all_raters_fill_the_count_and_none_is_padding(store):
    """Cases of 1 to 4 raters, one row per rater; an empty mask would be padding."""
    for augment in (False, True):
        dataset = CaseDataset(store, "train", raters="all", augment=augment, shift=2)
        for item, epoch in product(range(len(dataset)), range(5)):
            _, masks = dataset[(epoch, item)]
            assert masks.shape == (4, 1, 32, 32)
            assert bool(masks.flatten(1).any(1).all())
            assert len(masks.flatten(1).unique(dim=0)) == store.cases.raters[dataset.indices[item]]  # each is there
    assert {int(n) for n in store.cases.raters} == {1, 2, 3, 4}


def test_all_raters_are_even_over_the_epochs(store):
    """600 draws; the one that is there once more than the others is drawn evenly: 6 sigma."""
    dataset = CaseDataset(store, "train", raters="all")
    for case in range(4):
        counts, own = np.zeros(4), int(store.cases.raters[case])
        for first in range(0, 600, 200):
            for masks in dataset.batch([(epoch, case) for epoch in range(first, first + 200)])[1]:
                each = np.bincount([rater_of(mask[None]) for mask in masks], minlength=4)
                assert each[:own].max() - each[:own].min() <= 1
                counts += each
        assert counts.sum() == 2400
        assert np.all(counts[own:] == 0)
        assert np.abs(counts[:own] - 2400 / own).max() <= 6 * (600 * (own - 1) / own**2) ** 0.5


@pytest.mark.parametrize("options", [{}, {"patch": 8}])
def test_pure_in_seed_epoch_and_item(store, options):
    def dataset(seed):
        return CaseDataset(store, "train", augment=True, seed=seed, **options)

    first, second = dataset(3), dataset(3)
    second[(0, 0)], second[(0, 7)]  # what was asked for before does not matter
    assert same(first[(2, 5)], second[(2, 5)])
    assert same([part[1] for part in first.batch([(2, 4), (2, 5)])], second[(2, 5)])
    assert not same(first[(3, 5)], second[(2, 5)])
    assert not same(dataset(4)[(2, 5)], second[(2, 5)])


def made(store: Store, step: int, batch_size: int = 20, **where) -> list[Batch]:
    dataset = CaseDataset(store, "train", augment=True, crop=16, seed=7)
    return Batches(dataset, batch_size, seed=1, **where).make(step)


def test_batches_are_what_they_were_in_0_1_0(store):
    """Bytes of 0.1.0, two steps of each way to choose raters: a run of then resumes with the same slices."""
    found = []
    for raters in ("one", "all"):
        batches = Batches(CaseDataset(store, "train", raters, 16, True, 7), 10, 2, seed=1)
        for part in (*batches.make(0), *batches.make(7)):
            found.append(hashlib.sha256(part.image.numpy().tobytes() + part.masks.numpy().tobytes()).hexdigest()[:8])
    assert " ".join(found) == "ddcdbcbf f108436b 20c63739 ac2b2288 9a9a7ed8 e638f724 72b5475f e569202a"


def test_a_killed_training_resumes_exactly_and_prefetching_changes_nothing(store):
    """24 items in batches of 20: step 2 is in the middle of the second epoch."""
    dataset = CaseDataset(store, "train", augment=True, crop=16, seed=7)
    for prefetch in (0, 3):
        walk = Batches(dataset, 20, seed=1, prefetch=prefetch).after(2)
        for step in range(2, 6):
            (whole,), (again,) = next(walk), made(store, step)
            assert same((whole.image, whole.masks), (again.image, again.masks))
        walk.close()


def test_processes_and_accumulation_share_a_step(store):
    """Two processes with two parts each see what one sees, in order, and name the slices alike."""
    (whole,) = made(store, 3)
    parts = [part for rank in (0, 1) for part in made(store, 3, accumulate=2, rank=rank, world_size=2)]
    assert torch.equal(whole.image, torch.cat([part.image for part in parts]))
    assert torch.equal(whole.masks, torch.cat([part.masks for part in parts]))
    assert whole.keys(3) == [key for part in parts for key in part.keys(3)]
    assert whole.keys(3)[:2] == ["step 3 place 0", "step 3 place 1"]
    with refused("--loop.batch-size", "2 processes x 3"):
        made(store, 0, accumulate=3, world_size=2)


@given(n=st.integers(1, 50), batch=st.integers(1, 20), parts=st.integers(1, 4), seed=st.integers(0, 99))
@settings(deadline=None)
def test_batches_walk_through_permutations(n, batch, parts, seed):
    steps = 3 * n // (batch * parts) + 1
    walked = [
        draw
        for step in range(steps)
        for part in range(parts)
        for draw in batch_draws(n, batch, step, seed, part, parts)
    ]
    for epoch in range(len(walked) // n):
        of_epoch = walked[epoch * n : (epoch + 1) * n]
        assert {e for e, _ in of_epoch} == {epoch}
        assert sorted(item for _, item in of_epoch) == list(range(n))
    assert walked == [draw for step in range(steps) for draw in batch_draws(n, batch * parts, step, seed)]


def test_epochs_and_seeds_shuffle_differently():
    orders = [tuple(item for _, item in batch_draws(40, 40, step, seed)) for seed in (0, 1) for step in (0, 1)]
    assert len({*orders, tuple(range(40))}) == 5


def symmetries(array: np.ndarray) -> list[np.ndarray]:
    return [turned[..., ::flip] for k in range(4) for turned in [np.rot90(array, k, (-2, -1))] for flip in (1, -1)]


def test_augmentation_moves_image_and_masks_together():
    """The image is the first rater's mask in grey: after any augmentation it must still be, and all 8 turns occur."""
    rng = np.random.default_rng(0)
    masks = (rng.random((2, 1, 40, 40)) < 0.5).astype(np.uint8)
    image = 0.25 + 0.5 * masks[0].astype(np.float32)
    seen = set()
    for seed in range(120):
        moved, readers = augmented(image, masks, (16, 16), np.random.default_rng(seed))
        np.testing.assert_array_equal(moved[0] > 0.5, readers[0, 0])
        assert moved.min() >= 0
        assert moved.max() <= 1
        found = [
            (k, down, right)
            for down in range(-4, 5)
            for right in range(-4, 5)
            for k, turned in enumerate(symmetries(masks[:, :, 12 + down : 28 + down, 12 + right : 28 + right]))
            if np.array_equal(turned, readers)
        ]
        assert len(found) == 1  # one of the shifts and turns that are meant, and for both raters the same
        seen.add(found[0])
    assert {k for k, _, _ in seen} == set(range(8))
    assert {d for _, d, _ in seen} == {r for _, _, r in seen} == set(range(-4, 5))


def test_a_shift_is_at_most_as_far_as_asked(store):
    """The four middle pixels are the same after any turn and flip, so where they are is the shift by itself."""
    image, masks = np.zeros((1, 32, 32), np.float32), np.zeros((1, 1, 32, 32), np.uint8)
    masks[..., 15:17, 15:17] = 1
    for shift in (0, 1, 6):
        seen = set()
        for seed in range(400):
            _, moved = augmented(image, masks, (16, 16), np.random.default_rng(seed), shift)
            rows, columns = np.nonzero(moved[0, 0])
            seen |= {int(2 * rows.mean()) - 15, int(2 * columns.mean()) - 15}
        assert seen == set(range(-2 * shift, 2 * shift + 1, 2))
    still = CaseDataset(store, "train", raters="all", crop=16, augment=True, shift=0)
    plain = CaseDataset(store, "train", raters="all", crop=16)[(0, 3)][1].numpy()
    for epoch in range(10):
        assert any(np.array_equal(still[(epoch, 3)][1], turned) for turned in symmetries(plain))


def test_a_crop_repeats_the_edge():
    array = np.arange(12).reshape(3, 4)
    np.testing.assert_array_equal(crop(array, (3, 4), (1, -1)), [[4, 4, 5, 6], [8, 8, 9, 10], [8, 8, 9, 10]])
    np.testing.assert_array_equal(crop(array, (1, 2)), [[5, 6]])


def test_images_that_are_not_square_are_turned_by_half():
    masks = np.zeros((1, 1, 8, 12), np.uint8)
    for seed in range(20):
        image, readers = augmented(np.zeros((1, 8, 12), np.float32), masks, (8, 12), np.random.default_rng(seed))
        assert image.shape == (1, 8, 12)
        assert readers.shape == (1, 1, 8, 12)


def test_memory_does_not_grow_with_the_data(store, tmp_path):
    """Peak memory of a walk through eight times the data is the same but for the table of shards."""

    def peak(walked: Store) -> int:
        dataset = CaseDataset(walked, "train", raters="all")
        tracemalloc.start()
        batches = Batches(dataset, 4)
        for step in range(len(walked) // 4):
            batches.make(step)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    large = make_store(tmp_path / "large", 192)
    peak(store)  # what is allocated once, such as imports
    assert peak(large) < 1.5 * peak(store) + 100_000 < 192 * 5 * 32 * 32


def test_bad_arguments(store):
    for keywords, where, code in [
        ({"split": "val"}, "val", "missing"),
        ({"split": "train", "raters": "some"}, "raters", "value"),
        ({"split": "train", "crop": 64}, "crop", "shape"),
        ({"split": "train", "crop": 0}, "crop", "shape"),
        ({"split": "train", "shift": -1}, "shift", "value"),
    ]:
        with refused(where, code=code):
            CaseDataset(store, **keywords)


def test_negatives_hold_no_marked_pixel_and_zoom_keeps_masks_on_their_objects(tmp_path):
    """A bright square is what the raters mark, so that image and masks can be held against each other."""
    image = np.zeros((1, 48, 48), np.uint8)
    image[:, 20:27, 21:29] = 255
    cases = [replace(c, image=image, masks=np.repeat(image[None] > 0, len(c.masks), 0).astype(np.uint8), split="train")
             for c in make_cases(4)]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparing, "find_source", lambda name: as_source(cases, size=(48, 48)))
        preparing.prepare("made", None, tmp_path / "s")
    store, draws = Store.open(tmp_path / "s"), [(epoch, item) for epoch in range(150) for item in range(4)]
    negative = CaseDataset(store, "train", "all", crop=32, augment=True, shift=0, negatives=0.5)
    images, masks = negative.batch(draws)
    empty = ~masks.bool().flatten(1).any(1)
    assert 0.3 < empty.float().mean() < 0.55  # of some draws no window is free
    assert images[empty].amax() < 0.6 < images[~empty].flatten(1).amax(1).min()  # nothing of the square, or all of it
    plain = CaseDataset(store, "train", "one", crop=16, negatives=1.0)
    assert not plain.batch(draws[:40])[1].any()
    areas = []
    for one, of in zip(*CaseDataset(store, "train", "all", crop=32, augment=True, shift=0, zoom=1.5).batch(draws),
                       strict=True):  # fmt: skip
        areas.append(int(of[0].sum()))
        assert ((one > 0.5) != of[0].bool()).float().mean() < 0.04
    assert min(areas) < 40
    assert max(areas) > 100
    assert np.mean(np.array(areas) == 56) > 0.4


def test_where_nothing_is_free_the_crop_stays(store):
    full = np.ones((1, 1, 40, 40), np.uint8)
    assert negative(np.zeros((1, 40, 40), np.float32), full, (32, 32), 1.0, np.random.default_rng(0)) is None
