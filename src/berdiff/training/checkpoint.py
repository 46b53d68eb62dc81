"""Checkpoints on the disk: whole or absent, each file with its checksum, and nothing that could run code.

checkpoints/step-00001200/raw.safetensors        the weights as the optimiser left them, and buffers: for resuming
                          ema.safetensors        their moving average: the trained model
                          optimizer.safetensors  the optimiser's moments
                          state.json             step, counters, checksums of the other three and of itself
"""

import hashlib
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from berdiff import schema
from berdiff.errors import InputError
from berdiff.files import remove_leftovers, to_disk, whole_folder
from berdiff.methods.folder import sha256
from berdiff.training.config import Natural, NotNegative

PARTS = ("raw", "ema", "optimizer")
Tensors = dict[str, dict[str, Tensor]]  # for each of PARTS: name -> tensor, whole and on the CPU


@dataclass(frozen=True)
class StateFile(schema.Settings):
    """state.json."""

    state: dict[str, Any]
    sha256: dict[str, str]
    checksum: str  # of the two above


@dataclass
class Counters(schema.Content):
    """All that changes in a run besides tensors, and the `state` of a state.json."""

    step: Natural = 0  # batches seen
    skipped: Natural = 0  # of these, steps whose loss or gradient was not finite
    bad_in_a_row: Natural = 0
    minutes: NotNegative = 0.0  # of the sessions before this one
    cpu_minutes: NotNegative = 0.0  # the same, of the CPUs of all processes
    best_ged: float | None = None
    best_step: Natural = 0
    scaler: dict[str, Any] = field(default_factory=dict)  # of fp16's gradients; empty otherwise


@dataclass(frozen=True)
class Checkpoint:
    tensors: Tensors
    state: dict[str, Any]


def write(folder: Path, step: int, tensors: Tensors, state: dict[str, Any], keep: int) -> Path:
    """Write `folder/step-...`, then remove all but the `keep` newest. A failure or kill leaves what was."""
    target = folder / f"step-{step:08d}"
    if target.exists():  # the same step again, after an older checkpoint had to be used
        shutil.rmtree(target)
    with whole_folder(target) as part:
        digests = {}
        for name in PARTS:
            file = part / f"{name}.safetensors"
            save_file({key: value.contiguous() for key, value in tensors[name].items()}, file)
            digests[file.name] = sha256(file)
            to_disk(file)
        content = StateFile(state, digests, _checksum(state, digests))
        (part / "state.json").write_text(schema.dump(content), encoding="utf-8")
        to_disk(part / "state.json")
        to_disk(part)
    to_disk(folder)
    _prune(folder, keep)
    return target


def found(folder: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    return sorted(folder.glob("step-" + 8 * "[0-9]"))


def read(path: Path) -> Checkpoint:
    """A checkpoint, after its checksums; InputError names the file that is not what was written."""
    file = path / "state.json"
    content = schema.read(file, StateFile, "the state of a checkpoint")
    expected = {f"{name}.safetensors" for name in PARTS}
    if content.checksum != _checksum(content.state, content.sha256) or content.sha256.keys() != expected:
        raise InputError(f"{file}: altered since it was written", "damaged")
    for name, digest in content.sha256.items():
        file = path / name
        if not file.is_file() or sha256(file) != digest:
            raise InputError(f"{file}: altered, truncated or missing", "damaged")
    try:
        return Checkpoint({name: load_file(path / f"{name}.safetensors") for name in PARTS}, content.state)
    except SafetensorError as error:
        raise InputError(f"{path}: the tensors cannot be read ({error})", "damaged") from error


def read_newest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest whole checkpoint, and a sentence about each newer one that is damaged.

    None where there is no checkpoint at all; InputError where there are some but not one is whole.
    """
    damaged: list[str] = []
    for path in reversed(found(folder)):
        try:
            return read(path), damaged
        except InputError as error:
            damaged.append(f"{path.name} is damaged ({error}); the one before it is used")
    if damaged:
        raise InputError(f"{folder}: every checkpoint is damaged; {damaged[0]}", "damaged")
    return None, []


def clean(run: Path, newest_whole: int, keep: int) -> None:
    """Remove what a killed session left half-written, damaged checkpoints (after `newest_whole`) and surplus ones."""
    remove_leftovers(run)
    for path in found(run / "checkpoints"):
        if int(path.name.removeprefix("step-")) > newest_whole:
            shutil.rmtree(path)
    _prune(run / "checkpoints", keep)


def _prune(folder: Path, keep: int) -> None:
    for old in found(folder)[:-keep]:
        shutil.rmtree(old)


def _checksum(state: dict[str, Any], digests: dict[str, str]) -> str:
    body = json.dumps({"state": state, "sha256": digests}, sort_keys=True)
    return hashlib.sha256(body.encode()).hexdigest()
