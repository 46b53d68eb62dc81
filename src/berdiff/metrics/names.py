"""What each metric is called, and whether more or less of it is better. Declared here alone; no torch here.

Evaluations name a metric and what it is of: `ged_16`, `ged_16_unbiased` (sets of 16 masks), `dice_patient_marked`.
"""

import re
from dataclasses import dataclass, replace
from typing import Literal

from berdiff.errors import InputError


@dataclass(frozen=True)
class Metric:
    label: str
    better: Literal["lower", "higher", ""]  # "": neither, such as a time, which depends on the machine
    of: Literal["case", "set", "unit"] = "case"  # of a case; of a set of so many masks; of a slice, volume or patient


METRICS = {
    "ged": Metric("GED", "lower", "set"),
    "hm_iou": Metric("HM-IoU", "higher", "set"),
    "d_max": Metric("D_max", "higher", "set"),
    "dice": Metric("Dice", "higher", "unit"),
    "dice_likeliest": Metric("Dice of the likeliest class", "higher", "unit"),
    "soft_dice": Metric("soft Dice", "higher"),
    "ece": Metric("ECE", "lower"),
    "brier": Metric("Brier", "lower"),
    "nll": Metric("NLL (nats per pixel)", "lower"),
    "finding_ged": Metric("GED of finding", "lower"),
    "d_sy": Metric("d_SY", "lower"),
    "d_ss": Metric("d_SS", ""),
    "d_yy": Metric("d_YY", ""),
    "d_raters": Metric("D", ""),
    "seconds": Metric("seconds per image", ""),
}
_OF = {
    "case": re.compile(r"(?P<base>\w+)"),
    "set": re.compile(r"(?P<base>\w+?)_(?P<size>\d+)(?P<unbiased>_unbiased)?"),
    "unit": re.compile(r"(?P<base>\w+?)_(?P<unit>slice|volume|patient)(?P<marked>_marked)?"),
}


def find_metric(name: str) -> Metric:
    """The metric of a name, with the whole label: ged_16_unbiased is "GED 16, unbiased". InputError for an unknown."""
    for of, pattern in _OF.items():
        found = pattern.fullmatch(name)
        metric = METRICS.get(found["base"]) if found else None
        if not found or metric is None or metric.of != of:
            continue
        label = metric.label
        if of == "set":
            label += f" {found['size']}" + (", unbiased" if found["unbiased"] else "")
        if of == "unit":
            label += f" by {found['unit']}" + (" where marked" if found["marked"] else "")
        return replace(metric, label=label)
    raise InputError(f"metric {name!r}: expected one of {', '.join(METRICS)}, found an unknown one")
