"""Random patches: inside the image, around what was marked as often as asked, and pure functions of the draw.

Statistical tests raise a false alarm once in a million runs at most (ALARM); their seeds are fixed.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts import as_source, make_cases
from scipy.stats import binomtest, chi2

from berdiff.data import prepare as preparing
from berdiff.data.augment import random_patch
from berdiff.data.dataset import CaseDataset
from berdiff.data.store import Store
from refusals import refused

ALARM = 1e-6


def places(masks: np.ndarray, size: tuple[int, int], foreground: float, draws: int) -> list[tuple[int, int]]:
    """The upper left corners of so many patches."""
    rng = np.random.default_rng(1)
    found = [random_patch(masks, size, rng, foreground) for _ in range(draws)]
    return [(rows.start, columns.start) for rows, columns in found]


def assert_even(counts: np.ndarray) -> None:
    """Pearson's chi-square against the uniform law."""
    expected = counts.sum() / len(counts)
    assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(ALARM, len(counts) - 1)


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 2**32 - 1))
def test_a_patch_lies_inside_and_holds_a_marked_pixel_if_one_was_asked_for(seed):
    rng = np.random.default_rng(seed)
    height, width = rng.integers(1, 20, 2)
    size = int(rng.integers(1, height + 1)), int(rng.integers(1, width + 1))
    masks = (rng.random((2, 3, height, width)) < rng.choice([0.0, 0.005, 0.5])).astype(np.uint8)
    rows, columns = random_patch(masks, size, np.random.default_rng(seed), foreground=1.0)
    part = masks[..., rows, columns]
    assert part.shape[-2:] == size  # a slice that left the image would be shorter
    assert part.any() == masks.any()


def test_anywhere_is_everywhere_alike():
    """With nothing to look for, and with nothing to find: 5 x 4 places, 4,000 draws."""
    empty, full = np.zeros((1, 1, 12, 9), np.uint8), np.ones((1, 1, 12, 9), np.uint8)
    for masks, foreground in ((full, 0.0), (empty, 1.0)):
        counts = np.zeros((5, 4))
        for place in places(masks, (8, 6), foreground, 4000):
            counts[place] += 1
        assert_even(counts.ravel())


def test_every_marked_pixel_of_any_rater_and_target_is_the_middle_alike():
    """Six pixels of which each gives another patch, two of them near a border; 3,000 draws."""
    masks = np.zeros((2, 3, 40, 30), np.uint8)
    pixels = [(20, 15), (20, 16), (11, 9), (30, 15), (0, 12), (39, 29)]
    for i, (row, column) in enumerate(pixels):
        masks[i % 2, i % 3, row, column] = 1
    # the middle of 8 is the fourth pixel from 0, and no patch leaves the 40 x 30
    expected = [(16, 11), (16, 12), (7, 5), (26, 11), (0, 8), (32, 22)]
    found = places(masks, (8, 8), 1.0, 3000)
    assert set(found) == set(expected)
    assert_even(np.array([found.count(place) for place in expected]))


@pytest.mark.parametrize("share", [0.0, 0.33, 0.7, 1.0])
def test_the_share_around_foreground_is_the_one_asked_for(share):
    """One marked pixel gives one place; anywhere finds it by chance, once in 33 x 33."""
    masks = np.zeros((1, 1, 40, 40), np.uint8)
    masks[..., 20, 20] = 1
    hits = places(masks, (8, 8), share, 3000).count((16, 16))
    assert binomtest(hits, 3000, share + (1 - share) / 33**2).pvalue > ALARM


# --- the data set ---


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Eight cases of 40x40 for training. Rater k marks pixel (10, 5 + 8 k) alone; case 7 is empty."""
    made = []
    for i, case in enumerate(make_cases(8, size=40, split="train")):
        masks = np.zeros_like(case.masks)
        for k in range(len(masks)):
            masks[k, 0, 10, 5 + 8 * k] = i != 7
        made.append(replace(case, masks=masks))
    return write(tmp_path_factory.mktemp("patches") / "s", made)


def write(out: Path, cases, **fields) -> Store:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparing, "find_source", lambda name: as_source(cases, **{"size": (40, 40), **fields}))
        preparing.prepare("made", None, out)
    return Store.open(out)


def test_patches_are_cut_around_the_mark_of_the_rater_that_was_picked(store):
    """Case 3 has four raters; patches of 5 pixels, so that no two marks are in one."""
    dataset, seen = CaseDataset(store, "train", patch=5, foreground=1.0), set()
    whole = CaseDataset(store, "train")
    for epoch in range(40):
        image, masks = dataset[(epoch, 3)]
        assert image.shape == (1, 5, 5)
        assert masks.sum() == masks[0, 0, 2, 2] == 1  # in the middle
        (column,) = np.flatnonzero(whole[(epoch, 3)][1][0, 0, 10])  # the same draw picks the same rater
        assert torch.equal(image, whole[(epoch, 3)][0][:, 8:13, column - 2 : column + 3])
        seen.add(int(column))
    assert seen == {5, 13, 21, 29}


def test_with_all_raters_the_union_counts_and_a_case_without_foreground_is_cut_anywhere(store):
    dataset = CaseDataset(store, "train", raters="all", patch=5, foreground=1.0)
    held = [dataset[(epoch, 3)][1].flatten(1).any(1) for epoch in range(60)]
    assert torch.stack(held).any(0).all()
    assert all(marked.sum() == 1 for marked in held)
    image = store.read([7])[0][0]
    corners = set()
    for epoch in range(60):
        found, masks = dataset[(epoch, 7)]
        assert not masks.any()
        row, column = np.argwhere(image[0] == float(found[0, 0, 0])).T
        corners |= {
            (r, c) for r, c in zip(row, column, strict=True) if np.array_equal(image[:, r : r + 5, c : c + 5], found)
        }
    assert len(corners) > 40  # of 60 draws out of 36 x 36 places


def test_a_patch_of_all_is_all(store):
    whole, patch = CaseDataset(store, "train"), CaseDataset(store, "train", patch=40)
    for item in range(8):
        assert all(torch.equal(a, b) for a, b in zip(whole[(0, item)], patch[(0, item)], strict=True))


def test_bad_arguments(store):
    for keywords, where, code in [
        ({"patch": 41}, "patch", "shape"),
        ({"patch": 0}, "patch", "shape"),
        ({"patch": 8, "crop": 8}, "patch", "conflict"),
        ({"patch": 8, "foreground": 1.5}, "foreground", "value"),
    ]:
        with refused(where, code=code):
            CaseDataset(store, "train", **keywords)
