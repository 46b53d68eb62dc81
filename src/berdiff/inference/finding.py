"""A finding: one of the places in an input that are segmented, each by itself; and where it lies in space."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from berdiff.inference.inputs import Input
from berdiff.inference.opening import ReadInput


class Finding(NamedTuple):
    name: str
    center: tuple[int, ...] = ()  # (z, y, x) of the upright volume, or (y, x)
    error: str = ""  # why it cannot be segmented


class FindingSource(Protocol):
    """Where findings come from."""

    kind: str

    def choose(self, inputs: Sequence[Input], every: bool) -> list[Input]:
        """Those inputs that have findings; `every`: the given ones are all there are, so others are unknown."""
        ...

    def asked(self, item: Input) -> Any:
        """What decides the findings of an input, in plain JSON types."""
        ...

    def find(self, item: Input, read: ReadInput) -> list[Finding]:
        """At least one."""
        ...


def world_affine(read: ReadInput) -> np.ndarray | None:
    """(column, row, slice) of the upright volume -> mm as its file counts them: of NIfTI right, front and up, of DICOM
    left, back and up. None for what has no place in space."""
    volume = None if read.file is None else read.file.volume
    if volume is None or read.file is None:
        return None
    turned = [-1.0, -1.0, 1.0, 1.0] if read.file.geometry.kind == "dicom" else [1.0] * 4
    return np.diag(turned) @ volume.affine


def to_voxel(read: ReadInput, place: np.ndarray) -> tuple[float, ...]:
    """(x, y, z) in mm -> (slice, row, column), exactly."""
    column, row, number, _ = np.linalg.solve(_affine(read), np.append(place, 1.0))
    return float(number), float(row), float(column)


def to_mm(read: ReadInput, center: Sequence[int]) -> list[float]:
    """(slice, row, column) -> (x, y, z) in mm."""
    return (_affine(read) @ np.append(center[::-1], 1.0))[:3].tolist()


def _affine(read: ReadInput) -> np.ndarray:
    affine = world_affine(read)
    assert affine is not None
    return affine
