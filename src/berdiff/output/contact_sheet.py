"""A contact sheet: some cases of a store as a picture, so that one can see what one has."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from berdiff.data.store import Store
from berdiff.output.panels import case_row, render, save_png


def contact_sheet(store: Store, indices: Sequence[int] | np.ndarray, path: str | Path) -> None:
    """One row per case and target: the image's channels, each rater, and how many of the raters agree."""
    indices = np.asarray(indices)
    images, masks = store.read(indices)
    own = store.cases.raters[indices]
    rows, labels = [], []
    for i, index in enumerate(indices):
        words = [str(store.cases.case[index]).replace("/", "/\n", 1), str(store.cases.split[index])]
        for k, target in enumerate(store.targets):
            rows.append(case_row(images[i], masks[i, : own[i], k], int(own.max()), channels=store.channels))
            labels.append("\n".join([*words, target] if len(store.targets) > 1 else words))
    title = "; ".join((store.manifest.source, *store.notes))
    save_png(render(rows, title, labels=labels, columns_alike=True), path)
