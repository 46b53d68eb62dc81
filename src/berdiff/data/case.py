"""What a source hands over and a store keeps: the contract between the layouts users have and everything after."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

SPLITS = ("train", "val", "test")

Progress = Callable[[int, int | None], None]  # told of cases done, and of cases in all if that is known


@dataclass(frozen=True, eq=False)
class Case:
    """One 2D slice with the masks of all its readers."""

    name: str  # unique in the store
    patient: str  # splits are by patient
    image: np.ndarray  # (C, H, W): uint8, or float32 in [0, 1]
    masks: np.ndarray  # (R, K, H, W) uint8 of 0 and 1: R readers (raters), K targets; R may differ from case to case
    volume: str = ""  # the scan the slice was cut from; Dice by volume groups by it
    spacing: tuple[float, float] = (float("nan"), float("nan"))  # mm a pixel, (row, column); nan where unknown
    source: str = ""  # the file it came from, relative to the source's folder
    split: str = ""  # one of SPLITS where the source brings its own split, else ""


@dataclass(frozen=True)
class Reading:
    """A source, opened and checked: what its cases have in common, and the cases, read one at a time."""

    channels: tuple[str, ...]  # a name for each image channel, e.g. ("ct",) or ("t1", "t1ce", "t2", "flair")
    targets: tuple[str, ...]  # a name for each of the K targets, e.g. ("nodule",)
    raters: int  # the most readers any case has
    size: tuple[int, int]  # (H, W), the same for every case
    dtype: str  # "uint8" or "float32"
    total: int | None  # how many cases will come, if known (for the progress bar)
    cases: Iterator[Case]
    notes: tuple[str, ...] = field(default=())  # shown wherever the data is, e.g. "real readers, simulated CT"
    patients_known: bool = True  # False: every case is its own "patient", and only the source's own split can be used
