"""Everything a training run can be told: typed, frozen, checked in one place, the same in Python, JSON and as flags.

No torch here: the command line shows its help, and `berdiff runs` lists, without waiting for it.
"""

import json
import types
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro

from berdiff.errors import InputError


@dataclass(frozen=True)
class ModelConfig:
    """what is trained; a setting that the method does not use must stay at its default"""

    method: Literal["berdiff", "gaussian", "unet"] = "berdiff"
    """Bernoulli diffusion, Gaussian diffusion (no lambda, posterior, last step, latent), or a plain U-net (a preset)"""
    preset: str = "small"
    """the network: fast or fast-tiny (encode once), or the paper's U-Net: paper-128, paper-224, small, tiny"""
    init: str | None = None
    """begin from the weights of this run, model folder or bundled name, of the same network"""
    schedule: Literal["linear", "cosine", "power1.5", "power2.5", "power4"] = "linear"
    """noise schedule"""
    T: Annotated[int, tyro.conf.arg(name="T")] = 1000
    """number of diffusion steps"""
    target: Literal["noise", "mask", "prior"] = "noise"
    """what the network estimates: the noise (paper), the mask, or the mask before its own pixel was seen (berdiff)"""
    lambda_kl: float = 1.0
    """weight of the KL divergence"""
    lambda_bce: float = 1.0
    """weight of the cross-entropy"""
    posterior: Literal["soft", "marginal"] = "soft"
    """the reverse step inside the KL divergence: the paper's, or the exact one"""
    time_sampling: Literal["uniform", "stratified"] = "uniform"
    """t drawn independently (paper), or spread evenly within a batch"""
    masks_per_image: int = 1
    """pairs of a reader and a step that learn from one encoding of an image; above 1 all readers take part"""


@dataclass(frozen=True)
class SamplerConfig:
    """how masks are drawn in validation, and by default from the trained model"""

    steps: tuple[int, ...] = (10,)
    """how many, or the steps themselves, falling"""
    rule: Literal["ddim", "ddpm"] = "ddim"
    """whose rule a step follows"""
    posterior: Literal["soft", "marginal"] = "soft"
    """of ddpm's rule: the paper's soft form, or the exact marginal"""
    sigma: float = 1.0
    """of ddim's rule: as a share of its largest value; with gaussian it is DDIM's eta, usually 0"""
    spacing: Literal["uniform", "quadratic"] = "uniform"
    """of the steps, where only their number is given"""
    last_step: Literal["threshold", "sample"] = "threshold"
    """threshold the last estimate (paper) or draw from it"""
    latent: Literal["pixel", "shared"] = "pixel"
    """draw each pixel by itself (paper), or all of a mask by one level"""


@dataclass(frozen=True)
class DataConfig:
    """what it is trained on"""

    store: Annotated[str | None, tyro.conf.arg(name="data", prefix_name=False)] = None
    """folder or address of a prepared store; without it the embedded data"""
    split: str = "train"
    """split to train on"""
    crop: int | None = None
    """centre crop in pixels"""
    augment: bool = False
    """flips, quarter turns, small shifts, mild intensity changes"""
    shift: int = 4
    """with augment: pixels up, down, left or right at most; 0 where objects sit in the middle and that tells"""
    prefetch: int = 4
    """batches made ahead in the background"""


@dataclass(frozen=True)
class OptimConfig:
    """AdamW, its learning rate, and the moving average of the weights"""

    lr: float = 5e-5
    """learning rate"""
    weight_decay: float = 0.01
    """AdamW's weight decay"""
    warmup_steps: int = 0
    """steps over which the learning rate rises from 0"""
    decay: Literal["constant", "cosine"] = "constant"
    """the learning rate after the warm-up"""
    decay_steps: int | None = None
    """with cosine: the step at which the learning rate has fallen to zero"""
    clip_norm: float | None = None
    """gradients longer than this are shortened to it"""
    ema_decay: float = 0.9999
    """of the moving average of the weights, which are the weights of record"""
    ema_warmup: bool = True
    """start with a short average: the decay is at most (1 + updates) / (10 + updates)"""


