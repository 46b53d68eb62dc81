"""A contact sheet: some cases of a store as a picture, so that one can see what one has."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from berdiff.data.store import Store
from berdiff.output.colours import legend
from berdiff.output.panels import targets_row
from berdiff.output.pictures import render, save_png


def contact_sheet(store: Store, indices: Sequence[int] | np.ndarray, path: str | Path) -> None:
    """One row per case: the image's channels, each rater with all targets, and for each target how many agree."""
    indices = np.asarray(indices)
    images, masks = store.read(indices)
    own = store.cases.raters[indices]
    of_store = {"channels": store.channels, "targets": store.targets, "kind": store.input_spec.kind}
    rows = [targets_row(images[i], masks[i, :count], int(own.max()), **of_store) for i, count in enumerate(own)]
    labels = [f"{store.cases.case[i]}\n{store.cases.split[i]}".replace("/", "/\n", 1) for i in indices]
    kind = [f"{store.input_spec.kind} targets"] if len(store.targets) > 1 else []
    title = "; ".join((store.manifest.source, *kind, *store.notes))
    save_png(render(rows, title, labels=labels, columns_alike=True, key=legend(store.targets)), path)
