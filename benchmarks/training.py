"""What our loop adds to the network's own work: lidc-cpu in the paper's batches of 32, and in its own of 8."""

import ctypes
import tempfile
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import torch

from benchmarks.side_by_side import durations
from berdiff.data.prepare import prepare
from berdiff.experiments.recipes import lidc_cpu
from berdiff.memory import keep_freed_memory
from berdiff.training.batches import Batch
from berdiff.training.session import Session, open_session

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


def _session(folder: Path, batch: int = 32) -> Session:
    config = lidc_cpu()
    config = replace(
        config,
        data=replace(config.data, store=str(_store(folder))),
        loop=replace(config.loop, batch_size=batch),
        validation=replace(config.validation, every=0),
        engine=replace(config.engine, accelerator="cpu", devices="1"),
    )
    return open_session(config)


def _pure(session: Session, batch: Batch) -> None:
    """Forward and backward of the network, nothing else: no data, no draws, no loss worth the name, no optimiser."""
    network = session.segmenter.network
    t = torch.full((len(batch.image), 1), 500)
    logits = network.denoise(batch.masks.float(), t, network.encode(batch.image))
    logits.mean().backward()
    network.zero_grad()


def train_efficiency() -> dict[str, float]:
    """Whole steps of the loop, batches read from a store included, against forward + backward alone."""
    large, _ = _efficiency(32)
    small, images_per_s = _efficiency(8)
    return {"train_efficiency": large, "train_efficiency_batch_8": small, "train_images_per_s": images_per_s}


def _efficiency(size: int) -> tuple[float, float]:
    """(share of the network in a step, images/s) for batches of this size."""
    with tempfile.TemporaryDirectory() as folder:
        session = _session(Path(folder), size)
        trainer, batches = session.trainer(Path(folder) / "run"), session.batches.after(0)
        batch, steps = next(batches)[0], iter(range(1, 10**9))

        def loop() -> None:
            for _ in range(STEPS):
                trainer.step(next(steps), next(batches))

        def pure() -> None:
            for _ in range(STEPS):
                _pure(session, batch)

        whole, network = durations(loop, pure, repeats=3, warmup=1)
        batches.close()
    return network / whole, STEPS * size / whole


def allocator() -> dict[str, float]:
    """Forward + backward when glibc hands freed tensors back to the system, against `keep_freed_memory`."""
    libc = ctypes.CDLL(None)
    with tempfile.TemporaryDirectory() as folder:
        session = _session(Path(folder))
        batch = session.batches.make(0)[0]

        def kept() -> None:
            keep_freed_memory()
            for _ in range(STEPS):
                _pure(session, batch)

        def handed_back() -> None:
            M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4
            for name, value in ((M_TRIM_THRESHOLD, 128 * 1024), (M_MMAP_THRESHOLD, 128 * 1024), (M_MMAP_MAX, 65536)):
                libc.mallopt(name, value)
            for _ in range(STEPS):
                _pure(session, batch)

        with_, without = durations(kept, handed_back, repeats=3, warmup=1)
        keep_freed_memory()
    return {"train_kept_memory_speedup": without / with_}
