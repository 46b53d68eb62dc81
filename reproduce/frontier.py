"""What a figure of merit costs: GED or Dice against the seconds for a set of masks, one point per evaluation.

The seconds in an evaluation's folder are of the day it ran: of whatever else the machine did then, and per image of a
batch. So where the models are at hand, their seconds are measured here, in turns, on one image, of which each model
sees what it saw in its evaluation, in the same precision. Of rows that a table keeps without weights, those of the same
networks with fresh weights are; else the recorded ones are taken. The figure reports which.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from textwrap import fill
from typing import Any, Literal

import numpy as np
import torch

from berdiff import schema
from berdiff.data.case import Progress
from berdiff.data.describe import expect, present
from berdiff.data.input_spec import size_of
from berdiff.data.store import Store
from berdiff.device import choose_precision
from berdiff.diffusion.sampler import Sampler
from berdiff.errors import InputError
from berdiff.evaluation.compare import Evaluation, load
from berdiff.evaluation.core import seen_by
from berdiff.evaluation.evaluate import data_sha256
from berdiff.evaluation.evaluation_folder import read_result
from berdiff.evaluation.per_case import TIME, csv_text
from berdiff.files import write_text
from berdiff.inference.model import Model
from berdiff.inference.sets import choose_set, set_rng
from berdiff.metrics import find_metric
from reproduce.picture import picture
from reproduce.point_labels import name_points
from reproduce.side_by_side import rounds, see_every_mask
from reproduce.tables.kept import read_trained
from reproduce.untrained import untrained

Whose = Literal["recorded", "measured", "fresh"]
"""Whose seconds: the evaluations' own; measured here on their models; on the same networks with fresh weights."""
ABOUT: dict[Whose, str] = {
    "recorded": "Seconds per image as each evaluation recorded them, on whatever else its machine did; not side by "
    "side.",
    "measured": "Seconds for {masks} masks of one image, measured side by side.",
    "fresh": "Seconds for {masks} masks of one image, measured side by side on fresh weights: of these methods only "
    "PixelSeg's depend on the weights.",
}
SAME = ("data_sha256", "split", "size")  # what all points must share to be compared, beside the cases


@dataclass(frozen=True)
class Point:
    """One evaluation."""

    name: str
    value: float
    interval: tuple[float, float] | None  # None: of one patient there is none
    seconds: float  # for the masks of one image: a median
    fastest: float
    slowest: float


@dataclass(frozen=True)
class Frontier:
    metric: str
    masks: int
    points: list[Point]
    seconds: Whose
    data: str = ""  # what was evaluated, in words

    def about(self) -> str:
        return ABOUT[self.seconds].format(masks=self.masks)

    def better(self, a: Point, b: Point) -> bool:
        """Whether a is at least as good and as cheap as b, and one of them strictly."""
        gain = a.value - b.value if find_metric(self.metric).direction == "higher" else b.value - a.value
        return gain >= 0 and a.seconds <= b.seconds and (gain > 0 or a.seconds < b.seconds)

    def best(self) -> list[Point]:
        """The points that none is both better and cheaper than, from cheap to dear."""
        best = [point for point in self.points if not any(self.better(other, point) for other in self.points)]
        return sorted(best, key=lambda point: point.seconds)


