"""How a kept model was trained: trained.json beside its weights."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from berdiff.errors import InputError
from berdiff.files import write_text
from berdiff.training.config import TrainConfig, flag

TRAINED = "trained.json"
# what does not change the weights
FREE = ("recipe", "engine.", "validation.", "data.prefetch", "loop.checkpoint_every", "loop.keep", "loop.log_every")


def write_trained(folder: Path, step: int, config: TrainConfig) -> None:
    write_text(folder / TRAINED, json.dumps({"step": step, "config": asdict(config)}, indent=2) + "\n")


def read_trained(folder: Path) -> dict[str, Any]:
    file = folder / TRAINED
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return {"step": int(content["step"]), "config": dict(content["config"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file}: expected how the model was trained, found {error!r}") from error


def differences(before: dict[str, Any], config: TrainConfig) -> list[str]:
    """What of a training makes other weights than `config` would, in words; empty where nothing does."""
    there, now = _flat(before), _flat(json.loads(json.dumps(asdict(config))))
    return [
        f"{flag(name)}: there {there.get(name)}, now {value}"
        for name, value in now.items()
        if not name.startswith(FREE) and there.get(name) != value
    ]


def _flat(plain: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in plain.items():
        out |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return out
