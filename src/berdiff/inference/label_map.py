"""Several targets in one array: 0 is the background, k + 1 the target k. Nested or exclusive targets fit in it."""

from collections.abc import Sequence

import numpy as np
import torch

from berdiff import metrics
from berdiff.data.input_spec import Kind


def fits_label_map(targets: Sequence[str], kind: Kind) -> bool:
    """Whether a label map can hold the targets: several of them, nested or exclusive."""
    return 1 < len(targets) < 256 and kind != "independent"


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
    K targets, that most samples have there (`metrics.likeliest`).
    """
    counts = torch.from_numpy(pool.sum(0, dtype=np.int32))[None]
    return metrics.likeliest(counts, len(pool))[0].numpy().astype(np.uint8)