def make_frontier(
    folders: Sequence[Path],
    models: Sequence[Model] = (),
    metric: str = "ged_16",
    repeats: int = 3,
    progress: Progress = lambda done, total: None,
    fresh: bool = False,
) -> Frontier:
    """`models`: those of the evaluations, in their order, whose seconds are then measured; or none. `fresh`: their
    weights are (`fresh_models`)."""
    expect(folders, "EVALUATION", "at least one finished evaluation")
    expect(repeats >= 1, "--repeats", "at least 1", repeats)
    names = _names(folders)
    evaluations = [load(folder, name) for folder, name in zip(folders, names, strict=True)]
    figures = [_figure(evaluation, metric) for evaluation in evaluations]
    for evaluation in evaluations[1:]:
        _refuse_other_data(evaluations[0], evaluation)
    masks = {evaluation.result["settings"]["samples"] for evaluation in evaluations}
    expect(len(masks) == 1, "EVALUATION", "evaluations of the same number of samples", sorted(masks))
    if models:
        expect(len(models) == len(folders), "--models", f"one for each of {len(folders)} evaluations", len(models))
        for model, evaluation in zip(models, evaluations, strict=True):
            if not fresh:
                _refuse_other_weights(model, evaluation)
        runs = [_drawing(model, evaluation) for model, evaluation in zip(models, evaluations, strict=True)]
        seconds = rounds(*runs, repeats=repeats, progress=progress)
    else:
        seconds = [evaluation.columns[TIME].tolist() for evaluation in evaluations]
    points = [
        Point(evaluation.name, *figure, median(each), *_spread(each))
        for evaluation, figure, each in zip(evaluations, figures, seconds, strict=True)
    ]
    whose = "recorded" if not models else "fresh" if fresh else "measured"
    return Frontier(metric, masks.pop(), points, whose, _data(evaluations[0].result))


def _names(folders: Sequence[Path]) -> list[str]:
    """The last parts of their paths, where these differ; without a seed that all rows of a table have."""
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < len(names):
        return list(map(str, folders))
    return [name.removesuffix("-seed-0") for name in names] if all(n.endswith("-seed-0") for n in names) else names


def fresh_models(folders: Sequence[Path], store: Store, device: str) -> list[Model]:
    """The models of rows that a table has kept without weights, with fresh ones; `store` is the table's data."""
    for folder in folders:
        same = read_result(folder)["data_sha256"] == data_sha256(store)
        expect(same, "--data", f"the data of {folder}", f"other data, {store.address}", "changed")
    return [untrained(read_trained(folder)[1], store, str(folder), device) for folder in folders]


def _figure(evaluation: Evaluation, metric: str) -> tuple[float, tuple[float, float] | None]:
    """(value, its interval)."""
    found: dict[str, dict[str, float | None]] = evaluation.result["metrics"]
    known = [name for name in found if find_metric(name).direction]
    expect(metric in known, "--metric", f"one of {', '.join(known)} of {evaluation.name}", metric)
    value, low, high = (found[metric][name] for name in ("value", "low", "high"))
    return present(value, evaluation.name, f"a value of {metric}"), None if low is None or high is None else (low, high)


def _refuse_other_data(first: Evaluation, other: Evaluation) -> None:
    for name in SAME:
        a, b = ({**each.result, **each.result["settings"], **each.result["data"]}.get(name) for each in (first, other))
        expect(a == b, other.name, f"the {name.replace('_', ' ')} of {first.name}, {a}", b)
    a, b = (set(each.columns["case"]) for each in (first, other))  # as many by another --seed are other ones
    expect(a == b, other.name, f"the {len(a)} cases of {first.name}", f"{len(b)} cases, {len(a & b)} of them the same")


def _data(result: dict[str, Any]) -> str:
    data, split = result["data"], result["settings"]["split"]
    notes = "".join(f" {note}." for note in data["notes"])
    return f"{data['cases']} cases of {data['patients']} patients, split {split} of {data['source']}.{notes}"


def _refuse_other_weights(model: Model, evaluation: Evaluation) -> None:
    if model.segmenter.weights_sha256 != evaluation.result["weights_sha256"]:
        wanted = f"the model that {evaluation.name} evaluated"
        raise InputError(f"--models: expected {wanted}, found other weights in {model.name}", "changed")


