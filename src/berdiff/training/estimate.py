"""What a training needs, measured by a small part of one step: `berdiff train ... --dry-run`. Nothing is written."""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from berdiff.display import duration
from berdiff.errors import InputError
from berdiff.evaluation.core import sample_cases
from berdiff.training.config import AnyConfig
from berdiff.training.engine import make_fabric
from berdiff.training.loop import Trainer
from berdiff.training.machine import free_memory, used_memory
from berdiff.training.session import open_trainer

SHARE = 0.5  # of the free memory: measuring takes no more
SECONDS = 5.0  # what is measured is made larger only while it is expected to be shorter than this
BACKWARD = 1.5  # the peak of our networks over what is kept for their backward pass: gradients of activations, buffers
GB = 2**30
SMALLER = "take a smaller --model.preset or --data.crop, or --engine.precision bf16-mixed"


def estimate(config: AnyConfig) -> dict[str, Any]:
    """One slice is taken through a step, then as many as are safe and quick; the rest is arithmetic."""
    world = make_fabric(config.engine).world_size
    engine = replace(config.engine, devices="1", num_nodes=1, strategy="auto", compile=False)
    one = replace(config, engine=engine, loop=replace(config.loop, batch_size=1, accumulate=1))
    trainer = open_trainer(one, Path())
    device, processes = trainer.fabric.device, world // config.engine.num_nodes
    free, base = free_memory(device), used_memory(device)
    weights = sum(value.nbytes for value in trainer.segmenter.state_dict().values())
    share = max(1, config.loop.batch_size // world)
    at_once = max(1, share // config.loop.accumulate)
    of_slice, seconds = _measure(trainer, at_once, SHARE * free)

    def memory(slices: int) -> float:
        """Gradients, two moments and an average beside the weights; on a CPU, copies of all for a checkpoint later."""
        on_cpu = device.type == "cpu"
        each = base + max(4 * weights + slices * of_slice, 8 * weights if on_cpu else 0)
        return each * processes if on_cpu else each

    fits, advice = memory(at_once) < free, SMALLER
    for parts in range(1, share + 1):
        if share % parts == 0 and memory(share // parts) < free:
            advice = f"--loop.accumulate {parts} needs {memory(share // parts) / GB:.1f} GB for the same batch"
            break
    steps, validation = config.loop.max_steps, _validation_seconds(trainer) / world
    total = steps * seconds * share + (steps // config.validation.every * validation if validation else 0)
    cpus = world * torch.get_num_threads()
    limit = min(config.loop.max_minutes or math.inf, (config.loop.max_cpu_minutes or math.inf) / cpus) * 60
    return {
        "parameters": sum(p.numel() for p in trainer.segmenter.parameters()),
        "processes": processes,
        "slices_at_once": at_once,
        "memory_needed_gb": round(memory(at_once) / GB, 2),  # of a GPU, or of this machine for all its processes
        "memory_free_gb": round(free / GB, 2),
        "fits": "yes" if fits else f"no: {advice}",
        "seconds_per_step": round(seconds * share, 4),
        "seconds_per_validation": round(validation, 1),
        "time_for_max_steps": duration(total),
        "steps_within_limits": int(steps * min(1.0, limit / total)),
    }


def _measure(trainer: Trainer, at_once: int, limit: float) -> tuple[float, float]:
    """(bytes that a slice needs at the peak, seconds that it takes), never with more than `limit` bytes."""
    kept: dict[int, int] = {}
    known = {value.untyped_storage().data_ptr() for value in trainer.segmenter.state_dict().values()}

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        if sum(kept.values()) > limit:
            raise InputError(f"--dry-run: one image alone takes over {limit / GB:.1f} GB of memory; {SMALLER}", "limit")
        return tensor

    def step(slices: int) -> float:
        return _seconds(lambda: trainer.step(1, replace(trainer.batches, batch_size=slices).make(0)))

    with saved_tensors_hooks(count, lambda tensor: tensor):
        seconds = step(1)
    each, slices = BACKWARD * sum(kept.values()), 1
    if seconds < SECONDS:
        slices = max(1, min(at_once, int(SECONDS / seconds), int(limit / each)))
        step(slices)  # the first one is slower
        seconds = step(slices)
    return each, seconds / slices


def _validation_seconds(trainer: Trainer) -> float:
    """Of all cases, by one pass of one step and one of two: what is done once per image is not done at every step."""
    if trainer.cases is None:
        return 0.0
    segmenter, cases, validation = trainer.segmenter.eval(), trainer.cases, trainer.config.validation
    sampler, n, device = segmenter.sampler, validation.samples, trainer.fabric.device
    together = min(segmenter.images_per_pass(n), validation.batch_size, len(cases.names))
    some = cases.images[:together], cases.names[:together], n

    def measured(steps: int) -> float:
        few = None if sampler is None else replace(sampler, steps=steps)
        return _seconds(lambda: sample_cases(segmenter, *some, few, 0, device, cases.size))

    first = further = measured(1)
    if first < SECONDS:
        first = measured(1)  # the first one is slower
        further = max(0.0, measured(2) - first) if sampler is not None and sampler.count > 1 else 0.0
    steps = 1 if sampler is None else sampler.count
    return (first + (steps - 1) * further) * math.ceil(len(cases.names) / together)


def _seconds(work: Callable[[], object]) -> float:
    begun = time.monotonic()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.monotonic() - begun
