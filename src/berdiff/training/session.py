"""From a configuration and two addresses to a running trainer."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from berdiff import schema
from berdiff.data.batches import Batches
from berdiff.data.dataset import CaseDataset
from berdiff.data.describe import by, expect
from berdiff.data.describe import check as check_that
from berdiff.data.store import Store, open_store
from berdiff.display import progress
from berdiff.errors import InputError
from berdiff.evaluation.core import OVERLAP
from berdiff.memory import keep_freed_memory
from berdiff.methods import folder as model_folder
from berdiff.methods.base import Segmenter
from berdiff.methods.config import M
from berdiff.parent import end_with_parent
from berdiff.training.config import AnyConfig, TrainConfig, check, differences, load
from berdiff.training.engine import make_fabric
from berdiff.training.loop import Trainer
from berdiff.training.plan import facts_of, lost_by_crop, plan, table, with_settings
from berdiff.training.validate import read_cases

FIRST_PROCESS = "BERDIFF_FIRST_PROCESS"


def train(config: AnyConfig, run: Path) -> str:
    """Begin the run in this folder, or resume it; returns why it ended, as a sentence."""
    config, notes = planned(with_absolute_store(check(config)), run)
    refuse_another(config, run)
    return open_trainer(config, run, notes).train()


def planned(config: TrainConfig[M], run: Path | None) -> tuple[TrainConfig[M], list[str]]:
    """The configuration with nothing left open, and what is to be said at the beginning of a run.

    A run that was begun keeps its plan, whatever the store or the machine is now.
    """
    if run is not None and (run / "config.json").is_file():
        before = dict(schema.flatten(load(run / "config.json")))
        return with_settings(config, {name: before[name] for name in config.left_open if name in before}), []
    if not config.left_open and (config.data.crop is None or os.environ.get("LOCAL_RANK", "0") != "0"):
        return config, []
    store, notes = _open_store(config), []
    if config.left_open:
        facts = facts_of(config, store)
        choices = plan(config, facts)
        config = with_settings(config, {choice.setting: choice.value for choice in choices})
        notes = table(config, choices, facts, store.address.rpartition("/")[2])
    return config, [*notes, *lost_by_crop(config, store)]


def with_absolute_store(config: TrainConfig[M]) -> TrainConfig[M]:
    """A local store by its full path: the same command from another folder is then the same run."""
    address = config.data.store
    if address is None or "://" in address:
        return config
    return replace(config, data=replace(config.data, store=str(Path(address).resolve())))


def refuse_another(config: AnyConfig, run: Path) -> None:
    """InputError where the folder holds a run that this configuration would not continue, or something else."""
    if (run / "config.json").is_file():
        changed = differences(load(run / "config.json"), config)
        advice = "take a new --out, or the settings it began with"
        check_that(not changed, f"{run}: a run of another configuration; {advice}: {'; '.join(changed)}", "changed")
    elif run.exists():
        empty = run.is_dir() and all(path.name.startswith(".") for path in run.iterdir())
        check_that(empty, f"{run}: not a run folder, and not empty", "kind")


def open_trainer(config: AnyConfig, run: Path, notes: Sequence[str] = ()) -> Trainer:
    """What the configuration asks for, opened and checked; with several devices, in each of their processes.

    `notes` are printed when the training begins.
    """
    keep_freed_memory()
    fabric = make_fabric(config.engine)
    if os.environ.get("LOCAL_RANK", "0") != "0":
        end_with_parent(int(os.environ.get(FIRST_PROCESS) or os.getppid()))
    if config.engine.devices != "1" and "LOCAL_RANK" not in os.environ:
        # this process will launch the others: what is wrong is better reported once, before there are several
        _build(config, _open_store(config))
        os.environ[FIRST_PROCESS] = str(os.getpid())
    fabric.launch()
    os.environ.pop(FIRST_PROCESS, None)  # another training's processes, begun from here, have another parent
    with fabric.rank_zero_first():  # the embedded store is made on first use
        store = _open_store(config)
    torch.manual_seed(config.seed)  # the first weights, the same in every process
    segmenter, dataset = _build(config, store)
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
    seen = store.size if config.data.patch is not None else dataset.size  # in validation: all of it, or its centre
    return Trainer(fabric, segmenter, config, batches, read_cases(store, config, seen), run, notes)


def _open_store(config: AnyConfig) -> Store:
    with progress("making the embedded data") as update:
        return open_store(config.data.store, update)


def _build(config: AnyConfig, store: Store) -> tuple[Segmenter, CaseDataset]:
    """The segmenter with the weights to begin with, and the slices it learns from."""
    data, spec = config.data, config.data.seen(store.input_spec)
    try:
        segmenter = config.model.build(spec)
    except ValueError as error:
        raise InputError(f"--model: {error}", "unsupported") from error
    cut = data.crop, data.augment, config.seed, data.shift, data.patch, data.foreground, data.negatives, data.zoom
    dataset = CaseDataset(store, data.split, segmenter.raters, *cut)
    option = "--data.crop" if data.patch is None else "--data.patch"
    fits = all(side % segmenter.stride == 0 for side in spec.size)
    expect(fits, option, f"sides in multiples of {segmenter.stride} for this network", by(spec.size), "shape")
    if spec.patches and spec.size != store.size:
        try:
            segmenter.tiled(spec.size, OVERLAP)  # what its validation, and every use, will need
        except InputError as error:
            raise InputError(f"{option}: {error}", "unsupported") from error
    if config.init is not None:
        model_folder.copy_weights(segmenter, config.init)
    return segmenter, dataset