@dataclass(frozen=True)
class LoopConfig:
    """how long, and what is kept on the way"""

    batch_size: int = 32
    """slices in one step, over all processes together"""
    accumulate: int = 1
    """parts into which each process cuts its share of a batch, to save memory"""
    max_steps: Annotated[int, tyro.conf.arg(aliases=["--max-steps"])] = 21_000
    """stop after so many steps"""
    max_minutes: Annotated[float | None, tyro.conf.arg(aliases=["--max-minutes"])] = None
    """stop after so many minutes, over all sessions of the run together"""
    checkpoint_every: int = 500
    """steps between checkpoints"""
    keep: int = 2
    """how many of the newest checkpoints stay"""
    log_every: int = 50
    """steps between lines of stats.jsonl"""
    max_bad_steps: int = 10
    """stop after so many steps in a row with a loss or gradient that is not finite"""


@dataclass(frozen=True)
class ValidationConfig:
    """GED and HM-IoU on a fixed subset, and a sheet to look at"""

    every: int = 1000
    """steps between validations; 0 for none"""
    split: str = "val"
    """split to validate on"""
    cases: int = 32
    """how many cases of it, drawn once by the seed"""
    samples: int = 16
    """masks drawn for each"""
    batch_size: int = 8
    """cases sampled together"""
    sheet_cases: int = 6
    """rows of the sample sheet; 0 for none"""


@dataclass(frozen=True)
class EngineConfig:
    """where it runs: Lightning Fabric's own settings"""

    accelerator: str = "auto"
    """auto, cpu, gpu, ..."""
    devices: str = "auto"
    """how many, or which ("0,2"), on each machine; processes on a CPU"""
    num_nodes: int = 1
    """machines"""
    strategy: str = "auto"
    """auto, ddp, fsdp, ..."""
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"
    """arithmetic"""
    compile: bool = False
    """torch.compile the network: a minute at the start, faster on GPUs"""
    threads: int | None = None
    """CPU threads of each process; None leaves torch's choice"""


@dataclass(frozen=True)
class TrainConfig:
    """A whole training run."""

    recipe: Annotated[str, tyro.conf.Suppress] = "custom"
    seed: int = 0
    """of the weights, the order of the slices and every random draw"""
    model: ModelConfig = field(default_factory=ModelConfig)
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    loop: LoopConfig = field(default_factory=LoopConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)


# What may differ when a run goes on: how long and how often, and where. Everything else would make it another run.
MAY_CHANGE = (
    "recipe",
    "engine.",
    "loop.max_steps",
    "loop.max_minutes",
    "loop.checkpoint_every",
    "loop.keep",
    "loop.log_every",
    "loop.accumulate",
    "data.prefetch",
    "validation.batch_size",
)

# What a method does not use, by the beginnings of names: set, it would be silently ignored, so it is refused.
UNUSED: dict[str, tuple[str, ...]] = {
    "berdiff": (),
    "gaussian": (
        "model.lambda_kl",
        "model.lambda_bce",
        "model.posterior",
        "sampler.posterior",
        "sampler.last_step",
        "sampler.latent",
    ),
    "unet": (
        "model.schedule",
        "model.T",
        "model.target",
        "model.lambda_kl",
        "model.lambda_bce",
        "model.posterior",
        "model.time_sampling",
        "model.masks_per_image",
        "sampler.",
    ),
}

_AT_LEAST = {
    "seed": 0,
    "model.T": 1,
    "model.lambda_kl": 0,
    "model.lambda_bce": 0,
    "model.masks_per_image": 1,
    "data.crop": 1,
    "data.shift": 0,
    "data.prefetch": 1,
    "optim.lr": 0,
    "optim.weight_decay": 0,
    "optim.warmup_steps": 0,
    "optim.decay_steps": 1,
    "optim.clip_norm": 0,
    "optim.ema_decay": 0,
    "loop.batch_size": 1,
    "loop.accumulate": 1,
    "loop.max_steps": 1,
    "loop.max_minutes": 0,
    "loop.checkpoint_every": 1,
    "loop.keep": 2,
    "loop.log_every": 1,
    "loop.max_bad_steps": 1,
    "validation.every": 0,
    "validation.cases": 1,
    "validation.samples": 1,
    "validation.batch_size": 1,
    "validation.sheet_cases": 0,
    "engine.num_nodes": 1,
    "engine.threads": 1,
}


