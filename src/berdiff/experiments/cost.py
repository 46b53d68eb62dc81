"""What sampling costs: seconds over the number of masks and over the steps, measured side by side in one run.

Beside it stands one pass of the paper's network, of which its way needs one for every step of every mask.
"""

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import torch

from berdiff.errors import InputError
from berdiff.experiments.side_by_side import durations
from berdiff.files import whole_file
from berdiff.inference.model import Model
from berdiff.methods.sampler import choose_sampler
from berdiff.networks.build import make_network
from berdiff.networks.paper import PRESETS

matplotlib.use("Agg")
import matplotlib.pyplot as plt

SAMPLES, STEPS = 16, 10  # the paper's: held while the other one varies
PAPER = "paper-128"


@dataclass(frozen=True)
class Point:
    """Encoding included: `samples` masks of one image in `steps` steps."""

    samples: int
    steps: int
    seconds: float


@dataclass(frozen=True)
class Cost:
    model: str
    size: tuple[int, int]
    points: tuple[Point, ...]
    paper_pass: float | None  # seconds

    def at(self, samples: int, steps: int) -> float:
        return next(p.seconds for p in self.points if (p.samples, p.steps) == (samples, steps))

    def over_samples(self) -> list[Point]:
        return sorted((p for p in self.points if p.steps == STEPS), key=lambda p: p.samples)

    def over_steps(self) -> list[Point]:
        return sorted((p for p in self.points if p.samples == SAMPLES), key=lambda p: p.steps)


def measure(
    model: Model,
    samples: Sequence[int],
    steps: Sequence[int],
    paper_pass: bool = True,
    repeats: int = 3,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> Cost:
    """Each of `samples` in 10 steps, and 16 masks in each of `steps`: the median of `repeats`, after a warm-up."""
    for option, values in (("samples", samples), ("steps", steps), ("repeats", (repeats,))):
        if not values or min(values) < 1:
            raise InputError(f"--{option}: expected whole numbers of at least 1, found {list(values)}")
    pairs = sorted({(n, STEPS) for n in (*samples, SAMPLES)} | {(SAMPLES, k) for k in steps})
    image = torch.rand(1, len(model.channels), *model.size, generator=torch.Generator().manual_seed(0))
    runs = [_sampling(model, image.to(model.device), n, k) for n, k in pairs]
    if paper_pass:
        runs.append(_paper_pass(image[:, :1]))
    seconds = durations(*runs, repeats=repeats, advance=advance)
    points = tuple(Point(n, k, s) for (n, k), s in zip(pairs, seconds[: len(pairs)], strict=True))
    return Cost(model.name, model.size, points, seconds[-1] if paper_pass else None)


def _sampling(model: Model, image: torch.Tensor, n: int, steps: int) -> Callable[[], object]:
    sampler = choose_sampler(model.segmenter, steps)
    # `.cpu()` waits for an accelerator
    return lambda: model.segmenter.sample(image, n, torch.Generator(image.device).manual_seed(0), sampler).cpu()


def _paper_pass(image: torch.Tensor) -> Callable[[], object]:
    """One mask, one step of the paper's network on the CPU, as `methods.folder.load` prepares it. image (1, 1, H, W)"""
    stride, (H, W) = PRESETS[PAPER].stride, image.shape[-2:]
    if H % stride or W % stride:
        raise InputError(
            f"--size: expected multiples of {stride} for the paper's network, or --no-paper-pass, found {H} {W}"
        )
    network: Any = make_network(PAPER).eval()
    network.to(memory_format=torch.channels_last)
    y_t = torch.zeros(1, 1, 1, H, W)

    @torch.no_grad()
    def run() -> None:
        network.denoise(y_t, torch.tensor([[500]]), network.encode(image))

    return run


def write_cost(cost: Cost, out: Path) -> None:
    """cost.csv and cost.png in `out`."""
    with whole_file(out / "cost.csv") as part, part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["model", "height", "width", "samples", "steps", "seconds", "paper_passes"])
        for p in cost.points:
            passes = "" if cost.paper_pass is None else f"{p.seconds / cost.paper_pass:.4g}"
            writer.writerow([cost.model, *cost.size, p.samples, p.steps, f"{p.seconds:.4g}", passes])
    _draw(cost, out / "cost.png")


def _draw(cost: Cost, path: Path) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    for axes, points, name in ((left, cost.over_samples(), "samples"), (right, cost.over_steps(), "steps")):
        at = [getattr(p, name) for p in points]
        axes.loglog(at, [p.seconds for p in points], "o-", label=cost.model)
        axes.set_xticks(at, map(str, at))
        axes.set_xticks([], minor=True)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.grid(alpha=0.3)
        if cost.paper_pass is not None:
            axes.axhline(cost.paper_pass, color="k", linestyle=":", label="one pass of the paper's 85.6 M network")
    H, W = cost.size
    left.set(title=f"{STEPS} steps", xlabel="masks of one image", ylabel=f"seconds for one {H}x{W} image")
    right.set(title=f"{SAMPLES} masks", xlabel="steps")
    left.legend()
    with whole_file(path) as part:
        figure.savefig(part, format="png", dpi=110)
    plt.close(figure)
