"""BraTS: four MRI sequences and a tumour mask, by the paper's rules.

Three layouts are known by their names: case folders (CASE/CASE_t1.nii.gz, t1ce, t2, flair, seg), the Decathlon's 4D
files (imagesTr, labelsTr), and exports of 2D slices (CASE_t1_NUMBER.nii.gz, ...).

Channels are the sequences in the order t1, t1ce, t2, flair, whatever
the files' own order; a patient is a case; a case of the store is one axial slice, named CASE_NUMBER with slices counted
from 0 at the bottom of the whole scan.

What the paper leaves open, and what is done here:
- 240 -> 224: the paper says resized, so that is the default; public code crops ([8:-8]), which is `--fit crop`.
- Intensities: the 1 % tails are those of the brain (voxels other than 0) of one sequence of one scan. Public 2D slices
  have 1.4 % of their brain pixels at 1 (8 slices of 3 patients); tails of the whole array, of which the brain
  is a sixth, would give 6 %.
- Slices without tumour: the paper's 55,174 training slices are 49 for each of 1,126 patients, so none was left out;
  its 3,991 test slices of 125 patients are 32 each, so most likely those without tumour were. The default keeps all,
  as no test slice should be chosen by its answer; `--split paper --keep-empty train` follows the paper.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from berdiff.data.case import Case, Reading
from berdiff.data.fitting import Fit, fit_image, fit_labels, fit_spacing
from berdiff.data.sources.brats_layouts import SEQUENCES, FoundCase, SlicesCase, find_cases
from berdiff.data.sources.case_list import Listed, read_case_list
from berdiff.data.split import split_patients
from berdiff.errors import InputError

Sequence = Literal["t1", "t1ce", "t2", "flair"]
TARGETS = {1: "necrotic_core", 2: "edema", 4: "enhancing_tumour"}


@dataclass(frozen=True)
class Options:
    """The paper's rules, each as an option."""

    sequences: tuple[Sequence, ...] = SEQUENCES
    """Which sequences become channels, in this order."""
    bottom: int = 80
    """Axial slices to leave out at the bottom."""
    top: int = 26
    """Axial slices to leave out at the top."""
    targets: Literal["whole", "labels"] = "whole"
    """One target, the whole tumour (label > 0), or the original labels 1, 2, 4 as three."""
    size: tuple[int, int] = (224, 224)
    """Height and width of the prepared slices."""
    fit: Fit = "resize"
    """How to get there: resize as the paper says (masks: nearest pixel), or crop the centre as public code does."""
    tails: float = 1.0
    """Percent of the brain's intensities to clip at each end before scaling a scan to [0, 1]."""
    keep_empty: Literal["all", "train", "none"] = "all"
    """Slices without tumour: keep all, only those for training (as in the paper, most likely), or none."""
    split: Literal["own", "paper"] = "own"
    """The split that --table or folders such as training and testing bring, if any; or one of the paper's sizes, a
    tenth of the patients (125 of 1,251) for test and the rest for training."""
    table: Path | None = None
    """A CSV file with the columns case, patient and perhaps split. Without it, each case is a patient."""


def read(path: str | Path, options: Options) -> Reading:
    """Open a BraTS folder of any of the three layouts."""
    root = Path(path)
    _check(options)
    found, notes = find_cases(root, options.sequences)
    listed = _listed(found, options)
    kept = {case.name: _kept(case, options) for case in found}
    total = sum(map(len, kept.values()))
    if not total:
        raise InputError(
            f"{root}: expected slices between the bottom {options.bottom} and the top {options.top}, found none"
        )
    return Reading(
        channels=options.sequences,
        targets=("whole_tumour",) if options.targets == "whole" else tuple(TARGETS.values()),
        raters=1,
        size=options.size,
        dtype="float32",
        total=total if options.keep_empty == "all" else None,
        cases=_cases(found, listed, kept, options),
        notes=(*notes, f"slices without tumour kept: {options.keep_empty}"),
    )


