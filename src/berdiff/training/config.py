"""Every setting of a training: typed, frozen, checked in one place, the same in Python, JSON and as flags.

What belongs to a method is in the method's own configuration (`model`). No torch here: the command line shows its help
without waiting for it.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import tyro
from annotated_types import Ge, Gt, Le, Lt

from berdiff import schema
from berdiff.data.input_spec import InputSpec, Sides, size_of
from berdiff.errors import InputError
from berdiff.methods.config import M, MethodConfig, method_class, to_plain
from berdiff.schema import Count, Natural, NotNegative

Share = Annotated[float, Ge(0), Lt(1)]
Model = TypeVar("Model", bound=MethodConfig, covariant=True)


@dataclass(frozen=True)
class DataConfig(schema.Settings):
    """what it is trained on"""

    store: Annotated[str | None, tyro.conf.arg(name="data", prefix_name=False)] = None
    """folder or address of a prepared store; without it the embedded data"""
    split: str = "train"  # split to train on
    crop: Sides | None = None  # centre crop in pixels: one side, or one for each axis
    patch: Sides | None = None
    """side in pixels of random patches to train on, or a side for each axis, for images larger than the network, which
    the model then segments by tiles"""
    foreground: Annotated[float, Ge(0), Le(1)] = 0.33
    """with patch: share of the patches around a random pixel that a rater marked, the others anywhere"""
    augment: bool = False  # flips, quarter turns, small shifts, mild intensity changes
    shift: Natural = 4
    """with augment, without patch: maximum shift in pixels; 0 where objects are centred and that is informative"""
    negatives: Share = 0.0
    """with a crop: share of the crops taken where no rater marked anything, so that P(finding) is learned there too"""
    zoom: Annotated[float, Ge(1), Le(4)] = 1.0
    """with augment and a crop: half of the images are magnified by a random factor between 1 / zoom and zoom"""
    prefetch: Count = 4  # batches prepared in the background

    def check(self) -> None:
        if self.negatives and self.crop is None:
            raise InputError("negatives: needs a crop (--data.crop)", "conflict")
        if self.patch is not None and self.crop is not None:
            raise InputError("patch: not together with a crop (--data.crop None takes it away)", "conflict")

    def seen(self, spec: InputSpec) -> InputSpec:
        """What the network sees of images of `spec`: all of them, their centre, or patches."""
        sides, name = self.patch or self.crop, "--data.patch" if self.patch else "--data.crop"
        size = spec.size if sides is None else size_of(sides, len(spec.size), name)
        return spec.cropped(size, patches=self.patch is not None)


@dataclass(frozen=True)
class OptimConfig(schema.Settings):
    """the optimiser, its learning rate, and the moving average of the weights"""

    kind: Literal["adamw", "sgd"] = "adamw"  # optimiser
    lr: NotNegative = 5e-5  # learning rate
    weight_decay: NotNegative = 0.01  # weight decay of AdamW, or penalty of SGD
    momentum: Annotated[float, Gt(0), Lt(1)] | None = None  # momentum of SGD, which needs it
    nesterov: bool = False  # with sgd: Nesterov's momentum
    warmup_steps: Natural = 0  # steps over which the learning rate rises from 0
    decay: Literal["constant", "cosine", "poly"] = "constant"
    """learning rate after the warm-up; poly: the share of the steps that are left, to the power 0.9"""
    decay_steps: Count | None = None
    """with cosine and poly: the step at which the learning rate has fallen to zero; None: the end of the run, by
    whichever of --max-steps, --max-minutes and --max-cpu-minutes comes first"""
    clip_norm: Annotated[float, Gt(0)] | None = None  # maximum norm of the gradient
    ema_decay: Share = 0.9999  # decay of the moving average of the weights, which is the trained model
    ema_warmup: bool = True  # start with a short average: the decay is at most (1 + updates) / (10 + updates)

    def check(self) -> None:
        sgd, steps, warmup = self.kind == "sgd", self.decay_steps, self.warmup_steps
        for right, sentence in (
            (sgd == (self.momentum is not None), "momentum: with --optim.kind sgd, and with it alone"),
            (sgd or not self.nesterov, "nesterov: with --optim.kind sgd alone"),
            (steps is None or self.decay != "constant", "decay_steps: not with --optim.decay constant"),
            (steps is None or steps > warmup, f"decay_steps: {steps} are not more than the {warmup} warm-up steps"),
        ):
            if not right:
                raise InputError(sentence, "conflict")


@dataclass(frozen=True)
class LoopConfig(schema.Settings):
    """how long it trains, and what it keeps"""

    batch_size: Count = 32  # slices in one step, over all processes together
    accumulate: Count = 1  # parts into which each process cuts its share of a batch, to save memory
    max_steps: Annotated[Count, tyro.conf.arg(aliases=["--max-steps"])] = 21_000  # stop after so many steps
    max_minutes: Annotated[NotNegative | None, tyro.conf.arg(aliases=["--max-minutes"])] = None
    """stop after so many minutes, over all sessions of the run together"""
    max_cpu_minutes: Annotated[NotNegative | None, tyro.conf.arg(aliases=["--max-cpu-minutes"])] = None
    """stop after so many minutes of CPU time, over all processes and sessions together"""
    checkpoint_every: Count = 500  # steps between checkpoints
    keep: Annotated[int, Ge(2)] = 2  # how many of the newest checkpoints stay
    log_every: Count = 50  # steps between lines of stats.jsonl
    max_bad_steps: Count = 10  # stop after so many steps in a row with a loss or gradient that is not finite

    def used(self, step: int, minutes: float, cpu_minutes: float) -> dict[str, float]:
        """The share of each limit that is used up, by its name: "300 steps", "30 minutes"."""
        spent = {"steps": step, "minutes": minutes, "CPU minutes": cpu_minutes}
        limits = zip((self.max_steps, self.max_minutes, self.max_cpu_minutes), spent, strict=True)
        return {f"{limit:.9g} {unit}": spent[unit] / max(limit, 1e-9) for limit, unit in limits if limit is not None}


@dataclass(frozen=True)
class ValidationConfig(schema.Settings):
    """GED and HM-IoU on a fixed subset, and a sheet of samples"""

    every: Natural = 1000  # steps between validations; 0 for none
    split: str = "val"  # split to validate on
    cases: Count = 32  # number of its cases, chosen once by the seed
    samples: Count = 16  # masks sampled per case
    batch_size: Count = 8  # cases sampled together
    sheet_cases: Natural = 6  # rows of the sample sheet; 0 for none


@dataclass(frozen=True)
class EngineConfig(schema.Settings):
    """where it runs: the settings of Lightning Fabric"""

    accelerator: str = "auto"  # auto, cpu, gpu, ...
    devices: str = "auto"  # how many, or which ("0,2"), on each machine; processes on a CPU
    num_nodes: Count = 1  # machines
    strategy: str = "auto"  # auto, ddp, fsdp, ...
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"  # arithmetic
    compile: bool = False  # torch.compile the network: a minute at the start, faster on GPUs
    threads: Count | None = None  # CPU threads of each process; None leaves torch's choice


@dataclass(frozen=True, kw_only=True)
class TrainConfig(schema.Settings, Generic[Model]):
    """A whole training of the method that `model` configures."""

    recipe: Annotated[str, tyro.conf.Suppress] = "custom"
    left_open: Annotated[tuple[str, ...], tyro.conf.Suppress] = ()
    """settings that are planned from the store when a run begins (training/plan.py); none in a run's config.json"""
    seed: Natural = 0  # seed of the weights, the order of the slices and every random draw
    init: str | None = None
    """begin from the weights of this run, model folder or bundled name, of the same architecture"""
    model: Model
    data: DataConfig = field(default_factory=DataConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    loop: LoopConfig = field(default_factory=LoopConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)


AnyConfig = TrainConfig[MethodConfig]  # of a training of whatever method

# What may differ when a run is resumed: how long and how often, and where. Everything else would make it another run.
MAY_CHANGE = ("recipe", "engine.", "data.prefetch", "validation.batch_size", "loop.max_", "loop.accumulate")
MAY_CHANGE += ("loop.checkpoint_every", "loop.keep", "loop.log_every")


def check(config: TrainConfig[M]) -> TrainConfig[M]:
    """The configuration itself; InputError, which names the flag, for the first setting that cannot work."""
    return schema.check(config, TrainConfig[type(config.model)], flag)


def flag(name: str) -> str:
    """The command-line flag of a field: `loop.max_steps` -> `--loop.max-steps`."""
    return "--data" if name == "data.store" else "--" + name.replace("_", "-")


def differences(old: AnyConfig, new: AnyConfig) -> list[str]:
    """The settings that make `new` another run than `old`, one line each."""
    if old.model.method != new.model.method:
        return [f"--model.method: {old.model.method} -> {new.model.method}"]
    before = dict(schema.flatten(old))
    return [
        f"{flag(name)}: {before[name]} -> {value}"
        for name, value in schema.flatten(new)
        if before[name] != value and not name.startswith(MAY_CHANGE)
    ]


def as_plain(config: AnyConfig) -> dict[str, Any]:
    """In plain JSON types, with the method's name."""
    return {**schema.plain(config), "model": to_plain(config.model)}


def dump(config: AnyConfig) -> str:
    """The text of a run's config.json."""
    return schema.dump(as_plain(config))


def load(path: str | Path) -> AnyConfig:
    """A run's config.json; InputError where it is not one."""
    return from_plain(schema.read_json(Path(path), "a training configuration"), str(path))


def from_plain(content: Any, where: str) -> AnyConfig:
    """What `as_plain` gave; `where` names its place in an error."""
    if not (isinstance(content, dict) and isinstance(content.get("model"), dict)):
        raise InputError(f"{where}: no training configuration with a group `model`", "kind")
    model = dict(content["model"])
    kind = method_class(str(model.pop("method", None)))
    return schema.parse(TrainConfig[kind], {**content, "model": model}, lambda place: f"{where}: {place}")
