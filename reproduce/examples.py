"""The paper's qualitative figures: image, raters, samples and saliency (BraTS: variance too) of some test slices."""

from collections.abc import Callable, Sequence
from pathlib import Path

from berdiff.data.store import Store
from berdiff.data.subset import choose_cases
from berdiff.errors import InputError
from berdiff.inference.model import Model
from berdiff.inference.result import Result
from berdiff.inference.settings import SegmentSettings
from berdiff.output.colours import legend
from berdiff.output.panels import targets_row
from berdiff.output.pictures import render, save_png
from berdiff.output.views import clearest_channel
from reproduce.tables.scale import splits

Examples = dict[str, list[Result]]
"""model -> its results, each model of the same slices"""


def make_examples(
    models: Sequence[Model],
    store: Store,
    cases: int = 2,
    samples: int = 16,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Examples:
    """Marked slices of different patients, the first of one seeded order; each model by its own sampler."""
    if not models:
        raise InputError("MODEL: expected at least one run or model, found none")
    if len(sizes := {model.size for model in models}) > 1:
        raise InputError(f"MODEL: expected models of one size to stand side by side, found the sizes {sizes}")
    split = splits(store)[1]
    chosen = choose_cases(store, split, cases, seed, one_per_patient=True, marked_by=1, option="--cases")
    examples: Examples = {}
    total = len(models) * len(chosen)
    for model in models:
        before = len(examples) * len(chosen)
        name = model.name if model.name not in examples else f"{model.name} ({len(examples) + 1})"
        examples[name] = model.case_results(
            store, chosen, SegmentSettings(samples, seed), lambda done, _, before=before: progress(before + done, total)
        )
    return examples


def plot_examples(examples: Examples, path: Path, store: Store, samples: int, variance: bool = False) -> None:
    """One row per slice and model: the channel that shows the first slice's masks best, and all targets together."""
    each = list(zip(*examples.values(), strict=True))  # slice by slice, of each model
    first = each[0][0]
    channel = 0 if first.raters is None else clearest_channel(first.image, first.raters[(..., *first.grid.box)])
    named = ("image",) if len(store.channels) == 1 else (store.channels[channel],)
    raters = max(len(result.raters) for result, *_ in each if result.raters is not None)
    rows, labels = [], []
    for results in each:
        for name, result in zip(examples, results, strict=True):
            assert result.raters is not None  # a store's case has them
            masks = result.raters[(..., *result.grid.box)]
            about = {"targets": result.targets, "kind": result.kind, "variance": variance}
            rows.append(targets_row(result.image[[channel]], masks, raters, result.samples, named, **about))
            labels.append(name)
    names, split = "; ".join(result.name for result, *_ in each), splits(store)[1]
    notes = "".join(f" {note}." for note in store.notes)
    about = f"{store.manifest.source}, split {split}, slices {names}; saliency is the mean of {samples} samples.{notes}"
    save_png(render(rows, "", about, labels, columns_alike=True, key=legend(first.targets)), path)
