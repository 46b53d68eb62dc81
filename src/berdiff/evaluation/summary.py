"""From the values of the cases to the figures: units (slices, volumes, patients), means, intervals, names."""

import csv
import io
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

from berdiff.errors import InputError
from berdiff.evaluation.bootstrap import Estimate, PatientBootstrap
from berdiff.evaluation.scores import OTHER, PIXELS
from berdiff.metrics import dice_from_counts

Columns = dict[str, np.ndarray]  # column -> one entry a case and target

TEXT = ("case", "patient", "volume", "target")
WHOLE = ("raters", *PIXELS)
NOT_METRICS = {*TEXT, *WHOLE, *OTHER}
TIME = "seconds"

_LABELS = {
    "dice_slice": "Dice by slice",
    "dice_volume": "Dice by volume",
    "dice_patient": "Dice by patient",
    "soft_dice": "soft Dice",
    "ece": "ECE",
    "brier": "Brier",
    "nll": "NLL (nats a pixel)",
    TIME: "seconds an image",
}


def label(metric: str) -> str:
    """ged_16_unbiased -> GED 16, unbiased."""
    if metric in _LABELS:
        return _LABELS[metric]
    for prefix, name in (("ged_", "GED"), ("hm_iou_", "HM-IoU"), ("d_max_", "D_max")):
        if metric.startswith(prefix):
            n, _, unbiased = metric.removeprefix(prefix).partition("_")
            return f"{name} {n}" + (", unbiased" if unbiased else "")
    return metric


def higher_is_better(metric: str) -> bool:
    return metric.startswith(("hm_iou", "dice", "soft_dice", "d_max"))


def units(columns: Columns) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """metric -> (values, their patients): one a slice and target, or for Dice also one a volume and one a patient."""
    out: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    patient = columns["patient"]
    for name, values in columns.items():
        if name in NOT_METRICS:
            continue
        if name != "dice":
            out[name] = (values, patient)
            continue
        out["dice_slice"] = (values, patient)
        # a slice that names no volume belongs to its patient's
        volume = np.where(columns["volume"] == "", patient, columns["volume"])
        out["dice_volume"] = _grouped_dice(columns, volume)
        out["dice_patient"] = _grouped_dice(columns, patient)
    return out


def _grouped_dice(columns: Columns, group: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Dice of all the pixels of a group and target together."""
    keys = np.stack([columns["patient"], group, columns["target"]], 1).astype(str)
    named, index = np.unique(keys, axis=0, return_inverse=True)
    counts = np.stack([np.bincount(index.ravel(), columns[name], minlength=len(named)) for name in PIXELS], -1)
    return dice_from_counts(torch.from_numpy(counts)).numpy(), named[:, 0]


def summarise(columns: Columns, bootstrap: PatientBootstrap) -> dict[str, Estimate]:
    """Every metric with its interval; all targets together (each slice has every target, so they weigh the same)."""
    return {name: bootstrap.estimate(*unit) for name, unit in units(columns).items()}


def take(columns: Columns, rows: np.ndarray) -> Columns:
    return {name: values[rows] for name, values in columns.items()}


def join(parts: Iterable[Columns]) -> Columns:
    parts = list(parts)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def to_csv(columns: Columns) -> str:
    """Floats are written so that reading them gives the same bits."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))
    return text.getvalue()


def from_csv(path: Path) -> Columns:
    """per_case.csv of an evaluation."""
    try:
        header, *rows = csv.reader(io.StringIO(path.read_text(encoding="utf-8"), newline=""), strict=True)
        if missing := {*TEXT, *WHOLE, "d_yy"} - set(header):
            raise InputError(f"{path}: expected the column {min(missing)}, found {', '.join(header)}")
        columns = dict(zip(header, zip(*rows, strict=True), strict=True))
        return {name: np.array(values, dtype=_dtype(name)) for name, values in columns.items()}
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{path.parent}: expected an evaluation with {path.name}, found none") from error
    except (ValueError, csv.Error) as error:
        raise InputError(f"{path}: expected a table of cases, found a damaged one ({error})") from error


def _dtype(name: str) -> type:
    return object if name in TEXT else np.int64 if name in WHOLE else np.float64
