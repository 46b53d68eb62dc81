"""RUN_OR_MODEL: the folder of a training run, or a model folder by itself."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berdiff.errors import InputError
from berdiff.methods import folder
from berdiff.methods.segmenter import Segmenter


@dataclass(frozen=True, eq=False)
class Opened:
    """A model, and what its run was trained on where there is one."""

    segmenter: Segmenter
    name: str
    crop: int | None = None
    store: str | None = None


def open_model(path: str | Path, device: str = "cpu") -> Opened:
    """A run's model is in RUN/model (its weights of record); a model that lies in a run still knows that run."""
    model = folder.resolve(path)
    run = model.resolve().parent
    data = _trained_on(run / "config.json") if model.resolve().name == "model" else {}
    segmenter = folder.load(model, device)
    crop = data["crop"] if data else min(segmenter.about.get("size") or [0]) or None
    return Opened(segmenter, (run if data else model.resolve()).name, crop, data.get("store"))


def _trained_on(config: Path) -> dict[str, Any]:
    """The data section of a run's configuration; empty where there is no run."""
    if not config.is_file():
        return {}
    try:
        data = json.loads(config.read_text(encoding="utf-8"))["data"]
        crop, store = data["crop"], data["store"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{config}: expected the configuration of a run with data.crop and data.store") from error
    if not isinstance(crop, int | None) or not isinstance(store, str | None):
        raise InputError(f"{config}: expected data.crop a number and data.store a text, found {crop!r} and {store!r}")
    return {"crop": crop, "store": store}
