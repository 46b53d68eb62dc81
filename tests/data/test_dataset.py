"""The torch side: pure functions of seeds and positions, whatever the workers, the batch, or where it was killed."""

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts import as_source, make_cases

from berdiff.data import prepare as preparing
from berdiff.data.augment import augmented, window
from berdiff.data.dataset import (
    SliceDataset,
    batch_draws,
    batch_indices,
    training_loader,
)
from berdiff.data.store import Store
from berdiff.errors import InputError


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return make_store(tmp_path_factory.mktemp("data") / "s", 24)


def make_store(out: Path, n: int) -> Store:
    """All of it for training; reader k of a case marks row k and nothing else, so masks tell who drew them."""
    rows = np.zeros((4, 1, 32, 32), np.uint8)
    for k in range(4):
        rows[k, 0, k + 14] = 1
    cases = [replace(c, masks=rows[: len(c.masks)], split="train") for c in make_cases(n)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparing, "find_source", lambda name: as_source(cases))
        preparing.prepare("made", None, out)
    return Store.open(out)


def reader_of(masks: torch.Tensor) -> int:
    (row,) = np.flatnonzero(masks[0, 0].any(1).numpy())
    return int(row) - 14


def same(a: dict, b: dict) -> bool:
    return set(a) == set(b) and all(torch.equal(torch.as_tensor(a[key]), torch.as_tensor(b[key])) for key in a)


def test_an_item_is_the_stores_slice(store):
    item = SliceDataset(store, "train", raters="all")[5]
    images, masks = store.read([5])
    np.testing.assert_array_equal(item["image"], images[0])
    np.testing.assert_array_equal(item["masks"], masks[0])
    assert (item["index"], item["raters"]) == (5, 2)
    assert item["image"].dtype == torch.float32
    assert item["masks"].dtype == torch.uint8


def test_random_readers_are_the_cases_own_and_even(store):
    """Case 2 has three readers; the fourth mask is padding and never drawn. 3000 draws: 5 sigma is 129."""
    dataset = SliceDataset(store, "train", raters="random")
    counts = np.zeros(4)
    for first in range(0, 3000, 100):
        items = dataset.__getitems__([(epoch, 2) for epoch in range(first, first + 100)])
        np.add.at(counts, [reader_of(item["masks"]) for item in items], 1)
    assert counts[3] == 0
    assert np.abs(counts[:3] - 1000).max() < 129


@pytest.mark.parametrize("augment", [False, True])
def test_repeated_readers_fill_the_count_and_none_is_padding(store, augment):
    """Cases of 1 to 4 readers, one row a reader; an empty mask would be padding."""
    dataset = SliceDataset(store, "train", raters="repeat", augment=augment, shift=2)
    for item in range(len(dataset)):
        own = int(store.cases.raters[dataset.indices[item]])
        for epoch in range(5):
            found = dataset[(epoch, item)]
            assert found["masks"].shape == (4, 1, 32, 32)
            assert found["raters"] == 4  # all of them are readers'
            assert bool(found["masks"].flatten(1).any(1).all())
            assert len(found["masks"].flatten(1).unique(dim=0)) == own  # and each of the case's own is there
    assert {int(n) for n in store.cases.raters} == {1, 2, 3, 4}


@pytest.mark.parametrize("case", range(4))
def test_repeated_readers_are_even_over_the_epochs(store, case: int):
    """600 draws; the one that is there once more than the others is drawn evenly: 6 sigma."""
    dataset, own = SliceDataset(store, "train", raters="repeat"), int(store.cases.raters[case])
    counts = np.zeros(4)
    for first in range(0, 600, 200):
        for item in dataset.__getitems__([(epoch, case) for epoch in range(first, first + 200)]):
            mine = np.array([reader_of(mask[None]) for mask in item["masks"]])
            each = np.bincount(mine, minlength=4)
            assert each[:own].max() - each[:own].min() <= 1
            counts += each
    assert counts.sum() == 2400
    assert np.all(counts[own:] == 0)
    assert np.abs(counts[:own] - 2400 / own).max() <= 6 * (600 * (own - 1) / own**2) ** 0.5


def test_all_readers_keep_the_padding_and_its_count(store):
    """What an evaluation reads has not changed: padded, and `raters` says how many are real."""
    for item in range(8):
        found = SliceDataset(store, "train", raters="all")[item]
        assert [bool(mask.any()) for mask in found["masks"]] == [r < found["raters"] for r in range(4)]


def test_pure_in_seed_epoch_and_item(store):
    def dataset(seed):
        return SliceDataset(store, "train", augment=True, seed=seed)

    first, second = dataset(3), dataset(3)
    second[0], second[7]  # what was asked for before does not matter
    assert same(first[(2, 5)], second[(2, 5)])
    second.set_epoch(2)
    assert same(first[(2, 5)], second[5])
    assert same(first.__getitems__([(2, 4), (2, 5)])[1], second[5])
    assert not same(first[(3, 5)], second[5])
    assert not same(dataset(4)[(2, 5)], second[5])


def test_crop_is_the_centre(store):
    whole, cropped = SliceDataset(store, "train", raters="all"), SliceDataset(store, "train", raters="all", crop=16)
    assert torch.equal(cropped[3]["image"], whole[3]["image"][:, 8:24, 8:24])
    assert torch.equal(cropped[3]["masks"], whole[3]["masks"][..., 8:24, 8:24])


def batches(store: Store, first: int, last: int, workers: int = 0, **where) -> list[dict]:
    dataset = SliceDataset(store, "train", augment=True, crop=16, seed=7)
    return list(training_loader(dataset, 5, first, last, seed=1, workers=workers, **where))