def _check(options: Options) -> None:
    if not options.sequences or len(set(options.sequences)) < len(options.sequences):
        raise InputError(f"--sequences: expected one or more different ones, found {' '.join(options.sequences)}")
    if min(options.bottom, options.top) < 0:
        raise InputError(f"--bottom and --top: expected 0 or more, found {options.bottom} and {options.top}")
    if min(options.size) < 1:
        raise InputError(f"--size: expected two positive numbers, found {options.size[0]} {options.size[1]}")
    if not 0 <= options.tails < 50:
        raise InputError(f"--tails: expected a percentage from 0 to below 50, found {options.tails:g}")


def _listed(found: list[FoundCase], options: Options) -> dict[str, Listed]:
    """Patient and split of every case."""
    listed = {case.name: Listed(case.name, case.split) for case in found}
    if options.table is not None:
        listed = read_case_list(options.table, listed)
    if options.split == "paper":
        splits = split_patients((of.patient for of in listed.values()), seed=0, val=0.0, test=0.1)
        listed = {name: Listed(of.patient, splits[of.patient]) for name, of in listed.items()}
    if options.keep_empty == "train" and not all(of.split for of in listed.values()):
        raise InputError(
            "--keep-empty train: expected a split to go by (--split paper, a --table with splits, or folders called "
            "training and testing), found none"
        )
    return listed


def _kept(case: FoundCase, options: Options) -> list[int]:
    """Places of the slices to keep, in the case's own list of slices."""
    return [place for place, number in enumerate(case.numbers) if options.bottom <= number < case.depth - options.top]


def _cases(
    found: list[FoundCase], listed: dict[str, Listed], kept: dict[str, list[int]], options: Options
) -> Iterator[Case]:
    """One scan in memory at a time."""
    for case in found:
        patient, split = listed[case.name].patient, listed[case.name].split
        keep_empty = options.keep_empty == "all" or (options.keep_empty == "train" and split == "train")
        if not kept[case.name]:
            continue
        scan = case.load(options.sequences)
        old = scan.labels.shape[1:]
        limits = [
            intensity_limits(sequence, options.tails, f"{case.name}, sequence {name}", isinstance(case, SlicesCase))
            for name, sequence in zip(options.sequences, scan.images, strict=True)
        ]
        for place in kept[case.name]:
            labels = scan.labels[place]
            if not keep_empty and not labels.any():
                continue
            if options.targets == "whole":
                masks = (labels > 0)[None].astype(np.uint8)
            else:
                masks = np.stack([labels == label for label in TARGETS]).astype(np.uint8)
            image = np.stack([scaled(plane[place], *of) for plane, of in zip(scan.images, limits, strict=True)])
            yield Case(
                name=f"{case.name}_{case.numbers[place]:03d}",
                patient=patient,
                image=fit_image(image, options.size, options.fit),
                masks=fit_labels(masks, options.size, options.fit)[None],
                volume=case.name,
                spacing=fit_spacing(scan.spacing, (old[0], old[1]), options.size, options.fit),
                source=case.source,
                split=split,
            )


def intensity_limits(voxels: np.ndarray, tails: float, what: str, keep_unit: bool = False) -> tuple[float, float]:
    """The intensities of one sequence of one scan that become 0 and 1: the tails of the brain (voxels other than 0).

    Exports of single slices come normalised already, and from a part of a scan it cannot be done again: with
    `keep_unit`, values that all lie in [0, 1] stay as they are.
    """
    if keep_unit and voxels.min() >= 0 and voxels.max() <= 1:
        return 0.0, 1.0
    brain = voxels[voxels != 0]
    if not brain.size:
        raise InputError(f"{what}: expected a brain, found only zeros")
    low, high = np.percentile(brain, (tails, 100 - tails))
    if high <= low:
        raise InputError(f"{what}: expected intensities that differ, found {low:g} all over the brain")
    return float(low), float(high)


def scaled(voxels: np.ndarray, low: float, high: float) -> np.ndarray:
    """float32 in [0, 1]; the background, which is 0 in BraTS, stays 0 whatever the limits are."""
    unit = np.clip((voxels - np.float32(low)) / np.float32(high - low), 0, 1)
    return np.where(voxels != 0, unit, np.float32(0))
