"""Which n masks to show of a pool of P fair samples. No torch here."""

import numpy as np

from berdiff.inference.settings import SetRule
from berdiff.seeds import rng_of


def choose_set(
    pool: np.ndarray, n: int, rule: SetRule, rng: np.random.Generator, distance: np.ndarray | None = None
) -> np.ndarray:
    """Places (n,) of the chosen masks in a pool `(P, K, [Z,] H, W)` uint8, no place twice.

    `independent`: the first n: fair samples, independent of each other.
    `systematic`: one of each n-th part of the pool by area, in a random order: each mask is a fair sample by itself.
    `representative`: chosen jointly to stand for the pool, the one that does so best first; of n, the first m are the
    set of m. `distance` (P, P) is 1 - IoU of each two masks, where it is known already (`iou_distance`).
    """
    if not 1 <= n <= len(pool):
        raise ValueError(f"n: expected 1 to {len(pool)}, the size of the pool, found {n}")
    match rule:
        case "independent":
            return np.arange(n)
        case "systematic":
            return rng.permutation(_systematic(pool, n, int(rng.integers(len(pool)))))
        case "representative":
            if distance is None:
                from berdiff.inference.representatives import iou_distance

                distance = iou_distance(pool)
            return _representative(distance, n)


def set_rng(seed: int, name: str) -> np.random.Generator:
    """The random numbers by which a set is chosen for a case."""
    return rng_of("set", seed, name)


def _systematic(pool: np.ndarray, n: int, start: int) -> np.ndarray:
    """One of each n-th part of the pool by area, from a random start in 0 ... P - 1: each place with probability n /
    P."""
    area = pool.reshape(len(pool), -1).sum(1, dtype=np.int64)
    return np.argsort(area, kind="stable")[(np.arange(n) * len(pool) + start) // n]


def _representative(distance: np.ndarray, n: int) -> np.ndarray:
    """Greedily: the k-th mask minimises 2 mean_i d(s_i, pool) - mean_ij d(s_i, s_j) of the first k: but for the pool's
    own term, the energy distance of the set to its pool.

    Of what a candidate c adds, 2 / k d(c, pool) - 2 / k^2 sum_i d(c, s_i), the common 2 / k is left out.
    """
    to_pool, to_chosen = distance.mean(1), np.zeros(len(distance))
    chosen: list[int] = []
    for k in range(1, n + 1):
        energy = to_pool - to_chosen / k
        energy[chosen] = np.inf
        chosen.append(int(energy.argmin()))  # of equal ones the first
        to_chosen += distance[:, chosen[-1]]
    return np.array(chosen)
