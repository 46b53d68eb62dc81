"""Lightning Fabric from our flags: where the run is spread, in which precision, with which optimiser."""

import math
from typing import Any

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

from berdiff.errors import InputError
from berdiff.training.config import EngineConfig, OptimConfig, TrainConfig

METHODS = ("loss", "sample")  # of a Segmenter; both must pass through what Fabric wraps around it


def make_fabric(config: EngineConfig) -> Fabric:
    """Fabric with these settings; after its `launch()` the code runs in every process."""
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    strategy = ModelParallelStrategy(_shard) if config.strategy == "fsdp" else config.strategy
    try:
        fabric = Fabric(
            accelerator=config.accelerator,
            devices=int(config.devices) if config.devices.isdigit() else config.devices,
            num_nodes=config.num_nodes,
            strategy=strategy,
            precision=config.precision,
        )
    except (ValueError, RuntimeError, ModuleNotFoundError, AttributeError) as error:
        first_line = str(error).strip().splitlines()[0]
        raise InputError(f"--engine: expected settings that fit this machine, found: {first_line}") from error
    return fabric


def _shard(module: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """FSDP: weights, gradients and moments shared out within a machine, copied between machines."""
    fully_shard(module, mesh=mesh, reshard_after_forward=True)
    for name in METHODS:
        register_fsdp_forward_method(module, name)
    return module


def set_up(fabric: Fabric, segmenter: nn.Module, config: TrainConfig) -> tuple[Any, Any]:
    """(module, optimizer) as Fabric wraps them."""
    model = torch.compile(segmenter) if config.engine.compile else segmenter
    module = fabric.setup_module(model)  # pyright: ignore[reportArgumentType]
    for name in METHODS:
        module.mark_forward_method(name)
    fused = config.engine.precision != "16-mixed"  # the fused kernel would unscale fp16 gradients a second time
    optimizer = torch.optim.AdamW(
        module.parameters(), lr=config.optim.lr, weight_decay=config.optim.weight_decay, fused=fused
    )
    return module, fabric.setup_optimizers(optimizer)


def learning_rate(config: OptimConfig, step: int) -> float:
    """At step 1, 2, ...: a straight rise over the warm-up, then constant or half a cosine down to 0."""
    if step <= config.warmup_steps:
        return config.lr * step / config.warmup_steps
    if config.decay_steps is None:
        return config.lr
    done = (step - config.warmup_steps) / (config.decay_steps - config.warmup_steps)
    return config.lr * (1 + math.cos(math.pi * min(done, 1.0))) / 2
