"""Hypothesis strategies for images, masks and where they lie. Needs hypothesis; shrinks towards empty masks."""

from collections.abc import Sequence
from itertools import permutations, product
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from berdiff.data.input_spec import Kind
from berdiff.targets.targets import of_labels

SMALL = (4, 6)  # of an image; height and width differ, so that a swap cannot go unseen
Between = int | tuple[int, int]
"""A number, or the least and the most of it."""


def _number(between: Between) -> st.SearchStrategy[int]:
    return st.just(between) if isinstance(between, int) else st.integers(*between)


def masks(
    raters: Between = (1, 4), targets: Between = (1, 3), shape: Sequence[int] = SMALL, kind: Kind = "independent"
) -> st.SearchStrategy[np.ndarray]:
    """uint8 masks `(R, K, *S)` of 0 and 1 whose targets are of a kind; raters may be a model's samples."""

    def of(R: int, K: int) -> st.SearchStrategy[np.ndarray]:
        if kind == "independent":
            return hnp.arrays(np.uint8, (R, K, *shape), elements=st.integers(0, 1), fill=st.nothing())
        labels = hnp.arrays(np.uint8, (R, *shape), elements=st.integers(0, K), fill=st.nothing())
        return labels.map(lambda of_raters: of_labels(of_raters, K, kind))

    return st.tuples(_number(raters), _number(targets)).flatmap(lambda counts: of(*counts))


def images(
    channels: Between = (1, 3), shape: Sequence[int] = SMALL, dtype: str = "float32"
) -> st.SearchStrategy[np.ndarray]:
    """Images `(C, *S)` as a store keeps them: float32 in [0, 1], or uint8."""
    elements = st.floats(0, 1, width=32) if dtype == "float32" else st.integers(0, 255)
    return _number(channels).flatmap(lambda C: hnp.arrays(dtype, (C, *shape), elements=elements))


class Place(NamedTuple):
    """The shape of a volume, and the affine matrix from its voxels to mm."""

    shape: tuple[int, int, int]
    affine: np.ndarray


@st.composite
def grids(draw: st.DrawFn, oblique: bool = True) -> Place:
    """Any order and direction of the axes, spacings from .3 to 5 mm, an origin, and a tilt of up to 20 degrees."""
    shape = draw(st.tuples(*[st.integers(1, 9)] * 3))
    order = draw(st.sampled_from(list(permutations(range(3)))))
    signs = draw(st.sampled_from(list(product((1, -1), repeat=3))))
    spacing = draw(st.tuples(*[st.floats(0.3, 5)] * 3))
    affine = np.eye(4)
    affine[:3, :3] = np.eye(3)[:, order] * signs * spacing
    if oblique:
        for axis, degrees in enumerate(draw(st.tuples(*[st.floats(-20, 20)] * 3))):
            affine[:3, :3] = _turn(axis, np.deg2rad(degrees)) @ affine[:3, :3]
    affine[:3, 3] = draw(st.tuples(*[st.floats(-200, 200)] * 3))
    return Place(shape, affine)


def _turn(axis: int, angle: float) -> np.ndarray:
    """A rotation about one axis."""
    rotation, (a, b) = np.eye(3), [other for other in range(3) if other != axis]
    rotation[[a, b, a, b], [a, b, b, a]] = np.cos(angle), np.cos(angle), -np.sin(angle), np.sin(angle)
    return rotation
