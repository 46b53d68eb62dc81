"""The sheet of a validation: what the model samples for some cases in the middle of a training."""

from pathlib import Path
from typing import Any

import numpy as np

from berdiff.output.panels import case_row, render, save_png


def sample_sheet(path: Path, images: Any, masks: Any, raters: Any, samples: Any, title: str) -> None:
    """One row per case: image `(N, C, H, W)`, masks `(N, R, K, H, W)` of its `raters` `(N,)`, samples
    `(N, n, K, H, W)` and their saliency. The first channel and the first target are shown.

    Tensors on the CPU or arrays; as many cases as there are samples.
    """
    images, masks, raters, samples = (np.asarray(of) for of in (images, masks, raters, samples))
    shown = raters[: len(samples)]
    rows = [
        case_row(images[i, :1], masks[i, : int(own), 0], int(shown.max()), samples[i, :, 0])
        for i, own in enumerate(shown)
    ]
    save_png(render(rows, title, columns_alike=True), path)
