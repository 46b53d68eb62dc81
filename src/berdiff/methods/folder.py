"""A model as a folder: `config.json` (what it is) and `model.safetensors` (its weights). No code is in either.

config.json, format 2: `model` (the method's configuration), `input_spec` (what an image must look like for it) and
`weights_sha256`.
"""

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file  # pyright: ignore  # partly typed
from torch import Tensor

from berdiff import hub, schema
from berdiff.data.describe import check, refuse_older
from berdiff.data.input_spec import InputSpec
from berdiff.errors import InputError
from berdiff.files import replaced_folder
from berdiff.methods.base import Segmenter
from berdiff.methods.config import MethodConfig, from_plain, to_plain
from berdiff.methods.families.diffusion_config import DiffusionConfig

CONFIG, WEIGHTS = "config.json", "model.safetensors"
ATTEMPTS = 5  # to read a folder that a training is replacing
BUNDLED = Path(__file__).parents[1] / "weights"  # a folder for each bundled model: config, weights, model card


@dataclass(frozen=True)
class ModelFile(schema.Settings):
    """config.json."""

    format: Literal[2]
    model: dict[str, Any]
    input_spec: InputSpec
    weights_sha256: str


def resolve(path_or_name: str | Path) -> Path:
    """The model folder meant by a path, by the folder of a training run, by the name of bundled weights, or by an
    address on a model hub (hf://owner/name), from where it is downloaded."""
    if hub.is_hub(path_or_name):
        return hub.fetch(str(path_or_name))
    path = Path(path_or_name)
    if (path / "model").is_dir():
        return path / "model"  # a run's weights of record
    if path.exists():
        return path
    names = bundled()
    if str(path_or_name) in names:
        return BUNDLED / str(path_or_name)
    sentence = f"{path}: expected the folder of a run or of a model, or one of {', '.join(names)}"
    raise InputError(f"{sentence}, found none", "missing")


def bundled() -> list[str]:
    """The names of the weights that come with the package."""
    return sorted(file.parent.name for file in BUNDLED.glob(f"*/{CONFIG}"))


def save(segmenter: Segmenter, folder: str | Path, weights: Mapping[str, Tensor] | None = None) -> None:
    """Write a model folder, with the segmenter's own weights or others of its shape, and its sampler of now.

    An older folder gives way in one step, so a configuration never stands beside weights that are not its own; other
    files in it, such as a model card, stay.
    """
    folder = Path(folder)
    config = segmenter.config
    if isinstance(config, DiffusionConfig) and segmenter.sampler is not None:
        config = replace(config, sampler=segmenter.sampler)
    with replaced_folder(folder) as part:
        if folder.is_dir():
            ours = shutil.ignore_patterns(CONFIG, WEIGHTS, ".*")
            shutil.copytree(folder, part, ignore=ours, dirs_exist_ok=True)
        tensors = weights or segmenter.state_dict()
        save_file({name: value.contiguous() for name, value in tensors.items()}, part / WEIGHTS)
        content = ModelFile(2, to_plain(config), segmenter.input_spec, sha256(part / WEIGHTS))
        (part / CONFIG).write_text(schema.dump(content), encoding="utf-8")


def load(folder: str | Path, device: str = "cpu") -> Segmenter:
    """The segmenter of a model folder (or of what `resolve` takes), ready to sample.

    Anything wrong with the folder is one `InputError`.
    """
    folder = resolve(folder)
    for _ in range(ATTEMPTS):
        before = _place(folder)
        try:
            return _load(folder).to(device).eval()
        except InputError:
            if _place(folder) == before:
                raise
    raise InputError(f"{folder}: replaced again and again while it was read", "changed")


def _place(folder: Path) -> tuple[int, int] | None:
    """Which folder it is on the disk: a training replaces it as a whole, perhaps between two looks into it."""
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _load(folder: Path) -> Segmenter:
    file, weights = folder / CONFIG, folder / WEIGHTS
    for needed in (file, weights):
        check(needed.is_file(), f"{folder}: no model folder, {needed.name} is missing", "missing")
    model, spec, digest = read_config(file)
    check(sha256(weights) == digest, f"{weights}: not the weights that {file.name} names", "changed")
    try:
        segmenter = model.build(spec)
        segmenter.load_state_dict(load_file(weights))
    except (ValueError, RuntimeError, SafetensorError) as error:
        raise InputError(f"{folder}: weights that do not fit the configuration: {error}", "damaged") from error
    segmenter.weights_sha256 = digest
    last = torch.channels_last if len(segmenter.input_spec.size) == 2 else torch.channels_last_3d
    return segmenter.to(memory_format=last)  # pyright: ignore  # the faster one without gradients


def read_config(file: Path) -> tuple[MethodConfig, InputSpec, str]:
    """(the method's configuration, the input spec, the SHA-256 of the weights) of a config.json."""
    content = schema.read_json(file, "the configuration of a model")
    refuse_older(content, "format", 2, file)

    def name(place: str) -> str:
        return f"{file}: {place}" if place else str(file)

    found = schema.parse(ModelFile, content, name)
    model = from_plain(found.model, lambda place: name(f"model.{place}".rstrip(".")))
    return model, found.input_spec, found.weights_sha256


def copy_weights(segmenter: Segmenter, path_or_name: str) -> None:
    """Give it the weights of another model of the same architecture, to train on from there.

    Buffers come with them (BatchNorm's statistics), but the state of the other training does not: warm-ups begin anew.
    """
    other = load(path_or_name)
    ours, theirs = ({k: tuple(v.shape) for k, v in of.state_dict().items()} for of in (segmenter, other))
    if ours != theirs:
        odd = min(set(ours.items()) ^ set(theirs.items()))[0]
        sentence = f"--init: expected a model with the weights of this network, found another {odd} in {path_or_name}"
        raise InputError(sentence, "conflict")
    fresh = {k: v for k, v in segmenter.state_dict().items() if k.startswith(segmenter.training_state)}
    segmenter.load_state_dict({**other.state_dict(), **fresh})


def sha256(path: Path) -> str:
    """The checksum of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
