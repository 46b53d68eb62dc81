"""The moving average of the weights: the weights of record."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


def ema_decay(decay: float, updates: int, warmup: bool) -> float:
    """The decay of update number `updates` (from 0). With the warm-up a short run forgets its random start too."""
    return min(decay, (1 + updates) / (10 + updates)) if warmup else decay


class Ema:
    """Averages of a module's parameters, one for each, in the module's order.

    It holds the parameters as the module has them: with FSDP these are this process's shards, so averaging needs no
    communication. Whoever wants the averages as a model uses `in_place`.
    """

    def __init__(self, module: nn.Module) -> None:
        self.live = [p.detach() for p in module.parameters()]  # detached, but the same memory
        self.averages = [p.clone() for p in self.live]

    @torch.no_grad()
    def update(self, decay: float) -> None:
        """average <- decay * average + (1 - decay) * parameter."""
        torch._foreach_lerp_(self.averages, self.live, 1 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The module holds the averages inside the block, and its own weights again after it."""
        own = [p.clone() for p in self.live]
        self._fill(self.averages)
        try:
            yield
        finally:
            self._fill(own)

    def restart(self) -> None:
        """The averages become what the module holds now."""
        for average, p in zip(self.averages, self.live, strict=True):
            average.copy_(p)

    def _fill(self, tensors: list[torch.Tensor]) -> None:
        # copied, not pointed to: DDP, FSDP and compiled code all know the module's memory by its address
        for p, tensor in zip(self.live, tensors, strict=True):
            p.copy_(tensor)
