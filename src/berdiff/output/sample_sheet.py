"""The sheet of a validation: what the model samples for some cases in the middle of a training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from berdiff.data.input_spec import Kind
from berdiff.output.colours import legend
from berdiff.output.panels import targets_row
from berdiff.output.pictures import render, save_png


def sample_sheet(
    path: Path,
    images: Any,
    masks: Any,
    raters: Any,
    samples: Any,
    title: str,
    targets: Sequence[str] = (),
    kind: Kind = "independent",
) -> None:
    """One row per case: image `(N, C, H, W)`, masks `(N, R, K, H, W)` of its `raters` `(N,)`, samples
    `(N, n, K, H, W)` and their saliency; several targets together, each with its own saliency.

    Tensors on the CPU or arrays; as many cases as there are samples. The first channel is shown.
    """
    images, masks, raters, samples = (np.asarray(of) for of in (images, masks, raters, samples))
    names = targets or [f"target {k + 1}" for k in range(masks.shape[2])]
    shown = raters[: len(samples)]
    rows = [
        targets_row(images[i, :1], masks[i, : int(own)], int(shown.max()), samples[i], targets=names, kind=kind)
        for i, own in enumerate(shown)
    ]
    save_png(render(rows, title, columns_alike=True, key=legend(names)), path)
