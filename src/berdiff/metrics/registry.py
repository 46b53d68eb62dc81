"""Every metric, declared once: how it is computed, which direction is better, what it is called.

Evaluation, search, comparisons, tables and pages read it here, and the functions of `berdiff.metrics` are its entries:
`metrics.ged(samples, masks)`. Other packages add metrics by the entry points `berdiff.metrics`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from berdiff.errors import InputError
from berdiff.metrics.finding import finding_ged, finding_shares
from berdiff.metrics.pairs import Pairs
from berdiff.metrics.votes import Votes, dice_from_counts, likeliest_counts
from berdiff.plugins import Registry
from berdiff.targets.kinds import Kind

Values = dict[str, np.ndarray]  # column -> (B, K)


class Compared:
    """Samples `(B, n, K, *S)` beside the raters' masks `(B, R, K, *S)`; what metrics share is counted once."""

    def __init__(
        self, samples: Tensor, masks: Tensor, raters: Tensor | None = None, pairs: Pairs | None = None
    ) -> None:
        """`raters` `(B,)`: how many of the R masks are a case's own, None for all; `pairs`, where they are known."""
        self.samples, self.masks, self.raters, self._pairs = samples, masks, raters, pairs

    @cached_property
    def pairs(self) -> Pairs:
        """The overlaps of all masks, two by two."""
        return self._pairs or Pairs.of(self.samples, self.masks, self.raters)

    @cached_property
    def votes(self) -> Votes:
        """How many samples and how many raters mark a pixel."""
        return Votes.of(self.samples, self.masks, self.raters)

    def subset(self, places: np.ndarray) -> "Compared":
        """The samples at `places`, `(B, m)` or `(m,)` for every case; one may come twice."""
        rows = torch.arange(len(self.samples))[:, None]
        chosen = self.samples[rows, torch.as_tensor(places).expand(len(rows), -1)]
        return Compared(chosen, self.masks, self.raters, self.pairs.subset(places))


@dataclass(frozen=True)
class Metric:
    """One figure per case and target. Where `{n}` is in the name and label, it is of n masks."""

    name: str  # its column, such as ged_{n}
    function: Callable[[Compared], np.ndarray] | None  # gives (B, K); None: not of masks, the evaluation measures it
    direction: Literal["lower", "higher", ""]  # which is better; "": neither
    unit: str = ""  # shown behind the label
    label: str = ""
    # the sets of 1, 4, ... n masks that are shown; the one of n; all samples that were drawn; the raters alone
    of: Literal["sets", "set", "pool", "raters"] = "pool"
    least: int = 1  # samples that it needs
    # of a Dice, whose function gives pixels (B, K, 3): their columns, which add up over the slices of a volume
    pixels: tuple[str, str, str] | None = None
    kind: Kind | None = None  # of targets of this kind alone
    main: bool = False  # compared for each target too

    def __call__(self, samples: Tensor, masks: Tensor, raters: Tensor | None = None) -> Tensor:
        """Of samples `(B, n, K, *S)` against masks `(B, R, K, *S)`: `(B, K)` float64 on the CPU."""
        return torch.as_tensor(next(iter(self.columns(Compared(samples, masks, raters)).values())))

    def columns(self, compared: Compared) -> Values:
        """The metric by its name, and the pixels it follows from."""
        assert self.function is not None
        values, name = self.function(compared), self.name.replace("{n}", str(compared.samples.shape[1]))
        if self.pixels is None:
            return {name: values}
        counts = np.moveaxis(values, -1, 0)
        return {name: dice_from_counts(torch.as_tensor(values)).numpy(), **dict(zip(self.pixels, counts, strict=True))}


# both, marked by the prediction, marked by most raters
PIXELS = ("pixels_both", "pixels_predicted", "pixels_majority")
LIKELIEST_PIXELS = ("pixels_both_likeliest", "pixels_likeliest", "pixels_majority")

ged = Metric("ged_{n}", lambda of: of.pairs.ged(), "lower", label="GED {n}", of="sets", main=True)
ged_unbiased = Metric(
    "ged_{n}_unbiased", lambda of: of.pairs.ged_unbiased(), "lower", label="GED {n}, unbiased", least=2, main=True
)
hm_iou = Metric("hm_iou_{n}", lambda of: of.pairs.hm_iou(), "higher", label="HM-IoU {n}", of="set", main=True)
dice = Metric("dice", lambda of: of.votes.dice_counts().numpy(), "higher", label="Dice", pixels=PIXELS, main=True)
dice_likeliest = Metric(
    "dice_likeliest",
    lambda of: likeliest_counts(of.samples, of.masks, of.raters).numpy(),
    "higher",
    label="Dice of the likeliest class",
    pixels=LIKELIEST_PIXELS,
    kind="exclusive",
    main=True,
)
soft_dice = Metric("soft_dice", lambda of: of.votes.soft_dice().numpy(), "higher", label="soft Dice")
d_max = Metric("d_max_{n}", lambda of: of.pairs.d_max(), "higher", label="D_max {n}", of="set")
ece = Metric("ece", lambda of: of.votes.ece().numpy(), "lower", label="ECE")
brier = Metric("brier", lambda of: of.votes.brier().numpy(), "lower", label="Brier")
nll = Metric("nll", lambda of: of.votes.nll().numpy(), "lower", "nats per pixel", "NLL")
OURS = (
    ged,
    ged_unbiased,
    hm_iou,
    dice,
    soft_dice,
    d_max,
    ece,
    brier,
    nll,
    Metric("finding_ged", lambda of: finding_ged(*finding_shares(of.pairs)), "lower", label="GED of finding"),
    Metric("d_sy", lambda of: of.pairs.d_sy(), "lower", label="d_SY"),
    Metric("d_ss", lambda of: of.pairs.d_ss_distinct(), "", label="d_SS"),
    Metric("d_yy", lambda of: of.pairs.d_yy, "", label="d_YY", of="raters"),
    Metric("d_raters", lambda of: of.pairs.d_raters, "", label="D", of="raters"),
    dice_likeliest,
    Metric("seconds", None, "", label="seconds per image"),
)
PLUGINS = Registry("berdiff.metrics", {})


@cache
def all_metrics() -> tuple[Metric, ...]:
    """Ours in the order of the tables, then those of other packages."""
    return (*OURS, *map(PLUGINS.load, PLUGINS.names()))


def find_metric(name: str) -> Metric:
    """The metric of a figure, with the whole label: ged_16_unbiased is "GED 16, unbiased", dice_slice_marked "Dice by
    slice where marked". InputError for an unknown one."""
    for metric in all_metrics():
        pattern = metric.name.replace("{n}", r"(?P<n>\d+)")
        if metric.pixels is not None:
            pattern += "_(?P<unit>slice|volume|patient)(?P<marked>_marked)?"
        if found := re.fullmatch(pattern, name):
            of = found.groupdict()
            label = metric.label.replace("{n}", of.get("n") or "")
            label += f" by {of['unit']}" if "unit" in of else ""
            label += " where marked" if of.get("marked") else ""
            return replace(metric, label=f"{label} ({metric.unit})" if metric.unit else label)
    known = ", ".join(metric.name for metric in all_metrics())
    raise InputError(f"metric {name!r} is unknown; there are {known}", "name")