def _drawing(model: Model, evaluation: Evaluation) -> Callable[[], object]:
    """Draw the masks of one image as the evaluation did: by its sampler, all the pool that a set is chosen from, in its
    precision, of the centre that it saw, by its tiles."""
    name, settings = evaluation.name, evaluation.result["settings"]
    # compiling would change the network that was handed in
    expect(not settings.get("compile"), name, "an evaluation without --compile, to measure its seconds", "one with it")
    precision = choose_precision(model.device, settings.get("precision", "fp32"), name)
    segmenter = model.segmenter.with_changes(precision=precision)
    sampler = None if settings["sampler"] is None else schema.parse(Sampler, settings["sampler"], str)
    n, rule, drawn = settings["samples"], settings["set"], settings["pool"]
    seeded = torch.Generator().manual_seed(0)
    size = present(evaluation.result["data"].get("size"), name, "the size of its images, to measure its seconds")
    crop = None if settings["crop"] is None else size_of(settings["crop"], len(size), "--crop")
    whole = torch.rand(1, len(model.input_spec.channels), *size, generator=seeded)
    image, tile = seen_by(segmenter, whole.to(model.device), crop)

    def run() -> None:
        generator = torch.Generator(model.device).manual_seed(0)
        pool = segmenter.sample(image, drawn, generator, sampler, see_every_mask, tile).cpu()
        choose_set(pool[0].numpy(), n, rule, set_rng(0, "image"))

    return run


def _spread(seconds: Sequence[float]) -> tuple[float, float]:
    """All of a few measurements, the middle half of many."""
    low, high = (0.0, 1.0) if len(seconds) < 10 else (0.25, 0.75)
    return float(np.quantile(seconds, low)), float(np.quantile(seconds, high))


def write_frontier(frontier: Frontier, out: Path) -> str:
    """frontier.csv and frontier.png in `out`; returns the points as lines, from cheap to dear."""
    best = frontier.best()
    rows: list[list[Any]] = [["evaluation", frontier.metric, "low", "high", "seconds", "fastest", "slowest", "best"]]
    lines, label = [], find_metric(frontier.metric).label
    for point in sorted(frontier.points, key=lambda point: point.seconds):
        times = [f"{value:.4g}" for value in (point.seconds, point.fastest, point.slowest)]
        interval = point.interval or ("", "")
        rows.append([point.name, point.value, *interval, *times, "yes" if point in best else "no"])
        beaten_by = next((other.name for other in best if frontier.better(other, point)), None)
        note = "" if beaten_by is None else f"; {beaten_by} is cheaper and better"
        lines.append(f"{point.name}: {label} {point.value:.4f}, {point.seconds:.3g} s{note}")
    write_text(out / "frontier.csv", csv_text(rows))
    _plot(frontier, out / "frontier.png")
    return "\n".join([*lines, frontier.about()])


def _plot(frontier: Frontier, path: Path) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    with picture(path, 8, 5.2) as figure:
        axes, best = figure.subplots(), frontier.best()
        for point in frontier.points:
            colour = "tab:blue" if point in best else "tab:gray"
            axes.plot(point.seconds, point.value, "o", color=colour)
            axes.plot([point.fastest, point.slowest], [point.value] * 2, color=colour, linewidth=1)
            if point.interval is not None:
                axes.plot([point.seconds] * 2, point.interval, color=colour, linewidth=1)
        steps = [(point.seconds, point.value) for point in best]
        axes.step(
            *zip(*steps, strict=True), where="post", color="tab:blue", linestyle=":", label="none is cheaper and better"
        )
        axes.set(
            xscale="log",
            xlabel=f"seconds for {frontier.masks} masks of one image",
            ylabel=f"{find_metric(frontier.metric).label} ({find_metric(frontier.metric).direction} is better)",
        )
        axes.margins(x=0.18)
        low, high = axes.get_xlim()
        if high > 10 * low:
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_minor_formatter(NullFormatter())
        else:  # a narrow range has no other ticks
            axes.xaxis.set_minor_formatter("{x:g}")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
        bars = "Bars: 95 % interval over patients, and the spread of the seconds."
        figure.supxlabel(fill(f"{frontier.data} {frontier.about()} {bars}", 130), fontsize=7, parse_math=False)
        others = [point for point in frontier.points if point not in best]
        named = [(best, "tab:blue"), (others, "dimgray")]
        name_points(axes, [(p.seconds, p.value, p.name, colour) for points, colour in named for p in points])