def test_workers_change_nothing(store):
    alone = batches(store, 0, 9)
    for workers in (1, 2):
        assert all(same(a, b) for a, b in zip(alone, batches(store, 0, 9, workers), strict=True))


def test_a_killed_training_goes_on_exactly(store):
    """24 items in batches of 5: step 7 is in the middle of the second epoch."""
    assert all(same(a, b) for a, b in zip(batches(store, 0, 12)[7:], batches(store, 7, 12), strict=True))


def test_processes_share_a_step(store):
    """Two processes with batches of 5 see what one with batches of 10 sees, in order."""
    dataset = SliceDataset(store, "train", augment=True, crop=16, seed=7)
    whole = list(training_loader(dataset, 10, 0, 6, seed=1))
    halves = [batches(store, 0, 6, rank=rank, world_size=2) for rank in (0, 1)]
    for step, batch in enumerate(whole):
        for key, value in batch.items():
            assert torch.equal(value, torch.cat([halves[0][step][key], halves[1][step][key]]))


@given(n=st.integers(1, 50), batch=st.integers(1, 20), world=st.integers(1, 4), seed=st.integers(0, 99))
@settings(deadline=None)
def test_batches_walk_through_permutations(n, batch, world, seed):
    steps = 3 * n // (batch * world) + 1
    walked = [
        draw
        for step in range(steps)
        for rank in range(world)
        for draw in batch_draws(n, batch, step, seed, rank, world)
    ]
    for epoch in range(len(walked) // n):
        part = walked[epoch * n : (epoch + 1) * n]
        assert {e for e, _ in part} == {epoch}
        assert sorted(item for _, item in part) == list(range(n))
    union = np.concatenate([batch_indices(n, batch, 2, seed, rank, world) for rank in range(world)])
    np.testing.assert_array_equal(union, batch_indices(n, batch * world, 2, seed))


def test_epochs_and_seeds_shuffle_differently():
    orders = [tuple(batch_indices(40, 40, step, seed)) for seed in (0, 1) for step in (0, 1)]
    assert len({*orders, tuple(range(40))}) == 5


def symmetries(array: np.ndarray) -> list[np.ndarray]:
    return [turned[..., ::flip] for k in range(4) for turned in [np.rot90(array, k, (-2, -1))] for flip in (1, -1)]


def test_augmentation_moves_image_and_masks_together():
    """The image is the first reader's mask in grey: after any augmentation it must still be, and all 8 turns occur."""
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
        assert len(found) == 1  # one of the shifts and turns that are meant, and for both readers the same
        seen.add(found[0])
    assert {k for k, _, _ in seen} == set(range(8))
    assert {d for _, d, _ in seen} == {r for _, _, r in seen} == set(range(-4, 5))


@pytest.mark.parametrize("shift", [0, 1, 6])
def test_a_shift_is_at_most_as_far_as_asked(shift: int):
    """The four middle pixels are the same after any turn and flip, so where they are is the shift alone."""
    image, masks = np.zeros((1, 32, 32), np.float32), np.zeros((1, 1, 32, 32), np.uint8)
    masks[..., 15:17, 15:17] = 1
    seen = set()
    for seed in range(400):
        _, moved = augmented(image, masks, (16, 16), np.random.default_rng(seed), shift)
        rows, columns = np.nonzero(moved[0, 0])
        seen |= {int(2 * rows.mean()) - 15, int(2 * columns.mean()) - 15}
    assert seen == set(range(-2 * shift, 2 * shift + 1, 2))


def test_a_dataset_without_shift_keeps_the_centre(store):
    still = SliceDataset(store, "train", raters="all", crop=16, augment=True, shift=0)
    plain = SliceDataset(store, "train", raters="all", crop=16)
    for epoch in range(10):
        turned = [torch.from_numpy(m.copy()) for m in symmetries(plain[3]["masks"].numpy())]
        assert any(torch.equal(still[(epoch, 3)]["masks"], m) for m in turned)


def test_window_repeats_the_edge():
    array = np.arange(12).reshape(3, 4)
    np.testing.assert_array_equal(window(array, (3, 4), (1, -1)), [[4, 4, 5, 6], [8, 8, 9, 10], [8, 8, 9, 10]])
    np.testing.assert_array_equal(window(array, (1, 2)), [[5, 6]])


def test_images_that_are_not_square_are_turned_by_half():
    masks = np.zeros((1, 1, 8, 12), np.uint8)
    for seed in range(20):
        image, readers = augmented(np.zeros((1, 8, 12), np.float32), masks, (8, 12), np.random.default_rng(seed))
        assert image.shape == (1, 8, 12)
        assert readers.shape == (1, 1, 8, 12)


def test_memory_does_not_grow_with_the_data(store, tmp_path):
    """Peak memory of a walk through eight times the data is the same but for the table of shards."""

    def peak(walked: Store) -> int:
        dataset = SliceDataset(walked, "train", raters="all")
        tracemalloc.start()
        for _ in training_loader(dataset, 4, 0, len(walked) // 4):
            pass
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    large = make_store(tmp_path / "large", 192)
    peak(store)  # what is allocated once, such as imports
    assert peak(large) < 1.5 * peak(store) + 100_000 < 192 * 5 * 32 * 32


def test_bad_arguments(store):
    for keywords, sentence in [
        ({"split": "val"}, "expected cases in the split val, found none"),
        ({"split": "train", "raters": "some"}, "raters: expected random, all or repeat, found 'some'"),
        ({"split": "train", "crop": 64}, "crop: expected 1 to 32, found 64"),
        ({"split": "train", "shift": -1}, "shift: expected at least 0, found -1"),
        ({"split": "train", "crop": 0}, "crop: expected 1 to 32, found 0"),
    ]:
        with pytest.raises(InputError, match=sentence):
            SliceDataset(store, **keywords)
