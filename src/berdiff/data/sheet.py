"""A contact sheet: some cases of a store as a picture, so that one can see what one has."""

from pathlib import Path

import numpy as np

from berdiff.data.store import Store
from berdiff.errors import InputError
from berdiff.files import whole_file


def choose(store: Store, split: str, count: int, seed: int) -> np.ndarray:
    """Up to `count` cases of a split, of different patients while there are enough, in the store's order."""
    indices = np.random.default_rng(seed).permutation(store.indices(split))
    if not len(indices) or count < 1:
        raise InputError(f"{store.address}: expected cases in the split {split} to show, found {len(indices)}")
    _, firsts = np.unique(store.cases.patient[indices].astype(str), return_index=True)
    first = np.zeros(len(indices), bool)
    first[firsts] = True
    return np.sort(np.concatenate([indices[first], indices[~first]])[:count])


def contact_sheet(store: Store, indices: np.ndarray, path: str | Path) -> None:
    """A row a case and target: the image's channels, each reader, and how many of the readers agree."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    images, masks = store.read(indices)
    n, channels, readers, targets = len(images), len(store.channels), store.raters, len(store.targets)
    columns = channels + readers + 1
    figure = Figure(figsize=(1.35 * columns, 1.35 * n * targets + 0.9), layout="constrained")
    figure.suptitle("; ".join((store.manifest.source, *store.notes)), fontsize=10)
    axes = figure.subplots(n * targets, columns, squeeze=False)
    for ax in axes.flat:
        ax.set_xticks([])
        ax.set_yticks([])
    titles = [*store.channels, *(f"reader {r + 1}" for r in range(readers)), "agreement"]
    for ax, title in zip(axes[0], titles, strict=True):
        ax.set_title(title, fontsize=8)
    for row, (i, k) in enumerate((i, k) for i in range(n) for k in range(targets)):
        own = int(store.cases.raters[indices[i]])
        what = [str(store.cases.case[indices[i]]).replace("/", "/\n", 1), str(store.cases.split[indices[i]])]
        axes[row, 0].set_ylabel("\n".join([*what, store.targets[k]] if targets > 1 else what), fontsize=5)
        for c in range(channels):
            axes[row, c].imshow(images[i, c], cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        for r in range(own):
            axes[row, channels + r].imshow(masks[i, r, k], cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        for r in range(own, readers):  # no such reader: not the same as one who saw nothing
            axes[row, channels + r].axis("off")
        agreement = masks[i, :own, k].mean(0)
        axes[row, -1].imshow(agreement, cmap="viridis", vmin=0, vmax=1, interpolation="nearest")
    with whole_file(path) as part:
        FigureCanvasAgg(figure).print_figure(part, dpi=120, format="png")
