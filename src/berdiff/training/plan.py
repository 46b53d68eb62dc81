"""The settings that a recipe leaves open, from what a store holds: a small pure function, and what is said about it."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple

import torch

from berdiff.data.describe import by
from berdiff.data.input_spec import Sides, Size, size_of
from berdiff.data.marked import looked_at, share_empty, share_outside
from berdiff.data.store import Store
from berdiff.errors import InputError
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.config import M
from berdiff.methods.families.diffusion_config import DiffusionConfig
from berdiff.targets.kinds import Kind
from berdiff.training.config import AnyConfig, TrainConfig, flag

# by the number of axes: sides up to this are trained on as they are, larger images by patches
WHOLE = {2: 160, 3: 64}
PATCH = {2: 128, 3: 64}
STEP_PIXELS = 2**17  # of the images of a step: 8 of 128x128. In a fixed time, more steps teach more than larger ones
VALIDATION_PIXELS = 2**19
MOST_MASKS = 8  # per encoding
WARMUP = 100
HURDLE = 0.05
INNER_WEIGHT = 4.0  # as brats-regions-cpu: the inner targets of nested ones are small
ENCODES = ("fast", "fast-tiny")  # presets that encode the image, as a hurdle needs
WORTH_SAYING = 0.005  # of the marked pixels outside a crop


@dataclass(frozen=True)
class Facts:
    """What a plan depends on, beside the configuration."""

    size: Size  # of the store's images
    stride: int  # of the network: sides must be multiples of it
    cases: int  # to train on
    raters: int  # the largest number that a case has
    targets: int
    kind: Kind
    empty: float  # share of the raters' masks that mark nothing
    looked_at: int  # cases that `empty` was counted in
    cores: int
    gpu: bool


class Choice(NamedTuple):
    setting: str  # dotted name
    value: Any
    reason: str


def plan(config: AnyConfig, facts: Facts) -> list[Choice]:
    """A value for each setting that is left open and that the method has, beside those that are given."""
    open_, data, model = config.left_open, config.data, config.model
    patch, why = data.patch, ""
    if "data.patch" in open_ and data.crop is None:
        patch, why = _patch(facts)
    sides = data.crop or patch
    option = "--data.crop" if data.crop else "--data.patch"
    size = facts.size if sides is None else size_of(sides, len(facts.size), option)
    choices = [Choice("data.patch", patch, why)] if why else []

    processes = config.engine.devices
    accelerator = config.engine.accelerator
    if "engine.accelerator" in open_:
        accelerator = "auto" if facts.gpu else "cpu"
        found = "a GPU was found" if facts.gpu else "no GPU was found"
        choices.append(Choice("engine.accelerator", accelerator, found))
    if "engine.devices" in open_:
        on_cpu = accelerator == "cpu"
        processes = "2" if on_cpu and facts.cores > 1 else "1"
        reason = f"processes, on {facts.cores} core{'s' * (facts.cores != 1)}" if on_cpu else "one GPU"
        choices.append(Choice("engine.devices", processes, reason))
    if "engine.threads" in open_:
        threads = 1 if accelerator == "cpu" else None
        choices.append(Choice("engine.threads", threads, "of each process" if threads else "torch's own choice"))

    parts = (int(processes) if processes.isdigit() else 1) * config.engine.num_nodes * config.loop.accumulate
    fitting = 2 ** min(4, max(1, (STEP_PIXELS // prod(size)).bit_length() - 1))
    batch = -(-fitting // parts) * parts
    choices.append(Choice("loop.batch_size", batch, f"images of {by(size)} in a step"))
    warmup = min(WARMUP, config.loop.max_steps // 10)
    choices.append(Choice("optim.warmup_steps", warmup, f"a tenth of the steps, {WARMUP} at most"))
    cases = min(32, max(4, VALIDATION_PIXELS // prod(facts.size)))
    choices.append(Choice("validation.cases", cases, f"few, so that validation is quick on {by(facts.size)} pixels"))

    if isinstance(model, DiffusionConfig):
        masks = min(facts.raters, MOST_MASKS) if facts.raters > 2 else 4
        of = f"{facts.raters} rater{'s' * (facts.raters != 1)}"
        choices.append(Choice("model.masks_per_image", masks, f"masks that learn from one encoding; {of}"))
    if isinstance(model, BerDiff) and model.preset in ENCODES:
        exclusive = facts.targets > 1 and facts.kind == "exclusive"
        hurdle = HURDLE if facts.empty > 0 and not exclusive else 0.0
        reason = f"{100 * facts.empty:.1f} % of the raters' masks mark nothing (in {facts.looked_at} cases)"
        reason = "exclusive targets have none" if exclusive else reason
        choices.append(Choice("model.hurdle", hurdle, reason))
    if isinstance(model, BerDiff) and facts.targets > 1:
        inner = INNER_WEIGHT if facts.kind == "nested" else 1.0
        reason = f"{facts.targets} {facts.kind} targets{'; the inner ones are small' * (facts.kind == 'nested')}"
        choices.append(Choice("model.inner_weight", inner, reason))
    return [choice for choice in choices if choice.setting in open_]


def _patch(facts: Facts) -> tuple[Sides | None, str]:
    """Whole images where they are small and fit the network, else patches, so that edges are seen."""
    size, stride, widest = facts.size, facts.stride, WHOLE[len(facts.size)]
    fitting = tuple(side // stride * stride for side in size)
    if not min(fitting):
        return None, f"whole images: {by(size)} is smaller than a patch"
    if max(size) > widest:
        most = max(stride, PATCH[len(size)] // stride * stride)
        return _alike([min(most, side) for side in fitting]), f"random patches: {by(size)} is more than {widest} wide"
    if fitting != size:
        return _alike(fitting), f"random patches: {by(size)} are no multiples of {stride}"
    return None, f"whole images: {by(size)} is at most {widest} pixels wide"


def _alike(sides: Sequence[int]) -> Sides:
    """Of a plane the shorter side for both, as its patches are turned; of a volume each its own."""
    return min(sides) if len(sides) == 2 else tuple(sides)


def with_settings(config: TrainConfig[M], values: dict[str, Any]) -> TrainConfig[M]:
    """The configuration with these settings, by their dotted names, and nothing left open."""
    for name, value in values.items():
        config = _with(config, name, value)
    return replace(config, left_open=())


def _with(group: Any, name: str, value: Any) -> Any:
    first, _, rest = name.partition(".")
    return replace(group, **{first: _with(getattr(group, first), rest, value) if rest else value})


def facts_of(config: AnyConfig, store: Store) -> Facts:
    """The facts of a store and of this machine; its masks are read, those of a bounded number of cases."""
    split = config.data.split
    try:  # the method's network is made for its stride, small or large, and thrown away
        stride = config.model.build(replace(store.input_spec, size=(256,) * len(store.size))).stride
    except ValueError as error:
        raise InputError(f"--model: {error}", "unsupported") from error
    return Facts(
        size=store.size,
        stride=stride,
        cases=len(store.indices(split)),
        raters=store.raters,
        targets=len(store.targets),
        kind=store.input_spec.kind,
        empty=share_empty(store, split),
        looked_at=len(looked_at(store, split)),
        cores=os.cpu_count() or 1,
        gpu=torch.cuda.is_available(),
    )


def table(config: AnyConfig, choices: list[Choice], facts: Facts, address: str) -> list[str]:
    """What was planned and why, as lines of text. `config` is the one with the choices."""
    size, targets = by(facts.size), f"{facts.targets} target{'s' * (facts.targets != 1)}"
    raters, minutes = f"{facts.raters} rater{'s' * (facts.raters != 1)}", config.loop.max_minutes
    length = f"{config.loop.max_steps:,} steps" if minutes is None else f"{minutes:g} minutes"
    rows = [(flag(choice.setting), str(choice.value), choice.reason) for choice in choices]
    widths = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
    return [
        f"planned from {address}: {facts.cases:,} cases of {size}, {raters}, {targets}; trains for at most {length}",
        *(f"  {name:<{widths[0]}}  {value:<{widths[1]}}  {reason}" for name, value, reason in rows),
    ]


def lost_by_crop(config: AnyConfig, store: Store) -> list[str]:
    """A note where the centre crop leaves out a share of what raters marked that is worth saying."""
    sides, split = config.data.crop, config.data.split
    size = store.size if sides is None else size_of(sides, len(store.size), "--data.crop")
    larger = any(side > most for side, most in zip(size, store.size, strict=True))
    if size == store.size or larger or not len(store.indices(split)):
        return []  # all of it is seen, or this cannot be trained on, which is said later
    lost = share_outside(store, split, size)
    if lost <= WORTH_SAYING:
        return []
    all_cases, seen = len(store.indices(split)), len(looked_at(store, split))
    of = f"{seen:,} cases" if seen == all_cases else f"a sample of {seen:,} of {all_cases:,} cases"
    return [
        f"{100 * lost:.1f} % of the marked pixels lie outside the centre crop of {by(size)} (in {of}); the model "
        "never sees them. The recipe `own` trains on whole images, or on patches of them"
    ]
