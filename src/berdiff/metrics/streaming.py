"""TorchMetrics over the functions: feed batches, in one process or many, and keep the value of every case."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from berdiff.errors import InputError
from berdiff.metrics import pairs, votes
from berdiff.metrics.names import METRICS


class PerCase(Metric):
    """Gathers `(B, K)` values; `compute()` is the mean over cases of the mean over targets.

    Give `update` the cases' indices where a distributed sampler repeats cases to fill its last batch: each case then
    counts once, and the cases come out in that order whatever process saw them.
    """

    function: ClassVar[Callable[..., Tensor]]
    full_state_update = False
    is_differentiable = False
    # the declared states, for the type checker
    values: list[Tensor]
    indices: list[Tensor]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("values", default=[], dist_reduce_fx="cat")  # pyright: ignore
        self.add_state("indices", default=[], dist_reduce_fx="cat")  # pyright: ignore

    def update(self, samples: Tensor, masks: Tensor, raters: Tensor | None = None, index: Tensor | None = None) -> None:
        """samples `(B, n, K, H, W)`, masks `(B, R, K, H, W)`, raters `(B,)` or None, index `(B,)` or None."""
        if index is not None and (index.shape != (len(samples),) or index.is_floating_point()):
            raise InputError(f"index: expected {len(samples)} whole numbers, one per case, found {tuple(index.shape)}")
        values = type(self).function(samples, masks, raters)
        self.values.append(values.to(torch.float32 if self.device.type == "mps" else torch.float64).to(self.device))
        index = torch.full((len(samples),), -1) if index is None else index  # -1: none was given
        self.indices.append(index.to(self.device, torch.int64))

    def per_case(self) -> Tensor:
        """(N, K): the values this process holds, or of all processes inside `compute` and `sync_context`."""
        if not any(map(len, self.values)):
            raise InputError(f"{type(self).__name__}: expected at least one case before compute, found none")
        # lists before the processes have met, tensors after
        values, indices = dim_zero_cat(self.values), dim_zero_cat(self.indices)
        if bool((indices < 0).all()):
            return values
        if bool((indices < 0).any()):
            raise InputError(f"{type(self).__name__}: expected an index with every update or with none, found both")
        order = torch.argsort(indices, stable=True)
        kept = torch.ones_like(order, dtype=torch.bool)
        kept[1:] = indices[order].diff() != 0
        return values[order][kept]

    def compute(self) -> Tensor:
        """The mean over cases and targets."""
        return self.per_case().mean()


def _of(name: str, metric: str, function: Callable[..., Tensor]) -> type[PerCase]:
    """The class that gathers one of the plain functions, with its words."""
    own = {"function": staticmethod(function), "higher_is_better": METRICS[metric].better == "higher"}
    return type(name, (PerCase,), {**own, "__doc__": function.__doc__, "__module__": __name__})


GED = _of("GED", "ged", pairs.ged)
UnbiasedGED = _of("UnbiasedGED", "ged", pairs.ged_unbiased)
HMIoU = _of("HMIoU", "hm_iou", pairs.hm_iou)
DMax = _of("DMax", "d_max", pairs.d_max)
Dice = _of("Dice", "dice", votes.dice)
SoftDice = _of("SoftDice", "soft_dice", votes.soft_dice)
ECE = _of("ECE", "ece", votes.ece)
Brier = _of("Brier", "brier", votes.brier)
NLL = _of("NLL", "nll", votes.nll)
