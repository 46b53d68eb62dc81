"""What a source hands over and a store keeps: the contract between the layouts users have and everything after."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from berdiff.data.input_spec import Intensity, Modality, Size
from berdiff.targets.kinds import Kind

SPLITS = ("train", "val", "test")

Progress = Callable[[int, int | None], None]  # called with the cases done, and those in all if that is known


@dataclass(frozen=True, eq=False)
class Case:
    """One slice or volume with the masks of all its raters; its spatial axes are (H, W) or (Z, H, W)."""

    name: str  # unique in the store
    patient: str  # splits are by patient
    image: np.ndarray  # (C, *S): uint8, or float32 in [0, 1]
    masks: np.ndarray  # (R, K, *S) uint8 of 0 and 1: R raters, K targets; R may differ from case to case
    volume: str = ""  # the scan the slice was cut from; Dice by volume groups by it
    spacing: tuple[float, ...] | None = None  # mm per pixel along each spatial axis, nan or None where unknown
    source: str = ""  # the file it came from, relative to the source's folder
    split: str = ""  # one of SPLITS where the source brings its own split, else ""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A source, opened and checked: what its cases have in common, and the cases, read one at a time."""

    channels: tuple[str, ...]  # a name for each image channel, e.g. ("ct",) or ("t1", "t1ce", "t2", "flair")
    targets: tuple[str, ...]  # a name for each of the K targets, e.g. ("nodule",)
    intensity: Intensity  # how the values in the files became those of `Case.image`: a model is used by the same rule
    raters: int  # the largest number of raters that a case has
    size: Size  # of the spatial axes, the same for every case
    dtype: Literal["uint8", "float32"]
    total: int | None  # how many cases will come, if known (for the progress bar)
    cases: Iterator[Case]
    kind: Kind = "independent"  # how the targets may lie to each other; every case is checked against it
    modality: Modality = "unknown"
    crops: bool = False  # whether each image is a crop around a finding
    notes: tuple[str, ...] = ()  # shown wherever the data is, e.g. "real readers, simulated CT"
    spacing: tuple[float, ...] | None = None  # mm that images were resampled to; None: as they came
    patients_known: bool = True  # False: every case is its own "patient", and only the source's own split can be used
