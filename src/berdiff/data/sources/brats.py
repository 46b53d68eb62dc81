"""BraTS: four MRI sequences and a tumour mask, by the paper's rules.

Three layouts are known by their names: case folders (CASE/CASE_t1.nii.gz, t1ce, t2, flair, seg; since 2023
CASE/CASE-t1n.nii.gz, t1c, t2w, t2f, seg), the Decathlon's 4D files (imagesTr, labelsTr), and exports of 2D slices
(CASE_t1_NUMBER.nii.gz, ...).

Channels are the sequences in the order t1, t1ce, t2, flair, whatever the files' own order; a patient is a case (of
BraTS 2023's PATIENT-TIMEPOINT, the patient); a case of the store is one axial slice, named CASE_NUMBER with slices
counted from 0 at the bottom of the whole scan.

What the paper leaves open, and what is done here:
- 240 -> 224: the paper resizes, so that is the default; public code crops ([8:-8]), which is `--fit crop`.
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
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge, Lt

from berdiff.data.case import Case, Reading
from berdiff.data.csv_table import read_case_list
from berdiff.data.describe import check, expect
from berdiff.data.fitting import Fit, fit_image, fit_labels, fit_spacing
from berdiff.data.input_spec import Intensity, Side
from berdiff.data.intensity import to_unit
from berdiff.data.sources.brats_layouts import SEQUENCES, FoundCase, find_cases
from berdiff.data.split import split_patients
from berdiff.schema import Settings
from berdiff.targets.kinds import implied_kind

Sequence = Literal["t1", "t1ce", "t2", "flair"]
TARGETS = {  # each by its labels
    "whole": {"whole_tumour": (1, 2, 4)},
    "regions": {"whole_tumour": (1, 2, 4), "tumour_core": (1, 4), "enhancing_tumour": (4,)},
    "labels": {"necrotic_core": (1,), "edema": (2,), "enhancing_tumour": (4,)},
}


@dataclass(frozen=True)
class Rules(Settings):
    """The paper's rules, each as an option, whatever the files are."""

    sequences: tuple[Sequence, ...] = SEQUENCES  # Which sequences become channels, in this order.
    bottom: Annotated[int, Ge(0)] = 80  # Axial slices to leave out at the bottom.
    top: Annotated[int, Ge(0)] = 26  # Axial slices to leave out at the top.
    targets: Literal["whole", "regions", "labels"] = "whole"
    """The whole tumour (label > 0); or the regions of the challenge, whole tumour, tumour core in it, enhancing tumour
    in that; or the labels apart: necrotic core, edema, enhancing tumour."""
    size: tuple[Side, Side] = (224, 224)  # Height and width of the prepared slices.
    fit: Fit = "resize"
    """How to get there: resize as in the paper (masks: nearest pixel), or crop the centre as public code does."""
    keep_empty: Literal["all", "train", "none"] = "all"
    """Slices without tumour: keep all, only those for training (as in the paper, most likely), or none."""
    split: Literal["own", "paper"] = "own"
    """The split that --table or folders such as training and testing bring, if any; or one of the paper's sizes, a
    tenth of the patients (125 of 1,251) for test and the rest for training."""
    table: Path | None = None
    """A CSV file with the columns case, patient and perhaps split. Without it, each case is a patient (of BraTS 2023's
    names, all time points of one are)."""

    def check(self) -> None:
        different = self.sequences and len(set(self.sequences)) == len(self.sequences)
        expect(different, "sequences", "one or more different ones", " ".join(self.sequences), "name")


@dataclass(frozen=True)
class Options(Rules):
    """The paper's rules, each as an option."""

    tails: Annotated[float, Ge(0), Lt(50)] = 1.0
    """Percent of the brain's intensities to clip at each end before scaling a scan to [0, 1]."""


def read(path: str | Path, options: Options) -> Reading:
    """Open a BraTS folder of any of the three layouts."""
    root = Path(path)
    found, notes = find_cases(root, options.sequences)
    total = sum(len(_kept(case, options)) for case in found)
    return reading_of(found, Intensity("brain", tails=options.tails), total, notes, root, options)


def reading_of(
    found: list[FoundCase], intensity: Intensity, total: int, notes: list[str], root: Path, options: Rules
) -> Reading:
    """The reading of cases in any layout; `total` counts their slices that are kept."""
    listed = _patients_and_splits(found, options)
    check(total, f"{root}: no slices between --bottom {options.bottom} and --top {options.top}", "missing")
    return Reading(
        channels=options.sequences,
        targets=tuple(TARGETS[options.targets]),
        kind=implied_kind(TARGETS[options.targets]),
        intensity=intensity,
        raters=1,
        size=options.size,
        dtype="float32",
        modality="mr",
        total=total if options.keep_empty == "all" else None,
        cases=(one for case in found for one in _cases_of(case, *listed[case.name], intensity, options)),
        notes=(*notes, f"slices without tumour kept: {options.keep_empty}"),
    )


def _patients_and_splits(found: list[FoundCase], options: Rules) -> dict[str, tuple[str, str]]:
    """Patient and split of every case."""
    listed = {case.name: (case.patient, case.split) for case in found}
    if options.table is not None:
        listed = read_case_list(options.table, listed)
    if options.split == "paper":
        splits = split_patients((patient for patient, _ in listed.values()), seed=0, val=0.0, test=0.1)
        listed = {name: (patient, splits[patient]) for name, (patient, _) in listed.items()}
    known = options.keep_empty != "train" or all(split for _, split in listed.values())
    ways = "--split paper, a --table with splits, or folders called training and testing"
    check(known, f"--keep-empty train needs a split: {ways}", "conflict")
    return listed


def _kept(case: FoundCase, options: Rules) -> list[int]:
    """Places of the slices to keep, in the case's own list of slices."""
    return [place for place, number in enumerate(case.numbers) if options.bottom <= number < case.depth - options.top]


def _cases_of(case: FoundCase, patient: str, split: str, intensity: Intensity, options: Rules) -> Iterator[Case]:
    """The slices of one scan."""
    kept = _kept(case, options)
    if not kept:
        return
    voxels, labels, spacing = case.load(options.sequences)
    scaled = [
        to_unit(values[None], intensity, f"{case.name}, sequence {sequence}", planar=case.planar, forced=True)
        for sequence, values in zip(options.sequences, voxels, strict=True)
    ]
    images = np.concatenate(scaled)  # (C, Z, H, W)
    targets = TARGETS[options.targets].values()
    masks = np.stack([np.isin(labels, values) for values in targets]).astype(np.uint8)  # (K, Z, H, W)
    spacing = fit_spacing(spacing, labels.shape[1:], options.size, options.fit)
    keep_empty = options.keep_empty == "all" or options.keep_empty == split == "train"
    for place in kept:
        if keep_empty or masks[:, place].any():
            name = f"{case.name}_{case.numbers[place]:03d}"
            image = fit_image(images[:, place], options.size, options.fit)
            marked = fit_labels(masks[:, place], options.size, options.fit)[None]
            yield Case(name, patient, image, marked, case.name, spacing, case.source, split)
