"""From Hounsfield units to grey."""

import numpy as np

# From air (-1000) to contrast-filled vessels and spongy bone (400), the usual range of lung-nodule work: lung (-870),
# ground glass (-600), fat (-100) and soft tissue (0 to 100) stay apart in 8 bits, at 5.5 HU a step.
LUNG_WINDOW = (-1000.0, 400.0)


def to_uint8(hu: np.ndarray, low: float, high: float) -> np.ndarray:
    """(...) uint8: 0 at `low` HU and below, 255 at `high` and above."""
    return np.rint(np.clip((hu - low) * (255 / (high - low)), 0, 255)).astype(np.uint8)
