"""A model as a folder: `config.json` (what it is) and `model.safetensors` (its weights). No code is in either.

The configuration's `about` says what the weights were trained on, so that an image can be shown to them as they know
it: `size` [H, W], `channels` and `targets` (names), `window` [low, high] of a raw CT in Hounsfield units or null,
`scale`, `tails` and `field` for other values (see `inference.intensity`), `data` (the source's name) and `notes`. Each
may be missing.
"""

import hashlib
import json
from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from berdiff.diffusion.sampling import Sampler
from berdiff.diffusion.schedule import make_schedule
from berdiff.errors import InputError
from berdiff.files import whole_file, write_text
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.gaussian import GaussianDiff
from berdiff.methods.unet import PlainUNet
from berdiff.networks.build import make_network

FORMAT = 1
WEIGHTS = Path(__file__).parents[1] / "weights"  # a folder for each bundled model: config, weights, model card


def _sampler(config: dict[str, Any]) -> Sampler:
    sampler = dict(config["sampler"])
    if isinstance(sampler["steps"], list):
        sampler["steps"] = tuple(sampler["steps"])
    return Sampler(**sampler)


def _build_berdiff(config: dict[str, Any]) -> BerDiff:
    return BerDiff(
        make_network(**config["network"]),
        make_schedule(**config["schedule"]),
        target=config["target"],
        lambda_kl=config["lambda_kl"],
        lambda_bce=config["lambda_bce"],
        posterior=config["posterior"],
        time_sampling=config["time_sampling"],
        masks_per_image=config.get("masks_per_image", 1),
        sampler=_sampler(config),
    )


def _build_gaussian(config: dict[str, Any]) -> GaussianDiff:
    return GaussianDiff(
        make_network(**config["network"]),
        make_schedule(**config["schedule"]),
        target=config["target"],
        time_sampling=config["time_sampling"],
        masks_per_image=config["masks_per_image"],
        sampler=_sampler(config),
    )


def _build_unet(config: dict[str, Any]) -> PlainUNet:
    return PlainUNet(make_network(**config["network"]))


# what one trains and samples, by the name in config.json
METHODS: dict[str, Callable[[dict[str, Any]], nn.Module]] = {
    "berdiff": _build_berdiff,
    "gaussian": _build_gaussian,
    "unet": _build_unet,
}


def build(config: dict[str, Any]) -> Any:
    """A `Segmenter` with fresh weights from its `config()`."""
    method = config.get("method")
    if method not in METHODS:
        raise InputError(f"method: expected one of {', '.join(METHODS)}, found {method!r}")
    return METHODS[method](config)


def resolve(path_or_name: str | Path) -> Path:
    """The model folder meant by a path, by the folder of a training run, or by the name of bundled weights."""
    path = Path(path_or_name)
    if (path / "model").is_dir():
        return path / "model"  # a run's weights of record
    if path.exists():
        return path
    names = bundled()
    if str(path_or_name) in names:
        return WEIGHTS / str(path_or_name)
    known = f" or one of the names {', '.join(names)}" if names else ""
    raise InputError(f"{path}: expected the folder of a run or of a model{known}, found none")


def bundled() -> list[str]:
    """The names of the weights that come with the package."""
    return sorted(file.parent.name for file in WEIGHTS.glob("*/config.json"))


def save(segmenter: Any, folder: str | Path, about: dict[str, Any] | None = None) -> None:
    """Write a model folder; `about` None means what the segmenter itself has.

    The weights are renamed into place first: a config always finds the weights it names.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    about = getattr(segmenter, "about", {}) if about is None else about
    config = {"format": FORMAT, **segmenter.config(), "about": about}
    weights = folder / "model.safetensors"
    with whole_file(weights) as part:
        save_file({name: value.contiguous() for name, value in segmenter.state_dict().items()}, part)
    config["weights_sha256"] = _sha256(weights)
    write_text(folder / "config.json", json.dumps(config, indent=2) + "\n")


def load(folder: str | Path, device: str = "cpu") -> Any:
    """The `Segmenter` of a model folder (or of what `resolve` takes), ready to sample, with `about` (a dict) and
    `weights_sha256`.

    Anything wrong with the folder is one `InputError`.
    """
    _check_device(device)
    folder = resolve(folder)
    config_file, weights = folder / "config.json", folder / "model.safetensors"
    for file in (config_file, weights):
        if not file.is_file():
            raise InputError(f"{folder}: expected a model folder with {file.name}, found none")
    try:
        config = json.loads(config_file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{config_file}: expected JSON, found {error}") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        found = config.get("format") if isinstance(config, dict) else type(config).__name__
        raise InputError(f"{config_file}: expected a model of format {FORMAT}, found {found!r}")
    if _sha256(weights) != config.get("weights_sha256"):
        raise InputError(f"{weights}: expected the weights that {config_file.name} names, found altered ones")
    try:
        segmenter = build(config)
        segmenter.load_state_dict(load_file(weights))
    except (KeyError, TypeError) as error:
        raise InputError(f"{config_file}: expected a complete configuration, found a wrong entry: {error}") from error
    except (ValueError, RuntimeError, SafetensorError) as error:
        raise InputError(f"{folder}: expected weights that fit the configuration, found: {error}") from error
    segmenter.about = _about(config, config_file)
    segmenter.weights_sha256 = config["weights_sha256"]
    segmenter.to(memory_format=torch.channels_last)  # the faster one without gradients
    return segmenter.to(device).eval()


def _check_device(device: str) -> None:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch asserts where it was built without CUDA
        reason = str(error).splitlines()[0]
        raise InputError(f"--device: expected a device of this machine, found {device!r} ({reason})") from error


def _about(config: dict[str, Any], file: Path) -> dict[str, Any]:
    """What the weights were trained on, every entry of the kind it must be."""
    about = config.get("about", {})
    if not isinstance(about, dict):
        raise InputError(f"{file}: expected an object under about, found {type(about).__name__}")
    for name, (right, kind) in _ABOUT.items():
        value = about.get(name)
        if value is not None and not right(value):
            raise InputError(f"{file}: expected about.{name} to be {kind}, found {value!r}")
    return about


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _numbers(value: Any) -> bool:
    plain = isinstance(value, list) and all(isinstance(n, int | float) and not isinstance(n, bool) for n in value)
    return plain and len(value) == 2 and all(map(isfinite, value))


_SCALES = ("auto", "dtype", "percentiles", "brain", "minmax")
_ABOUT: dict[str, tuple[Callable[[Any], bool], str]] = {
    "size": (lambda v: _numbers(v) and all(isinstance(n, int) and n > 0 for n in v), "[height, width]"),
    "channels": (_texts, "a list of names"),
    "targets": (_texts, "a list of names"),
    "window": (lambda v: _numbers(v) and v[0] < v[1], "[low, high]"),
    "scale": (lambda v: v in _SCALES, f"one of {', '.join(_SCALES)}"),
    "field": (lambda v: isinstance(v, int) and v > 0, "a number of pixels"),
    "tails": (lambda v: isinstance(v, int | float) and 0 <= v < 50, "a percentage below 50"),
    "data": (lambda v: isinstance(v, str), "a text"),
    "notes": (_texts, "a list of texts"),
}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
