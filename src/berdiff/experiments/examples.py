"""The paper's qualitative figures: image, readers, samples and saliency (BraTS: variance too) of some test slices."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from berdiff.data.augment import window
from berdiff.data.store import Store
from berdiff.errors import InputError
from berdiff.evaluation.core import draw
from berdiff.evaluation.evaluate import Settings, choose
from berdiff.evaluation.models import Opened
from berdiff.experiments.tables.scale import splits
from berdiff.files import whole_file

SHOWN = 4  # samples in the picture; saliency and variance are of all


@dataclass(frozen=True, eq=False)
class Example:
    """One slice, and what each model makes of it. The first channel and the first target are shown."""

    case: str
    image: np.ndarray  # (H, W)
    readers: np.ndarray  # (R, H, W)
    samples: dict[str, np.ndarray]  # model -> (n, H, W)


def make_examples(
    models: list[Opened], store: Store, cases: int = 2, n: int = 16, seed: int = 0, device: str = "cpu"
) -> list[Example]:
    """The first `cases` of the seeded order that evaluations take, each model by its own sampler."""
    if not models:
        raise InputError("MODEL: expected at least one run or model, found none")
    crops = {opened.crop for opened in models}
    if len(crops) > 1:
        raise InputError(f"MODEL: expected models of one size to stand side by side, found the crops {crops}")
    settings = Settings(split=splits(store)[1], samples=n, seed=seed, crop=models[0].crop, limit=cases, device=device)
    chosen = choose(store, settings)
    images, masks = store.read(chosen)
    size = store.size if settings.crop is None else (settings.crop, settings.crop)
    images, masks = (np.ascontiguousarray(window(array, size)) for array in (images, masks))
    names = [str(name) for name in store.cases.case[chosen]]
    drawn: dict[str, Tensor] = {}
    for opened in models:
        name = opened.name if opened.name not in drawn else f"{opened.name} ({len(drawn) + 1})"
        drawn[name] = draw(opened.segmenter, torch.from_numpy(images), names, n, None, seed, device)
    return [
        Example(
            case,
            images[i, 0],
            masks[i, : int(store.cases.raters[chosen[i]]), 0],
            {name: samples[i, :, 0].numpy() for name, samples in drawn.items()},
        )
        for i, case in enumerate(names)
    ]


def draw_examples(examples: list[Example], path: Path, caption: str, variance: bool = False) -> None:
    """A row for each slice and model."""
    from matplotlib.figure import Figure  # no window, no global state

    readers = max(len(example.readers) for example in examples)
    shown = min(SHOWN, *(len(of) for example in examples for of in example.samples.values()))
    titles = ["image", *(f"reader {r + 1}" for r in range(readers)), *(f"sample {s + 1}" for s in range(shown))]
    titles += ["saliency", "variance"] if variance else ["saliency"]
    lines = [(example, name) for example in examples for name in example.samples]
    figure = Figure(figsize=(1.25 * len(titles) + 0.6, 1.35 * len(lines) + 0.9), layout="constrained")
    axes = figure.subplots(len(lines), len(titles), squeeze=False)
    for row, (example, name) in zip(axes, lines, strict=True):
        samples = example.samples[name]
        planes = [example.image, *example.readers, *[None] * (readers - len(example.readers)), *samples[:shown]]
        planes += [samples.mean(0), samples.var(0)] if variance else [samples.mean(0)]
        for ax, plane, title in zip(row, planes, titles, strict=True):
            ax.set(xticks=[], yticks=[])
            ax.set_frame_on(False)
            if plane is not None:
                most = 0.25 if title == "variance" else 1  # of a coin, the largest there is
                colours = "magma" if title in ("saliency", "variance") else "gray"
                ax.imshow(plane, cmap=colours, vmin=0, vmax=most, interpolation="nearest")
        row[0].set_ylabel(name, fontsize=8, parse_math=False)
    for ax, title in zip(axes[0], titles, strict=True):
        ax.set_title(title, fontsize=8)
    figure.supxlabel(caption, fontsize=7, parse_math=False, wrap=True)
    with whole_file(path) as part:
        figure.savefig(part, format="png", dpi=120)


def examples_caption(examples: list[Example], store: Store, n: int) -> str:
    names, split = "; ".join(example.case for example in examples), splits(store)[1]
    notes = "".join(f" {note}." for note in store.notes)
    return f"{store.manifest.source}, split {split}, slices {names}; saliency is the mean of {n} samples.{notes}"
