"""The paper's figure 1: the forward chain of a mask, and diverse reverse chains of one image, from a trained model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from berdiff.data.augment import crop
from berdiff.data.describe import by, expect
from berdiff.data.store import Store
from berdiff.data.subset import choose_cases
from berdiff.diffusion.bernoulli import draw, xor
from berdiff.diffusion.kernels.bernoulli import Bernoulli
from berdiff.diffusion.random import sample_generators
from berdiff.diffusion.sampler import Sampler, time_grid
from berdiff.diffusion.sampling import Step
from berdiff.diffusion.schedule import NoiseSchedule
from berdiff.errors import InputError
from berdiff.inference.model import Model
from berdiff.methods.families.diffusion import DiffusionSegmenter
from berdiff.methods.sampling import choose_sampler, describe
from berdiff.output.pictures import render, save_png
from berdiff.output.tiles import RATER_COLOUR, SAMPLE_COLOUR, Tile
from reproduce.tables.scale import splits

MOST = 8  # states of a chain that are shown
Chain = dict[int, np.ndarray]
"""t -> y_t (H, W), in the order of the chain"""


@dataclass(frozen=True, eq=False)
class Process:
    """Both directions for one case; of several channels and targets the first."""

    model: str
    case: str
    source: str
    notes: tuple[str, ...]  # of the store
    sampler: Sampler
    image: np.ndarray  # (H, W)
    rater: int  # whose mask y_0 is, from 1
    forward: Chain
    reverse: list[Chain]


def expect_bernoulli(model: Model) -> tuple[DiffusionSegmenter, Bernoulli]:
    """The model's segmenter and kernel; InputError where it is of another kind, before any data is opened or made."""
    segmenter = model.segmenter
    if not (isinstance(segmenter, DiffusionSegmenter) and isinstance(segmenter.kernel, Bernoulli)):
        raise InputError(f"--model: expected a Bernoulli diffusion, found {model.name}, a {segmenter.config.method}")
    return segmenter, segmenter.kernel


def run_process(
    model: Model,
    store: Store,
    chains: int = 4,
    case: str | None = None,
    seed: int = 0,
    options: object = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Process:
    """`case` None: the first of the seeded order that evaluations take; `options` replace the sampler's own."""
    segmenter, kernel = expect_bernoulli(model)
    most = segmenter.masks_per_pass
    expect(1 <= chains <= most, "--chains", f"1 to {most}", chains)
    sampler, schedule = choose_sampler(segmenter, options), kernel.schedule
    assert sampler is not None  # a diffusion has one
    index = _find(store, case, seed)
    name, raters = str(store.cases.case[index]), int(store.cases.raters[index])
    fits = all(have >= want for have, want in zip(store.size, model.size, strict=True))
    expect(fits, "--data", f"images of at least {by(model.size)}, which the model sees", by(store.size))
    image, masks = (torch.from_numpy(crop(array, model.size)) for array in store.read([index]))
    own = masks[0, :raters, 0]
    rater = int(own.flatten(1).any(1).int().argmax())  # the first who marked something
    times = time_grid(schedule.T, sampler.steps, sampler.spacing)
    generators = sample_generators(seed, [name], chains, model.device)
    seen: list[Step] = []

    def after_step(step: Step) -> None:
        seen.append(step)
        progress(len(seen), len(times) - 1)

    try:
        segmenter.sample(image.contiguous().to(model.device), chains, generators, sampler, after_step)
    except ValueError as error:  # channels that do not fit
        raise InputError(f"the model cannot sample these images: {error}") from error
    (forward,) = sample_generators(seed, [f"{name}, forward"], 1)
    return Process(
        model.name,
        name,
        store.manifest.source,
        store.notes,
        sampler,
        image[0, 0].numpy(),
        rater + 1,
        {t: y.numpy() for t, y in forward_chain(schedule, own[rater].float(), times[::-1], forward).items()},
        [_chain(seen, i) for i in range(chains)],
    )


def _find(store: Store, case: str | None, seed: int) -> int:
    if case is None:
        return int(choose_cases(store, splits(store)[1], 1, seed)[0])
    found = np.flatnonzero(store.cases.case.astype(str) == case)
    expect(len(found), "--case", f"the name of a case in {store.address}, such as {store.cases.case[0]}", case)
    return int(found[0])


def forward_chain(
    schedule: NoiseSchedule, y0: Tensor, times: Sequence[int], generator: torch.Generator
) -> dict[int, Tensor]:
    """Eq. 1 from each of the rising `times` (beginning with 0) to the next: y_t = y_s XOR B((1 - alpha) / 2)."""
    chain = {0: y0}
    for s, t in pairwise(times):
        alpha, _, _ = schedule.pair(t, s, y0)
        chain[t] = xor(chain[s], draw(torch.full_like(y0, (1 - alpha) / 2), generator))
    return chain


def _chain(steps: Sequence[Step], sample: int) -> Chain:
    """The states of one sample, from T down to 0."""
    states = {steps[0].t: steps[0].y_t} | {step.s: step.y_s for step in steps}
    return {t: y[0, sample, 0].cpu().numpy() for t, y in states.items()}


def plot_process(process: Process, path: Path) -> None:
    """The forward chain above the reverse ones, each beside the image with the mask it begins or ends with."""
    rows = [_row(f"rater {process.rater}", process.image, process.forward, RATER_COLOUR)]
    for number, chain in enumerate(process.reverse, 1):
        rows.append(_row(f"sample {number}", process.image, chain, SAMPLE_COLOUR))
    labels = ["forward", *["reverse"] * len(process.reverse)]
    about = (
        f"{process.source}, case {process.case}. Forward: the mask of rater {process.rater}, noise added step by step "
        f"(eq. 1). Reverse: {len(process.reverse)} samples of {process.model}, {describe(process.sampler)}."
    )
    about += "".join(f" {note}." for note in process.notes)
    save_png(render(rows, "Bernoulli forward and diverse reverse processes", about, labels), path)


def _row(title: str, image: np.ndarray, chain: Chain, colour: str) -> list[Tile]:
    """The image with y_0 outlined; then up to MOST states of the chain, evenly spread, both ends among them."""
    shown = np.unique(np.linspace(0, len(chain) - 1, min(MOST, len(chain))).round().astype(int))
    states = [list(chain.items())[i] for i in shown]
    return [Tile(title, image, outlines=[(chain[0], colour)]), *(Tile(f"t = {t}", y) for t, y in states)]
