"""Weights, averages and optimiser of a live run as plain whole tensors, and back; for one process, DDP and FSDP."""

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from berdiff.training.checkpoint import Tensors
from berdiff.training.ema import Ema


def gather(module: nn.Module, optimizer: Optimizer, ema: Ema) -> Tensors:
    """Everything a checkpoint holds. With FSDP every process must call it: shards come together here."""
    raw = weights(module)
    with ema.in_place():
        averaged = weights(module)
    moments = {}
    for name, p in module.named_parameters():
        for key, value in optimizer.state.get(p, {}).items():
            moments[f"{name}/{key}"] = _whole(value)
    return {"raw": raw, "ema": averaged, "optimizer": moments}


def restore(tensors: Tensors, module: nn.Module, optimizer: Optimizer, ema: Ema) -> None:
    """Put what `gather` gave back into a module of the same shape, however it is spread over processes now."""
    _fill(module, tensors["ema"])
    ema.restart()
    _fill(module, tensors["raw"])
    parameters = dict(module.named_parameters())
    optimizer.state.clear()
    for name, value in tensors["optimizer"].items():
        parameter, key = name.rsplit("/", 1)
        p = parameters[parameter]
        # moments are kept as the parameter is; the step count on the CPU, but with the fused kernel beside it
        like = p if key != "step" else torch.empty((), device=p.device if optimizer.defaults["fused"] else "cpu")
        optimizer.state[p][key] = _spread(value, like)


@torch.no_grad()
def _fill(module: nn.Module, weights: dict[str, Tensor]) -> None:
    own = module.state_dict()
    if own.keys() != weights.keys():
        raise ValueError(f"weights: expected the names of the module, found others: {own.keys() ^ weights.keys()}")
    for name, value in own.items():
        value.copy_(_spread(weights[name], value))


def weights(module: nn.Module) -> dict[str, Tensor]:
    return {name: _whole(value) for name, value in module.state_dict().items()}


def _whole(value: Tensor) -> Tensor:
    value = value.detach()
    return (value.full_tensor() if isinstance(value, DTensor) else value).cpu().clone()


def _spread(value: Tensor, like: Tensor) -> Tensor:
    """`value` in memory format, device and sharding as `like`."""
    if isinstance(like, DTensor):
        return distribute_tensor(value.to(like.device), like.device_mesh, like.placements)
    return torch.empty_like(like.detach()).copy_(value)
