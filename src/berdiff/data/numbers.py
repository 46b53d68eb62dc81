"""Values that the rest can count with: finite, and small enough that their differences are."""

import numpy as np

from berdiff.data.describe import expect
from berdiff.data.input_spec import LARGEST

MAX_MM = 1e6  # of a pixel or voxel, and from it to the origin: a kilometre


def finite(values: np.ndarray, where: object) -> np.ndarray:
    """The same array, floats in 32 bits; NaN, infinity and what does not fit are refused."""
    if values.dtype.kind != "f" or not values.size:
        return values
    low, high = values.min(), values.max()  # NaN goes through both
    expect(np.isfinite([low, high]).all(), where, "finite values", "NaN or infinity")
    expect(max(-low, high) <= LARGEST, where, "values that fit into 32 bits", f"{low:g} to {high:g}")
    return values.astype(np.float32, copy=False)
