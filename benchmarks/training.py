"""What our loop adds to the network's own work."""

import ctypes
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median

import h5py
import numpy as np
import torch

from berdiff.data.batches import Batch
from berdiff.data.prepare import prepare
from berdiff.memory import keep_freed_memory
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.families.diffusion import DiffusionSegmenter
from berdiff.recipes.ours import LIDC_CPU, LIDC_CPU_PAPER
from berdiff.training.config import TrainConfig
from berdiff.training.loop import Trainer
from berdiff.training.session import open_trainer
from reproduce.side_by_side import durations, rounds

SLICES, STEPS = 512, 4


def _store(folder: Path) -> Path:
    """Slices of LIDC's size and layout with random contents: what is in them costs the same."""
    rng = np.random.default_rng(0)
    with h5py.File(folder / "data.hdf5", "w") as file:
        for split, count in (("train", SLICES), ("val", 2), ("test", 2)):
            group = file.create_group(split)
            group["images"] = rng.integers(0, 256, (count, 128, 128), dtype=np.uint8)
            labels = np.zeros((count, 128, 128, 4), np.uint8)
            labels[:, 50:70, 50:70] = 1
            group["labels"] = labels
            group["uids"] = [f"{split}-{i}".encode() for i in range(count)]
    prepare("lidc-hdf5", folder / "data.hdf5", folder / "store.zarr")
    return folder / "store.zarr"


def _trainer(folder: Path, config: TrainConfig[BerDiff], batch: int) -> Trainer:
    config = replace(
        config,
        data=replace(config.data, store=str(_store(folder))),
        loop=replace(config.loop, batch_size=batch),
        validation=replace(config.validation, every=0),
        engine=replace(config.engine, accelerator="cpu", devices="1"),
    )
    return open_trainer(config, folder / "run")


def _pure(trainer: Trainer, batch: Batch) -> None:
    """Forward and backward of the network, nothing else: no data, no draws, no loss worth the name, no optimiser."""
    segmenter = trainer.segmenter
    assert isinstance(segmenter, DiffusionSegmenter)
    network, N = segmenter.network, segmenter.config.masks_per_image
    masks = batch.masks[:, torch.arange(N) % batch.masks.shape[1]].float()
    t = torch.full((len(batch.image), N), 500)
    network.denoise(masks, t, network.encode(batch.image)).mean().backward()
    network.zero_grad()


def train_efficiency() -> dict[str, float]:
    """Whole steps of the loop, batches read from a store included, against forward + backward alone.

    Of `lidc-cpu`: the share of one of its two processes (8 slices, all raters), bound to one core as it has one to
    itself, so that making batches and averaging weights are paid for on that core too. Of `lidc-cpu-paper`: batches of
    8 and of the paper's 32, on all cores.
    """
    cores = os.sched_getaffinity(0)
    threads = torch.get_num_threads()
    os.sched_setaffinity(0, {min(cores)})
    try:
        share, images_per_s = _efficiency(LIDC_CPU, 8, turns=100)
    finally:
        os.sched_setaffinity(0, cores)
        torch.set_num_threads(threads)
    small, small_images_per_s = _efficiency(LIDC_CPU_PAPER, 8, turns=60)
    large, _ = _efficiency(LIDC_CPU_PAPER, 32, turns=30)
    return {
        "train_efficiency": share,
        "train_efficiency_unet_batch_8": small,
        "train_efficiency_unet_batch_32": large,
        "train_images_per_s_a_core": images_per_s,
        "train_images_per_s_unet": small_images_per_s,
    }


def _efficiency(config: TrainConfig[BerDiff], size: int, turns: int) -> tuple[float, float]:
    """(share of the network in a step, images/s) for batches of this size.

    A slow spell of these machines lasts for seconds and costs more than what is measured. So whole and pure steps
    alternate one by one, and the share is the median over pairs of neighbours.
    """
    with tempfile.TemporaryDirectory() as folder:
        trainer = _trainer(Path(folder), config, size)
        batches = trainer.batches.after(0)
        batch, steps = next(batches)[0], iter(range(1, 10**9))
        whole, network = rounds(
            lambda: trainer.step(next(steps), next(batches)),
            lambda: _pure(trainer, batch),
            repeats=turns,
            warmup=4,
        )
        batches.close()
    shares = [pure / step for step, pure in zip(whole, network, strict=True)]
    return median(shares), size / median(whole)


def allocator() -> dict[str, float]:
    """Forward + backward when glibc hands freed tensors back to the system, against `keep_freed_memory`."""
    libc = ctypes.CDLL(None)
    with tempfile.TemporaryDirectory() as folder:
        trainer = _trainer(Path(folder), LIDC_CPU_PAPER, 32)
        batch = trainer.batches.make(0)[0]

        def kept() -> None:
            keep_freed_memory()
            for _ in range(STEPS):
                _pure(trainer, batch)

        def handed_back() -> None:
            M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4
            for name, value in ((M_TRIM_THRESHOLD, 128 * 1024), (M_MMAP_THRESHOLD, 128 * 1024), (M_MMAP_MAX, 65536)):
                libc.mallopt(name, value)
            for _ in range(STEPS):
                _pure(trainer, batch)

        with_, without = durations(kept, handed_back, repeats=3, warmup=1)
        keep_freed_memory()
    return {"train_kept_memory_speedup": without / with_}
