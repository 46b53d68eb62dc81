"""A model as a folder: `config.json` (what it is) and `model.safetensors` (its weights). No code is in either."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from berdiff.diffusion.sampling import Sampler
from berdiff.diffusion.schedule import make_schedule
from berdiff.errors import InputError
from berdiff.files import whole_file, write_text
from berdiff.methods.berdiff import BerDiff
from berdiff.networks.paper import make_network

FORMAT = 1


def _build_berdiff(config: dict[str, Any]) -> BerDiff:
    sampler = dict(config["sampler"])
    if isinstance(sampler["steps"], list):
        sampler["steps"] = tuple(sampler["steps"])
    return BerDiff(
        make_network(**config["network"]),
        make_schedule(**config["schedule"]),
        target=config["target"],
        lambda_kl=config["lambda_kl"],
        lambda_bce=config["lambda_bce"],
        posterior=config["posterior"],
        time_sampling=config["time_sampling"],
        sampler=Sampler(**sampler),
    )


# what one trains and samples, by the name in config.json
METHODS: dict[str, Callable[[dict[str, Any]], nn.Module]] = {"berdiff": _build_berdiff}


def build(config: dict[str, Any]) -> Any:
    """A `Segmenter` with fresh weights from its `config()`."""
    method = config.get("method")
    if method not in METHODS:
        raise InputError(f"method: expected one of {', '.join(METHODS)}, found {method!r}")
    return METHODS[method](config)


def save(segmenter: Any, folder: str | Path) -> None:
    """Write a model folder. The weights are renamed into place first: a config always finds the weights it names."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = segmenter.config()
    weights = folder / "model.safetensors"
    with whole_file(weights) as part:
        save_file({name: value.contiguous() for name, value in segmenter.state_dict().items()}, part)
    config = {"format": FORMAT, **config, "weights_sha256": _sha256(weights)}
    write_text(folder / "config.json", json.dumps(config, indent=2) + "\n")


def load(folder: str | Path, device: str = "cpu") -> Any:
    """The `Segmenter` of a model folder, ready to sample. Anything wrong with the folder is one `InputError`."""
    folder = Path(folder)
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
    return segmenter.to(device).eval()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
