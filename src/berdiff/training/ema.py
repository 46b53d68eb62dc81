"""The moving average of the weights: what a training gives."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


def ema_decay(decay: float, updates: int, warmup: bool) -> float:
    """The decay of update number `updates` (from 0). With the warm-up a short run forgets its random start too."""
    return min(decay, (1 + updates) / (10 + updates)) if warmup else decay


class Ema:
    """Averages of a module's parameters, and with `buffers` of its float buffers, in the module's order.

    It holds the tensors as the module has them: with FSDP these are this process's shards, so averaging needs no
    communication. Whoever wants the averages as a model uses `in_place`; what is not averaged is there as it is.
    """

    def __init__(self, module: nn.Module, buffers: bool = False) -> None:
        self.live = [p.detach() for p in module.parameters()]  # detached, but the same memory
        if buffers:
            self.live += [b for b in saved_buffers(module) if b.is_floating_point()]
        self.averages = [p.clone() for p in self.live]

    @torch.no_grad()
    def update(self, decay: float) -> None:
        """average <- decay * average + (1 - decay) * parameter."""
        torch._foreach_lerp_(self.averages, self.live, 1 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The module holds the averages inside the block, and its own weights again after it."""
        own = [p.clone() for p in self.live]
        copy(self.averages, self.live)
        try:
            yield
        finally:
            copy(own, self.live)

    def restart(self) -> None:
        """The averages become what the module holds now."""
        copy(self.live, self.averages)


def saved_buffers(module: nn.Module) -> list[torch.Tensor]:
    """Those that a checkpoint holds, the same memory."""
    saved = module.state_dict().keys()
    return [buffer for name, buffer in module.named_buffers() if name in saved]


@torch.no_grad()
def copy(tensors: list[torch.Tensor], into: list[torch.Tensor]) -> None:
    """Values alone."""
    # copied, not pointed to: DDP, FSDP and compiled code all know the module's memory by its address
    for target, tensor in zip(into, tensors, strict=True):
        target.copy_(tensor)
