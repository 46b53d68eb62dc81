"""The targets of an image or a model: what their masks may be, how samples answer, and their label map.

THE rules of a mask out of many are here, for masks that are written and masks that are evaluated.
"""

from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from berdiff.targets.kinds import RULES, Kind

if TYPE_CHECKING:
    from torch import Tensor

Share = TypeVar("Share", np.ndarray, "Tensor")


@dataclass(frozen=True)
class Targets:
    """K structures, in the order of the masks, and how they may lie to each other; one alone is independent."""

    names: tuple[str, ...]
    kind: Kind = "independent"

    def __post_init__(self) -> None:
        if len(self.names) < 2:
            object.__setattr__(self, "kind", "independent")

    @property
    def rule(self) -> str:
        """The kind in words."""
        return RULES[self.kind]

    @property
    def one_map(self) -> bool:
        """Whether a label map can hold them: several, nested or exclusive."""
        return self.kind != "independent" and len(self.names) < 256

    def violation(self, masks: np.ndarray) -> str:
        """What of masks `(R, K, ...)` breaks the kind, in words that go after "found"; "" where nothing does.

        Of several pairs of targets the worst one is named; pixels are counted over all raters.
        """
        each = range(len(self.names))
        if self.kind == "exclusive" and (masks.sum(1) > 1).any():
            of = {(a, b): np.count_nonzero(masks[:, a] & masks[:, b]) for a, b in combinations(each, 2)}
            words = "{count} pixels of both {a} and {b}"
        elif self.kind == "nested" and (masks[:, 1:] > masks[:, :-1]).any():
            of = {(a, b): np.count_nonzero(masks[:, b] > masks[:, a]) for a, b in pairwise(each)}
            words = "{count} pixels of {b} outside {a}"
        else:
            return ""
        a, b = max(of, key=lambda pair: of[pair])
        return words.format(count=of[a, b], a=self.names[a], b=self.names[b])

    def answer(self, pool: np.ndarray) -> np.ndarray:
        """One mask `(K, ...)` uint8 of samples `(P, K, ...)`: of exclusive targets the likeliest class in each pixel,
        otherwise what more than half of them mark."""
        marks = pool.sum(0, dtype=np.int32)
        marked = likeliest(marks[None], len(pool))[0] if self.kind == "exclusive" else 2 * marks > len(pool)
        return marked.astype(np.uint8)


def label_map(masks: np.ndarray) -> np.ndarray:
    """masks `(K, ...)` of 0 and 1 -> `(...)` uint8, 0 the background: the last target that marks a pixel, which of
    nested ones is the innermost.

    Nothing is lost: of nested targets, target k is where the value is above k; of exclusive ones, where it is k + 1.
    """
    labels = np.zeros(masks.shape[1:], np.uint8)
    for value, mask in enumerate(masks, 1):
        labels[mask > 0] = value
    return labels


def of_labels(labels: np.ndarray, targets: int, kind: Kind) -> np.ndarray:
    """The inverse of `label_map`: `(n, ...)` -> masks `(n, K, ...)` uint8."""
    values = np.arange(1, targets + 1).reshape(-1, *[1] * (labels.ndim - 1))
    return (labels[:, None] >= values if kind == "nested" else labels[:, None] == values).astype(np.uint8)


def more_than(share: Share, level: float = 0.5) -> Share:
    """Where more than `level` of the samples, or of the raters, mark a pixel, as the public code of soft Dice has it.

    At 0.5 it is the majority: half of the samples are not one, nor are two raters of four.
    """
    return share > level


def likeliest(marks: np.ndarray, n: int) -> np.ndarray:
    """How many of n samples mark exclusive targets, `(B, K, ...)` -> where each target is the likeliest class `(B, K,
    ...)` bool, of the background and the K targets.

    Of equally many samples the background goes before a target, so that with one target it is the majority, and an
    earlier target before a later one.
    """
    classes = np.concatenate([n - marks.sum(1, keepdims=True), marks], 1).argmax(1)  # the first of equals
    return np.stack([classes == k for k in range(1, marks.shape[1] + 1)], 1)
