"""The values of a file as the network knows them: in [0, 1], by the rule its training data was made with."""

import dataclasses
from typing import Any, Literal

import numpy as np

from berdiff.data.sources.brats import intensity_limits, scaled
from berdiff.errors import InputError
from berdiff.inference.region import Region

# Without a window: by the type for pictures and percentiles for the rest; the range of the type; percentiles; those of
# the voxels other than 0; or, as the public LIDC crops are packed, from the least to the greatest value of each slice
# in a field around the region of interest.
Scale = Literal["auto", "dtype", "percentiles", "brain", "minmax"]


@dataclasses.dataclass(frozen=True)
class Intensity:
    """How values become [0, 1]. 8-bit pictures fill their range and are always divided by 255, unless `forced`."""

    window: tuple[float, float] | None = None  # the values that become 0 and 1
    scale: Scale = "auto"
    tails: float = 1.0  # percent to clip at each end, for percentiles
    field: int | None = None  # pixels a side, for minmax; None: the whole slice
    region: Region = dataclasses.field(default_factory=Region)  # the region of interest that was asked for
    forced: bool = False  # the window was asked for, and holds whatever the file is

    @classmethod
    def of(
        cls, about: dict[str, Any], window: tuple[float, float] | None = None, region: Region | None = None
    ) -> "Intensity":
        """What a model's `about` says, or the window that the user asked for."""
        if window is not None:
            if not (np.isfinite(window).all() and window[0] < window[1]):
                raise InputError(f"--window: expected a lower and a higher value, found {window[0]:g} {window[1]:g}")
            return cls(window, forced=True)
        given = about.get("window")
        return cls(
            tuple(given) if given else None,
            about.get("scale") or "auto",
            about.get("tails", 1.0),
            about.get("field"),
            region=region or Region(),
        )


def to_unit(values: np.ndarray, rule: Intensity, what: str, planar: bool, ct: bool = False) -> np.ndarray:
    """values `(C, Z, H, W)` as stored -> float32 in [0, 1], each channel by itself; `what` names it in an error."""
    if rule.forced and rule.window:
        return _clipped(values, *rule.window)
    if values.dtype == np.uint8 and planar and rule.scale in ("auto", "dtype", "minmax"):
        return values.astype(np.float32) / np.float32(255)
    if values.dtype.kind == "f" and not ct and values.min() >= 0 and values.max() <= 1:
        return values.astype(np.float32)  # it is in [0, 1] already
    if rule.window is not None:
        return _clipped(values, *rule.window)
    if rule.scale == "minmax":
        return _by_extremes(values, rule, what, planar)
    if rule.scale == "brain":
        limits = [intensity_limits(channel, rule.tails, what, keep_unit=planar) for channel in values]
        return np.stack([scaled(channel, *of) for channel, of in zip(values, limits, strict=True)])
    unsigned = values.dtype in (np.uint8, np.uint16)
    if unsigned and (rule.scale == "dtype" or (rule.scale == "auto" and planar)):
        return _clipped(values, 0, np.iinfo(values.dtype).max)
    if ct and rule.scale == "auto":
        raise InputError(
            f"{what}: expected a model that names its window of Hounsfield units, or --window (such as -1000 400), "
            "for a CT, found neither"
        )
    return np.stack([_by_percentiles(channel, rule.tails, what) for channel in values])


def _by_extremes(values: np.ndarray, rule: Intensity, what: str, planar: bool) -> np.ndarray:
    """From the least to the greatest value in the field: each slice and channel by itself."""
    depth, height, width = values.shape[1:]
    side = rule.field or max(height, width)
    size = (min(side, height), min(side, width))
    shape = (height, width) if planar else (depth, height, width)
    rows, columns = (slice(*of) for of in rule.region.ranges(shape, size, what)[-2:])
    seen = values[..., rows, columns].astype(np.float32)
    low, high = (of(seen, axis=(-2, -1), keepdims=True) for of in (np.min, np.max))
    span = np.where(high > low, high - low, 1)  # an even slice is all 0
    return np.clip((values.astype(np.float32) - low) / span, 0, 1)


def _by_percentiles(channel: np.ndarray, tails: float, what: str) -> np.ndarray:
    low, high = np.percentile(channel, (tails, 100 - tails))
    if high <= low:
        raise InputError(f"{what}: expected values that differ, found {low:g} at both percentiles (see --window)")
    return _clipped(channel, low, high)


def _clipped(values: np.ndarray, low: float, high: float) -> np.ndarray:
    return np.clip((values.astype(np.float32) - np.float32(low)) / np.float32(high - low), 0, 1)
