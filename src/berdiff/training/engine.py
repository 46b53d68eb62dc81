"""Lightning Fabric and an optimiser from our settings: where a run is spread, how precise, and how its weights move.

The parameter groups of a method each have their own rate at a step, and are clipped by themselves."""

import math
import os
from typing import Any

import torch
from lightning_fabric import Fabric
from lightning_fabric.accelerators import CPUAccelerator
from lightning_fabric.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD, AdamW, Optimizer

from berdiff.data.describe import expect, present
from berdiff.device import expect_bf16
from berdiff.errors import InputError, first_line
from berdiff.methods.base import Segmenter
from berdiff.training.config import AnyConfig, EngineConfig, OptimConfig

POWER = 0.9  # of the decay poly
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
        sentence = f"--engine: expected settings that fit this machine, found: {first_line(error)}"
        raise InputError(sentence, "unsupported") from error
    first = os.environ.get("LOCAL_RANK", "0") == "0"  # one process tries it for all of a machine
    if config.precision == "bf16-mixed" and first and isinstance(fabric.accelerator, CPUAccelerator):
        expect_bf16("--engine.precision")
    return fabric


def _shard(module: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """FSDP: weights, gradients and moments shared out within a machine, copied between machines."""
    fully_shard(module, mesh=mesh, reshard_after_forward=True)
    for name in METHODS:
        register_fsdp_forward_method(module, name)
    return module


def set_up(fabric: Fabric, segmenter: Segmenter, config: AnyConfig) -> tuple[Any, Any]:
    """(module, optimizer) as Fabric wraps them; `module.module` is the segmenter again, however it is spread."""
    model = torch.compile(segmenter) if config.engine.compile else segmenter
    module: Any = fabric.setup_module(model)  # pyright: ignore[reportArgumentType]
    for name in METHODS:
        module.mark_forward_method(name)
    fused = config.engine.precision != "16-mixed"  # the fused kernel would unscale fp16 gradients a second time
    return module, fabric.setup_optimizers(make_optimizer(module.module, config.optim, fused))


def sum_over_processes(fabric: Fabric, values: Tensor) -> Tensor:
    """All processes must call it, and get the same."""
    return fabric.all_reduce(values, reduce_op="sum") if fabric.world_size > 1 else values  # pyright: ignore


def make_optimizer(segmenter: Segmenter, config: OptimConfig, fused: bool) -> Optimizer:
    """What a group leaves open is as the configuration says. Each group of the optimiser knows its ParameterGroup."""
    groups = segmenter.parameter_groups()
    members: list[list[Tensor]] = [[] for _ in groups]
    for name, parameter in segmenter.named_parameters():
        place = next((i for i, group in enumerate(groups) if name.startswith(group.prefixes)), None)
        members[present(place, "parameter_groups", f"a group for {name}")].append(parameter)
    options = []
    for group, parameters in zip(groups, members, strict=True):
        beginnings = " or ".join(group.prefixes)
        expect(parameters, "parameter_groups", f"parameters beginning with {beginnings}", code="missing")
        common = {"params": parameters, "rate": group.rate_at, "clip_norm": config.clip_norm}
        own = {"betas": group.betas, "weight_decay": group.weight_decay, "clip_norm": group.clip_norm}
        options.append(common | {name: value for name, value in own.items() if value is not None})
    if config.kind == "adamw":
        return AdamW(options, lr=config.lr, weight_decay=config.weight_decay, fused=fused)
    for_adam = "adamw for a method whose parameter groups have betas"
    expect(all(group.betas is None for group in groups), "--optim.kind", for_adam, config.kind, "conflict")
    momentum = config.momentum or 0.0  # the configuration was checked: it has one
    return SGD(options, config.lr, momentum, 0.0, config.weight_decay, config.nesterov, fused=fused)


def learning_rate(config: OptimConfig, step: int, used: float = 0.0) -> float:
    """At step 1, 2, ...: a straight rise over the warm-up, then constant, half a cosine or a power down to 0.

    `used`: the share of the run that is over, by which it falls where no `decay_steps` are given.
    """
    if step <= config.warmup_steps:
        return config.lr * step / config.warmup_steps
    if config.decay == "constant":
        return config.lr
    if config.decay_steps is not None:
        used = (step - config.warmup_steps) / (config.decay_steps - config.warmup_steps)
    done = min(used, 1.0)
    if config.decay == "poly":
        return config.lr * (1 - done) ** POWER
    return config.lr * (1 + math.cos(math.pi * done)) / 2


def set_rates(optimizer: Optimizer, config: OptimConfig, step: int, used: float = 0.0) -> None:
    """Before the step; a group that rests at it loses its gradients, so neither momentum nor decay moves it."""
    for group in optimizer.param_groups:
        factor = group["rate"](step)
        group["lr"] = factor * learning_rate(config, step, used)
        if factor == 0:
            for parameter in group["params"]:
                parameter.grad = None


def clip(optimizer: Optimizer) -> Tensor:
    """Shorten the gradient of each group where asked; the length of the whole before that."""
    norms = [
        clip_grad_norm_(group["params"], group["clip_norm"] or math.inf)
        for group in optimizer.param_groups
        if any(parameter.grad is not None for parameter in group["params"])
    ]
    whole = [norm.full_tensor() if isinstance(norm, DTensor) else norm for norm in norms]
    if len(whole) == 1:
        return whole[0]
    return torch.linalg.vector_norm(torch.stack(whole)) if whole else torch.zeros(())
