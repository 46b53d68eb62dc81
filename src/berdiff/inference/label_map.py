"""Several targets in one array: 0 is the background, k + 1 the target k. Nested or exclusive targets fit in it."""

import numpy as np


def label_map(masks: np.ndarray) -> np.ndarray:
    """masks `(K, ...)` of 0 and 1 -> `(...)` uint8: the last target that marks a pixel; of nested ones the innermost.

    Nothing is lost: of nested targets, target k is where the value is above k; of exclusive ones, where it is k + 1.
    """
    labels = np.zeros(masks.shape[1:], np.uint8)
    for value, mask in enumerate(masks, 1):
        labels[mask > 0] = value
    return labels


def likeliest(pool: np.ndarray) -> np.ndarray:
    """pool `(P, K, ...)` of exclusive targets -> `(K, ...)` uint8: in each pixel the class, of the background and the
    K targets, that most samples have there.

    Of equally many, a target goes before the background and an earlier target before a later one, so that with one
    target it is what at least half of the samples mark.
    """
    counts = pool.sum(0, dtype=np.int32)
    background = len(pool) - counts.sum(0)
    found = np.where(counts.max(0) >= background, counts.argmax(0), -1)
    return (found == np.arange(len(counts)).reshape(-1, *[1] * found.ndim)).astype(np.uint8)
