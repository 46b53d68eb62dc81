"""What sampling costs: seconds over the number of masks and over the steps, measured side by side in one run.

Beside it one pass of the paper's network, of which its method needs one for every step of every mask, and one of the
plain U-net: the model's own network asked once, without any diffusion.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from berdiff.data.case import Progress
from berdiff.data.describe import expect
from berdiff.evaluation.per_case import csv_text
from berdiff.files import write_text
from berdiff.inference.model import Model
from berdiff.methods.families.deterministic import Deterministic
from berdiff.methods.families.diffusion import DiffusionSegmenter
from berdiff.methods.sampling import choose_sampler
from berdiff.methods.unet import UNet
from berdiff.networks.build import make_network
from reproduce.picture import picture
from reproduce.side_by_side import durations, see_every_mask

SAMPLES, STEPS = 16, 10  # the paper's: held while the other one varies
PAPER = "paper-128"


@dataclass(frozen=True)
class SamplingCost:
    model: Model
    seconds: dict[tuple[int, int], float]  # (masks of one image, steps) -> its encoding included
    paper_pass: float | None  # seconds
    unet_pass: float | None  # seconds; None where the method is no diffusion


def measure(
    model: Model,
    samples: Sequence[int],
    steps: Sequence[int],
    paper_pass: bool = True,
    repeats: int = 3,
    progress: Progress = lambda done, total: None,
) -> SamplingCost:
    """Each of `samples` in 10 steps, and 16 masks in each of `steps`: the median of `repeats`, after a warm-up."""
    for option, values in (("--samples", samples), ("--steps", steps), ("--repeats", (repeats,))):
        expect(values and min(values) >= 1, option, "whole numbers of at least 1", list(values))
    pairs = sorted({(n, STEPS) for n in (*samples, SAMPLES)} | {(SAMPLES, k) for k in steps})
    channels, seeded = len(model.input_spec.channels), torch.Generator().manual_seed(0)
    image = torch.rand(1, channels, *model.size, generator=seeded).to(model.device)
    runs = [_sampling(model, image, n, k) for n, k in pairs]
    passes = {
        "paper_pass": _paper_pass(image[:, :1]) if paper_pass else None,
        "unet_pass": _unet_pass(model, image) if isinstance(model.segmenter, DiffusionSegmenter) else None,
    }
    runs += [run for run in passes.values() if run is not None]
    seconds = iter(durations(*runs, repeats=repeats, progress=progress))
    of_pairs = {pair: next(seconds) for pair in pairs}
    return SamplingCost(model, of_pairs, **{name: run and next(seconds) for name, run in passes.items()})


def _sampling(model: Model, image: Tensor, n: int, steps: int) -> Callable[[], object]:
    sampler = choose_sampler(model.segmenter, {"steps": steps})

    def run() -> Tensor:
        generator = torch.Generator(image.device).manual_seed(0)
        return model.segmenter.sample(image, n, generator, sampler, see_every_mask).cpu()  # waits for an accelerator

    return run


def _paper_pass(image: Tensor) -> Callable[[], object]:
    """One mask, one step of the paper's network, as `methods.folder.load` prepares it. image (1, 1, H, W)"""
    network, (H, W) = make_network(PAPER).eval(), image.shape[-2:]
    fitting = f"multiples of {network.stride} for the paper's network, or --no-paper-pass"
    expect(H % network.stride == W % network.stride == 0, "--size", fitting, f"{H} {W}")
    network.to(image.device, memory_format=torch.channels_last)  # pyright: ignore
    y_t, t = image.new_zeros(1, 1, 1, H, W), torch.tensor([[500]], device=image.device)

    @torch.no_grad()
    def run() -> None:
        network.denoise(y_t, t, network.encode(image)).cpu()

    return run


def _unet_pass(model: Model, image: Tensor) -> Callable[[], object]:
    """The one answer of a plain U-net: what a pass costs does not depend on the weights."""
    assert isinstance(model.segmenter, DiffusionSegmenter)
    unet = Deterministic(UNet(), model.input_spec, model.segmenter.network)
    return lambda: unet.sample(image, 1, torch.Generator(image.device)).cpu()


def write_cost(cost: SamplingCost, out: Path) -> str:
    """cost.csv and cost.png in `out`; returns the headline."""
    header = ["model", "device", "height", "width", "samples", "steps", "seconds", "paper_passes", "unet_passes"]
    rows: list[list[Any]] = [header]
    for pair, seconds in cost.seconds.items():
        passes = ["" if one is None else f"{seconds / one:.4g}" for one in (cost.paper_pass, cost.unet_pass)]
        rows.append([cost.model.name, cost.model.device, *cost.model.size, *pair, f"{seconds:.4g}", *passes])
    write_text(out / "cost.csv", csv_text(rows))
    _plot(cost, out / "cost.png")
    seconds = cost.seconds[SAMPLES, STEPS]
    beside = [
        f", {seconds / one:.2f} passes of {whose}"
        for one, whose in ((cost.paper_pass, "the paper's network"), (cost.unet_pass, "the plain U-net"))
        if one is not None
    ]
    return f"{SAMPLES} masks in {STEPS} steps: {seconds:.3g} s{''.join(beside)}"


def _plot(cost: SamplingCost, path: Path) -> None:
    H, W = cost.model.size
    with picture(path, 10, 4) as figure:
        left, right = figure.subplots(1, 2, sharey=True)
        over_masks = {n: seconds for (n, k), seconds in sorted(cost.seconds.items()) if k == STEPS}
        over_steps = {k: seconds for (n, k), seconds in sorted(cost.seconds.items()) if n == SAMPLES}
        for axes, points in ((left, over_masks), (right, over_steps)):
            at = list(points)
            axes.loglog(at, list(points.values()), "o-", label=cost.model.name)
            axes.set_xticks(at, map(str, at))
            axes.set_xticks([], minor=True)
            axes.yaxis.set_major_formatter("{x:g}")
            axes.grid(alpha=0.3)
            if cost.paper_pass is not None:
                axes.axhline(cost.paper_pass, color="k", linestyle=":", label="one pass of the paper's 85.6 M network")
            if cost.unet_pass is not None:
                axes.axhline(cost.unet_pass, color="tab:green", linestyle="--", label="one pass of the plain U-net")
        left.set(title=f"{STEPS} steps", xlabel="masks of one image", ylabel=f"seconds for one {H}x{W} image")
        right.set(title=f"{SAMPLES} masks", xlabel="steps")
        left.legend()
