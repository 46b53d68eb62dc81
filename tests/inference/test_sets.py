"""Sets of masks: the greedy choice against its definition, fair shares by counting all starts, nearer to the pool."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berdiff.inference import sets
from berdiff.inference.representatives import iou_distance
from berdiff.inference.sets import choose_set, set_rng
from berdiff.inference.settings import SetRule

RNG = np.random.default_rng(0)
RULES: tuple[SetRule, ...] = ("independent", "systematic", "representative")


def discs(P: int, seed: int, targets: int = 1) -> np.ndarray:
    """(P, K, 12, 12): discs of random size and place; a third of them empty, some equal."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:12, :12]
    place, radius = rng.integers(4, 8, (2, P, targets, 1, 1)), rng.integers(0, 5, (P, targets, 1, 1))
    return ((rows - place[0]) ** 2 + (columns - place[1]) ** 2 < radius**2).astype(np.uint8)


def energy(distance: np.ndarray, chosen: list[int]) -> float:
    """2 mean_i d(s_i, pool) - mean_ij d(s_i, s_j), by loops."""
    k, P = len(chosen), len(distance)
    to_pool = sum(distance[i, j] for i in chosen for j in range(P)) / (k * P)
    return 2 * to_pool - sum(distance[i, j] for i in chosen for j in chosen) / k**2


@given(st.integers(1, 9), st.integers(1, 2), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_each_representative_is_the_one_that_lowers_the_energy_most(P, targets, seed):
    pool = discs(P, seed, targets)
    distance = iou_distance(pool)
    found = choose_set(pool, P, "representative", RNG).tolist()
    assert sorted(found) == list(range(P))
    for k in range(1, P + 1):
        before, pick = found[: k - 1], found[k - 1]
        after = {c: energy(distance, [*before, c]) for c in range(P) if c not in before}
        assert after[pick] <= min(after.values()) + 1e-12
        # of equal masks the one of lower place
        assert not any((pool[c] == pool[pick]).all() for c in after if c < pick)
        np.testing.assert_array_equal(choose_set(pool, k, "representative", RNG), found[:k])  # nested
    np.testing.assert_array_equal(choose_set(pool, P, "representative", RNG, distance), found)


def test_a_representative_set_by_hand():
    """Seven empty masks and three full ones, which have IoU 0."""
    pool = np.zeros((10, 1, 4, 4), np.uint8)
    pool[[1, 4, 8]] = 1
    # to the pool .3 and .7: first an empty one; then .3 against .7 - .5, a full one; -.03 against .37; .05 against .2
    found = choose_set(pool, 4, "representative", RNG).tolist()
    assert found == [0, 1, 2, 3]
    volume = np.zeros((10, 1, 3, 4, 4), np.uint8)  # and the same of volumes, over all slices
    volume[[1, 4, 8], :, 1] = 1
    assert choose_set(volume, 4, "representative", RNG).tolist() == found


@pytest.mark.parametrize(("P", "n"), [(7, 3), (64, 16), (10, 4), (5, 5), (9, 1)])
def test_systematic_takes_each_mask_with_probability_n_of_P(P, n):
    """Exactly: over all P starts, which are equally probable, each mask is taken n times."""
    pool = discs(P, P)
    area = pool.sum((1, 2, 3))
    taken = [sets._systematic(pool, n, start).tolist() for start in range(P)]
    assert Counter(place for one in taken for place in one) == dict.fromkeys(range(P), n)
    order = sorted(range(P), key=lambda place: (area[place], place))
    for one in taken:
        assert len(set(one)) == n
        ranks = [order.index(place) for place in one]
        gaps = np.diff([*ranks, ranks[0] + P])  # evenly spread over the order by area
        assert set(gaps) <= {P // n, -(-P // n)}
    drawn = {tuple(sorted(choose_set(pool, n, "systematic", np.random.default_rng(s)))) for s in range(40 * P)}
    assert drawn == {tuple(sorted(one)) for one in taken}  # any start, and nothing else: each is missed once in e^40


def test_systematic_masks_are_not_in_the_order_of_their_areas():
    """First places are uniform over the pool: of 2000 draws 8 groups have 250 each, within 6 deviations."""
    pool = discs(64, 1)
    ranks = np.argsort(np.argsort(pool.sum((1, 2, 3)), kind="stable"))
    first = [ranks[choose_set(pool, 8, "systematic", np.random.default_rng(s))[0]] // 8 for s in range(2000)]
    assert np.abs(np.bincount(first, minlength=8) - 250).max() < 6 * np.sqrt(250)


def test_chosen_sets_are_nearer_to_their_pool_than_independent_ones():
    """The energy distance (with the pool's own term) of 8 of 40, over 60 pools."""
    found = {rule: [] for rule in RULES}
    for seed in range(60):
        pool = discs(40, seed)
        distance = iou_distance(pool)
        for rule in RULES:
            chosen = choose_set(pool, 8, rule, np.random.default_rng(seed), distance).tolist()
            found[rule].append(energy(distance, chosen) - distance.mean())
    mean = {rule: np.mean(values) for rule, values in found.items()}
    assert min(min(values) for values in found.values()) > -1e-12  # it is a distance
    assert mean["representative"] < 0.5 * mean["independent"]
    assert mean["systematic"] < 0.9 * mean["independent"]


@pytest.mark.parametrize("rule", RULES)
def test_sizes_and_seeds(rule: SetRule):
    pool = discs(20, 3)
    assert sorted(choose_set(pool, 20, rule, set_rng(0, "a"))) == list(range(20))
    one = choose_set(pool, 5, rule, set_rng(0, "a"))
    assert one.shape == (5,)
    np.testing.assert_array_equal(one, choose_set(pool, 5, rule, set_rng(0, "a")))
    if rule == "independent":
        np.testing.assert_array_equal(one, np.arange(5))
    if rule == "systematic":
        others = [choose_set(pool, 5, rule, set_rng(*of)).tolist() for of in ((1, "a"), (0, "b"))]
        assert one.tolist() not in others
    for n in (0, 21):
        with pytest.raises(ValueError, match=f"n: expected 1 to 20, the size of the pool, found {n}"):
            choose_set(pool, n, rule, RNG)
