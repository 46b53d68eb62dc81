"""Checkpoints on the disk: whole or absent, each file with its checksum, and nothing that could run code.

checkpoints/step-00001200/raw.safetensors        the weights as the optimiser left them: for resuming
                          ema.safetensors        their moving average: the weights of record
                          optimizer.safetensors  AdamW's moments
                          state.json             step, counters, checksums of the other three and of itself
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from berdiff.errors import InputError
from berdiff.files import whole_folder

PARTS = ("raw", "ema", "optimizer")
_NAME = re.compile(r"step-(\d{8})")

Tensors = dict[str, dict[str, Tensor]]
"""For each of PARTS: name -> tensor, whole and on the CPU."""


@dataclass(frozen=True)
class Checkpoint:
    tensors: Tensors
    state: dict[str, Any]


def write(folder: Path, step: int, tensors: Tensors, state: Mapping[str, Any], keep: int) -> Path:
    """Write `folder/step-...`, then remove all but the `keep` newest. A failure or kill leaves what was."""
    target = folder / f"step-{step:08d}"
    if target.exists():  # the same step again, after an older checkpoint had to be used
        shutil.rmtree(target)
    with whole_folder(target) as part:
        digests = {}
        for name in PARTS:
            file = part / f"{name}.safetensors"
            _save(tensors[name], file)
            digests[file.name] = _sha256(file)
            _to_disk(file)
        body = {"state": dict(state), "sha256": digests}
        file = part / "state.json"
        file.write_text(json.dumps({**body, "self": _digest(body)}, indent=2) + "\n", encoding="utf-8")
        _to_disk(file)
        _to_disk(part)
    _to_disk(folder)
    _prune(folder, keep)
    return target


def found(folder: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    return sorted(path for path in folder.glob("step-*") if _NAME.fullmatch(path.name))


def read(path: Path) -> Checkpoint:
    """A checkpoint, after its checksums; InputError names the file that is not what was written."""
    file = path / "state.json"
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        body = {"state": content["state"], "sha256": content["sha256"]}
        if content["self"] != _digest(body) or sorted(body["sha256"]) != sorted(f"{p}.safetensors" for p in PARTS):
            raise InputError(f"{file}: expected the state that was written, found an altered one")
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{file}: expected the state of a checkpoint, found {error!r}") from error
    for name, digest in body["sha256"].items():
        file = path / name
        if not file.is_file() or _sha256(file) != digest:
            what = "an altered or truncated file" if file.is_file() else "no such file"
            raise InputError(f"{file}: expected the file that was written, found {what}")
    return Checkpoint({name: load_file(path / f"{name}.safetensors") for name in PARTS}, body["state"])


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
        raise InputError(f"{folder}: expected a whole checkpoint to go on from, found only damaged ones; {damaged[0]}")
    return None, []


def is_leftover(path: Path) -> bool:
    """Whether a killed session left this half-written (see berdiff.files)."""
    return path.name.startswith(".") and path.name.endswith(".part")


def clean(run: Path, newest_whole: int, keep: int) -> None:
    """Remove what a killed session left half-written, damaged checkpoints (after `newest_whole`) and surplus ones."""
    for path in filter(is_leftover, list(run.rglob(".*.part"))):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in found(run / "checkpoints"):
        if int(path.name.removeprefix("step-")) > newest_whole:
            shutil.rmtree(path)
    _prune(run / "checkpoints", keep)


def _prune(folder: Path, keep: int) -> None:
    for old in found(folder)[:-keep]:
        shutil.rmtree(old)


def _save(tensors: Mapping[str, Tensor], file: Path) -> None:
    try:
        save_file({name: value.contiguous() for name, value in tensors.items()}, file)
    except SafetensorError as error:  # it wraps what the operating system said: `... (os error 28)`
        number = re.search(r"os error (\d+)", str(error))
        raise OSError(int(number[1]) if number else 0, str(error)) from error


def _to_disk(path: Path) -> None:
    """Wait until the disk has it: a rename before that could survive a power cut that the data did not."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