def check(config: TrainConfig) -> TrainConfig:
    """Raise InputError for the first setting that cannot work; the configuration itself otherwise."""
    flat = dict(flatten(config))
    for name, least in _AT_LEAST.items():
        value = flat[name]
        if value is not None and not value >= least:
            raise InputError(f"{flag(name)}: expected at least {least}, found {value}")
    if not config.model.lambda_kl + config.model.lambda_bce > 0:
        raise InputError("--model.lambda-kl and --model.lambda-bce: expected at least one above 0, found both 0")
    _refuse_unused(config)
    if not config.optim.ema_decay < 1:
        raise InputError(f"{flag('optim.ema_decay')}: expected less than 1, found {config.optim.ema_decay}")
    cosine = config.optim.decay == "cosine"
    if cosine != (config.optim.decay_steps is not None):
        raise InputError(
            f"{flag('optim.decay_steps')}: expected a number of steps with --optim.decay cosine and None otherwise, "
            f"found {config.optim.decay_steps} with {config.optim.decay}"
        )
    if config.optim.decay_steps is not None and config.optim.decay_steps <= config.optim.warmup_steps:
        raise InputError(
            f"{flag('optim.decay_steps')}: expected more than the {config.optim.warmup_steps} warm-up steps, "
            f"found {config.optim.decay_steps}"
        )
    return config


def _refuse_unused(config: TrainConfig) -> None:
    method, defaults = config.model.method, dict(flatten(TrainConfig()))
    for name, value in flatten(config):
        if UNUSED[method] and name.startswith(UNUSED[method]) and value != defaults[name]:
            raise InputError(
                f"{flag(name)}: expected its default, {defaults[name]}, with --model.method {method}, "
                f"which does not use it, found {value}"
            )
    if method == "gaussian" and config.model.target == "prior":
        raise InputError("--model.target: expected noise or mask with --model.method gaussian, found prior")


def flag(name: str) -> str:
    """The command-line flag of a field: `loop.max_steps` -> `--loop.max-steps`."""
    return "--data" if name == "data.store" else "--" + name.replace("_", "-")


def flatten(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every field as (dotted name, value)."""
    for f in fields(config):
        value = getattr(config, f.name)
        if is_dataclass(value):
            yield from flatten(value, f"{prefix}{f.name}.")
        else:
            yield prefix + f.name, value


def differences(old: TrainConfig, new: TrainConfig) -> list[str]:
    """The settings that make `new` another run than `old`, one line each."""
    before = dict(flatten(old))
    return [
        f"{flag(name)}: {before[name]} -> {value}"
        for name, value in flatten(new)
        if before[name] != value and not name.startswith(MAY_CHANGE)
    ]


def dump(config: TrainConfig) -> str:
    return json.dumps(asdict(config), indent=2) + "\n"


def load(path: str | Path) -> TrainConfig:
    """Read a configuration back from JSON; InputError where it is not one."""
    try:
        plain = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: expected a training configuration, found no such file") from None
    except ValueError as error:
        raise InputError(f"{path}: expected a training configuration in JSON, found {error}") from None
    return check(_build(TrainConfig, plain, str(path)))


def _build(kind: type, plain: Any, where: str) -> Any:
    """A dataclass from the plain types of JSON, with every name and type checked."""
    if not isinstance(plain, Mapping):
        raise InputError(f"{where}: expected a group of settings, found {plain!r}")
    hints = get_type_hints(kind)
    unknown = sorted(set(plain) - set(hints))
    if unknown:
        raise InputError(f"{where}: expected settings of {kind.__name__}, found an unknown one, {unknown[0]!r}")
    values = {}
    for name, value in plain.items():
        hint = hints[name]
        if is_dataclass(hint):
            values[name] = _build(hint, value, f"{where}: {name}")  # type: ignore[arg-type]
        elif _fits(value, hint):
            values[name] = tuple(value) if isinstance(value, list) else value
        else:
            raise InputError(f"{where}: {name}: expected {hint}, found {value!r}")
    return kind(**values)


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return any(_fits(value, option) for option in get_args(hint))
    if get_origin(hint) is tuple:  # of any length, as JSON's list
        return isinstance(value, list) and all(_fits(item, get_args(hint)[0]) for item in value)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)
