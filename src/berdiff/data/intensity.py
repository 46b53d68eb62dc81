"""Values as stored -> [0, 1] by the rule of an `Intensity`: THE place, in preparing and in use alike."""

import numpy as np

from berdiff.data.describe import expect
from berdiff.data.input_spec import Intensity

# From air (-1000) to contrast-filled vessels and spongy bone (400), the usual range of lung-nodule work: lung (-870),
# ground glass (-600), fat (-100) and soft tissue (0 to 100) stay apart in 8 bits, at 5.5 HU per step.
LUNG_WINDOW = (-1000.0, 400.0)


def to_unit(
    values: np.ndarray,
    intensity: Intensity,
    what: str,
    *,
    planar: bool,
    ct: bool = False,
    colour: bool = False,
    stack: bool = False,
    rows: slice = slice(None),
    columns: slice = slice(None),
    slices: slice = slice(None),
    forced: bool = False,
) -> np.ndarray:
    """Values `(C, Z, H, W)` as stored -> float32 in [0, 1] by the rule, each channel by itself. What was scaled before
    stays: 8-bit pictures are divided by 255, floats in [0, 1] are kept; unless `forced`, as in preparing and by a
    user's window.

    `colour`: the channels of one file, scaled together; `stack`: slices without a place in space, as good as pictures;
    `rows`, `columns`: where minmax looks; `slices`: those that are wanted, the others may be 0.
    """
    rule, tails = intensity.rule, intensity.tails
    if not forced:
        if values.dtype == np.uint8 and planar and rule not in ("percentiles", "brain"):
            return values.astype(np.float32) / np.float32(255)
        if values.dtype.kind == "f" and not ct and values.min() >= 0 and values.max() <= 1:
            return values.astype(np.float32)
    if intensity.window is not None:
        return _clipped(values, *intensity.window)
    if rule == "minmax":
        return _by_extremes(values, rows, columns, slices)
    if rule == "brain":
        return np.stack([_brain(channel, tails, what, keep_unit=planar) for channel in values])
    if values.dtype in (np.uint8, np.uint16) and (rule == "dtype" or (rule == "auto" and (planar or stack))):
        return _clipped(values, 0, np.iinfo(values.dtype).max)
    windowed = "a model that names its window of Hounsfield units, or --window (such as -1000 400), for a CT"
    expect(not ct or rule != "auto", what, windowed, "neither", "conflict")
    return np.concatenate([_by_percentiles(part, tails, what) for part in ([values] if colour else values[:, None])])


def to_uint8(hu: np.ndarray, low: float, high: float) -> np.ndarray:
    """(...) uint8: 0 at `low` HU and below, 255 at `high` and above."""
    return np.rint(np.clip((hu - low) * (255 / (high - low)), 0, 255)).astype(np.uint8)


def _clipped(values: np.ndarray, low: float, high: float) -> np.ndarray:
    return np.clip((values.astype(np.float32) - np.float32(low)) / np.float32(high - low), 0, 1)


def _by_extremes(values: np.ndarray, rows: slice, columns: slice, slices: slice) -> np.ndarray:
    """From the minimum to the maximum in the field: each slice and channel by itself."""
    unit, wanted = np.zeros(values.shape, np.float32), values[:, slices].astype(np.float32)
    seen = wanted[..., rows, columns]
    low, high = seen.min((-2, -1), keepdims=True), seen.max((-2, -1), keepdims=True)
    span = np.where(high > low, high - low, 1)  # an even slice is all 0
    np.clip((wanted - low) / span, 0, 1, out=unit[:, slices])
    return unit


def _by_percentiles(values: np.ndarray, tails: float, what: str) -> np.ndarray:
    low, high = np.percentile(values, (tails, 100 - tails))
    expect(high > low, what, "values that differ", f"{low:g} at both percentiles (see --window)")
    return _clipped(values, low, high)


def _brain(voxels: np.ndarray, tails: float, what: str, keep_unit: bool) -> np.ndarray:
    """Between the percentiles of the voxels other than 0; the background stays 0. With `keep_unit`, values in [0, 1],
    such as those of exported slices, stay as they are."""
    if keep_unit and voxels.min() >= 0 and voxels.max() <= 1:
        low, high = 0.0, 1.0
    else:
        brain = voxels[voxels != 0]
        expect(brain.size, what, "a brain", "only zeros")
        low, high = np.percentile(brain, (tails, 100 - tails))
        expect(high > low, what, "intensities that differ", f"{low:g} all over the brain")
    unit = np.clip((voxels - np.float32(low)) / np.float32(high - low), 0, 1)
    return np.where(voxels != 0, unit, np.float32(0))
