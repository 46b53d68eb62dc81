"""The values of all cases as columns, as in per_case.csv: units (slices, volumes, patients), their means and names."""

import csv
import io
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from berdiff import schema
from berdiff.data.csv_table import csv_text
from berdiff.data.describe import check
from berdiff.errors import InputError
from berdiff.evaluation.bootstrap import Figure, PatientBootstrap
from berdiff.evaluation.scores import FINDING, SIZE_GAPS
from berdiff.metrics import all_metrics, dice_from_counts, find_metric
from berdiff.metrics.registry import PIXELS

Columns = dict[str, np.ndarray]  # column -> one entry per case and target

TEXT = ("case", "patient", "volume", "target")
WHOLE = ("raters", *PIXELS)
TIME = "seconds"

Units = tuple[np.ndarray, np.ndarray]
"""(values, their patients)"""


def units(columns: Columns) -> dict[str, Units]:
    """metric -> its units: one per slice and target; Dice also has one per volume and per patient.

    A metric that no case has (NaN), such as the distance of two raters where all cases have one, is left out.
    """
    out: dict[str, Units] = {}
    dice, others = dice_pixels(), {*TEXT, *_whole(), *FINDING, *SIZE_GAPS}
    for name, values in columns.items():
        if name in dice:
            out |= _dice_units(columns, name, dice[name])
        elif name not in others and not np.isnan(values).all():
            out[name] = (values, columns["patient"])
    return out


def dice_pixels() -> dict[str, tuple[str, str, str]]:
    """Each Dice -> the columns of pixels from which it follows by volume."""
    return {metric.name: metric.pixels for metric in all_metrics() if metric.pixels is not None}


def _whole() -> set[str]:
    """Columns of whole numbers."""
    return {*WHOLE, *chain(*dice_pixels().values())}


def _dice_units(columns: Columns, name: str, pixels: tuple[str, str, str]) -> dict[str, Units]:
    """Dice by slice, volume and patient. Of one target also of those alone that most raters mark: in the others an
    empty mask has Dice 1. Of several targets that would be no mean over targets, for they differ in how many those are.
    """
    patient = columns["patient"]
    # a slice that names no volume belongs to its patient's
    volume = np.where(columns["volume"] == "", patient, columns["volume"])
    each = {
        "slice": (columns[name], patient, columns["pixels_majority"]),
        "volume": _grouped_dice(columns, volume, pixels),
        "patient": _grouped_dice(columns, patient, pixels),
    }
    if SIZE_GAPS[0] in columns:
        del each["slice"]  # the cases are volumes
    out = {f"{name}_{unit}": (values, patients) for unit, (values, patients, _) in each.items()}
    if len(set(columns["target"])) == 1 and columns["pixels_majority"].any():
        for unit in (unit for unit in ("slice", "patient") if unit in each):
            values, patients, truth = each[unit]
            out[f"{name}_{unit}_marked"] = values[truth > 0], patients[truth > 0]
    return out


def _grouped_dice(
    columns: Columns, group: np.ndarray, pixels: tuple[str, str, str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Dice of all the pixels of a group and target together, its patient, and the pixels of the raters' majority."""
    keys = np.stack([columns["patient"], group, columns["target"]], 1).astype(str)
    named, index = np.unique(keys, axis=0, return_inverse=True)
    counts = np.stack([np.bincount(index.ravel(), columns[name], minlength=len(named)) for name in pixels], -1)
    return dice_from_counts(torch.from_numpy(counts)).numpy(), named[:, 0], counts[:, 2]


def summarise(columns: Columns, bootstrap: PatientBootstrap) -> dict[str, Figure]:
    """Every metric with its interval; all targets together (each slice has every target, so they weigh the same)."""
    return {name: bootstrap.estimate(*unit) for name, unit in units(columns).items()}


def by_target(columns: Columns) -> dict[str, Columns]:
    """The columns of each target, in the order of the first case's."""
    names = columns["target"]
    return {name: take(columns, names == name) for name in dict.fromkeys(names.tolist())}


def take(columns: Columns, rows: np.ndarray) -> Columns:
    return {name: values[rows] for name, values in columns.items()}


def join(parts: Sequence[Columns]) -> Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def typed(columns: Mapping[str, Any]) -> Columns:
    """Lists of texts or numbers as columns."""
    whole = _whole()
    kinds = {name: object if name in TEXT else np.int64 if name in whole else np.float64 for name in columns}
    return {name: np.array(values, dtype=kinds[name]) for name, values in columns.items()}


def to_csv(columns: Columns) -> str:
    return csv_text([columns, *zip(*(values.tolist() for values in columns.values()), strict=True)])


def from_csv(path: Path) -> Columns:
    """per_case.csv of an evaluation."""
    try:
        header, *rows = csv.reader(io.StringIO(schema.read_text(path, "a table of cases"), newline=""), strict=True)
        columns = typed(dict(zip(header, zip(*rows, strict=True), strict=True)))
        infinite = [name for name, values in columns.items() if values.dtype == np.float64 and np.isinf(values).any()]
        if infinite:
            raise ValueError(f"an infinite {infinite[0]}")
    except (ValueError, OverflowError, csv.Error) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: no table of cases, or a damaged one ({error!s:.300})", "damaged") from error
    missing = {*TEXT, *WHOLE, "d_yy"} - set(columns)
    check(not missing, f"{path}: the column {min(missing, default='')} is missing", "missing")
    for name in {*columns} - {*TEXT, *_whole(), *FINDING, *SIZE_GAPS, *dice_pixels()}:
        try:
            find_metric(name)
        except InputError as error:
            raise InputError(f"{path}: {error}", error.code) from error
    return columns
