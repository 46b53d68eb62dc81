"""From a configuration and two addresses to a running trainer."""

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import nn

from berdiff.data.augment import window
from berdiff.data.dataset import SliceDataset
from berdiff.data.hounsfield import LUNG_WINDOW
from berdiff.data.store import Store, open_store
from berdiff.errors import InputError
from berdiff.evaluation.evaluate import Settings, choose
from berdiff.memory import keep_freed_memory
from berdiff.methods import folder as model_folder
from berdiff.methods.sampler import as_steps, choose_sampler
from berdiff.training.batches import Batches
from berdiff.training.checkpoint import is_leftover
from berdiff.training.config import TrainConfig, check, differences, load
from berdiff.training.engine import make_fabric
from berdiff.training.loop import Trainer
from berdiff.training.validate import Cases

Make = Callable[[TrainConfig, Store, tuple[int, int]], Any]
"""(configuration, store, (height, width)) -> a Segmenter with fresh weights."""


@dataclass(frozen=True)
class Session:
    """All that a run is made of, in this process."""

    config: TrainConfig
    fabric: Fabric
    segmenter: nn.Module
    batches: Batches
    cases: Cases | None

    def trainer(self, run: Path) -> Trainer:
        return Trainer(self.fabric, self.segmenter, self.config, self.batches.after, self.cases, run)


def train(config: TrainConfig, run: Path, make: Make | None = None) -> str:
    """Begin the run in this folder, or go on with it; returns why it ended, as a sentence."""
    config = with_absolute_store(check(config))
    refuse_another(config, run)
    return open_session(config, make).trainer(run).train()


def with_absolute_store(config: TrainConfig) -> TrainConfig:
    """A local store by its full path: the same command from another folder is then the same run."""
    address = config.data.store
    if address is None or "://" in address:
        return config
    return replace(config, data=replace(config.data, store=str(Path(address).resolve())))


def refuse_another(config: TrainConfig, run: Path) -> None:
    """InputError where the folder holds a run that this configuration would not continue, or something else."""
    if (run / "config.json").is_file():
        changed = differences(load(run / "config.json"), config)
        if changed:
            raise InputError(
                f"{run}: expected the configuration this run was begun with, found another; "
                f"take a new --out, or leave as it was: {'; '.join(changed)}"
            )
    elif run.exists() and (not run.is_dir() or any(not is_leftover(path) for path in run.iterdir())):
        raise InputError(f"{run}: expected a run folder, an empty folder or none, found other files")


def open_session(config: TrainConfig, make: Make | None = None) -> Session:
    """`make` builds the Segmenter to train; without it, the method that `config.model` says."""
    keep_freed_memory()
    make = make or make_segmenter
    fabric = make_fabric(config.engine)
    if config.engine.devices != "1" and "LOCAL_RANK" not in os.environ:
        # this process will launch the others: what is wrong is better said once, before there are several
        dataset = _dataset(config, open_store(config.data.store))
        make(config, dataset.store, dataset.size)
    fabric.launch()
    with fabric.rank_zero_first():  # the embedded store is made on first use
        store = open_store(config.data.store)
    dataset = _dataset(config, store)
    batches = Batches(
        dataset,
        config.loop.batch_size,
        config.loop.accumulate,
        config.seed,
        fabric.global_rank,
        fabric.world_size,
        config.data.prefetch,
        pin=fabric.device.type == "cuda",
    )
    cases = read_cases(store, config, dataset.size) if config.validation.every else None
    torch.manual_seed(config.seed)  # the first weights, the same in every process
    return Session(config, fabric, make(config, store, dataset.size), batches, cases)


def _dataset(config: TrainConfig, store: Store) -> SliceDataset:
    data = config.data
    raters = "random" if config.model.masks_per_image == 1 else "repeat"
    return SliceDataset(store, data.split, raters, data.crop, data.augment, config.seed, data.shift)


def make_segmenter(config: TrainConfig, store: Store, size: tuple[int, int]) -> Any:
    """The method with fresh weights, for the channels and targets of this store."""
    model = config.model
    network = {"preset": model.preset, "image_channels": len(store.channels), "targets": len(store.targets)}
    try:
        segmenter = model_folder.build(method_config(config, network))
    except ValueError as error:
        raise InputError(f"--model: {error}") from error
    if model.init is not None:
        begin_from(segmenter, model.init)
    if model.method != "unet":
        choose_sampler(segmenter)  # refuses steps that the schedule does not have
    stride = segmenter.network.stride
    if size[0] % stride or size[1] % stride:
        raise InputError(
            f"--data.crop: expected height and width in multiples of {stride} for the network {model.preset}, "
            f"found {size[0]}x{size[1]}"
        )
    segmenter.about = about(store, size)
    return segmenter


def begin_from(segmenter: Any, path_or_name: str) -> None:
    """Give it the weights of another model, to train on from there."""
    other = model_folder.load(path_or_name)
    ours, theirs = segmenter.network.config(), other.network.config()
    if ours != theirs:
        raise InputError(f"--model.init: expected a model with the network {ours}, found {theirs} in {path_or_name}")
    segmenter.load_state_dict(other.state_dict())


def method_config(config: TrainConfig, network: dict[str, Any]) -> dict[str, Any]:
    """What `methods.folder.build` takes; only what the method uses (`config.check` has refused the rest)."""
    model = config.model
    if model.method == "unet":
        return {"method": "unet", "network": network}
    shared = {
        "method": model.method,
        "network": network,
        "schedule": {"name": model.schedule, "T": model.T},
        "target": model.target,
        "time_sampling": model.time_sampling,
        "masks_per_image": model.masks_per_image,
        "sampler": asdict(config.sampler) | {"steps": as_steps(config.sampler.steps)},
    }
    if model.method == "gaussian":
        return shared
    return shared | {"lambda_kl": model.lambda_kl, "lambda_bce": model.lambda_bce, "posterior": model.posterior}


def about(store: Store, size: tuple[int, int]) -> dict[str, Any]:
    """What goes with the weights, so that an image can later be shown to them as they know it."""
    manifest, options = store.manifest, store.manifest.options
    window, scale = options.get("window"), options.get("scale", "auto")
    if manifest.source == "lidc-readers":
        window = LUNG_WINDOW
    elif manifest.source == "lidc-dicom":
        window = (options["hu_low"], options["hu_high"])
    elif manifest.source == "brats":
        scale = "brain"
    elif manifest.source in ("lidc-hdf5", "lidc-png"):
        scale = "minmax"  # of each slice of the packed size: so it is in the public set, checked against the DICOM
    return {
        "size": list(size),
        "channels": list(store.channels),
        "targets": list(store.targets),
        "window": list(window) if window else None,
        "scale": scale,
        "tails": options.get("tails", 1.0),
        "field": max(store.size),
        "data": manifest.source,
        "notes": list(store.notes),
    }


def read_cases(store: Store, config: TrainConfig, size: tuple[int, int]) -> Cases:
    """The fixed subset to validate on: what `berdiff evaluate` takes with the same split, seed and --limit."""
    chosen = choose(store, Settings(split=config.validation.split, seed=config.seed, limit=config.validation.cases))
    images, masks = store.read(chosen)
    return Cases(
        torch.from_numpy(np.ascontiguousarray(window(images, size))),
        torch.from_numpy(np.ascontiguousarray(window(masks, size))),
        torch.from_numpy(store.cases.raters[chosen].astype(np.int64)),
        [str(name) for name in store.cases.case[chosen]],
        store.notes,
    )
