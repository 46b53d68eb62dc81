"""TorchMetrics over the functions: feed batches, in one process or many, and keep the value of every case."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torchmetrics import Metric

from berdiff.errors import InputError
from berdiff.metrics import pairs, votes


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
        self.add_state("values", default=[], dist_reduce_fx="cat")
        self.add_state("indices", default=[], dist_reduce_fx="cat")

    def update(self, samples: Tensor, masks: Tensor, raters: Tensor | None = None, index: Tensor | None = None) -> None:
        """samples `(B, n, K, H, W)`, masks `(B, R, K, H, W)`, raters `(B,)` or None, index `(B,)` or None."""
        if index is not None and (index.shape != (len(samples),) or index.is_floating_point()):
            raise InputError(f"index: expected {len(samples)} whole numbers, one a case, found {tuple(index.shape)}")
        values = type(self).function(samples, masks, raters)
        self.values.append(values.to(torch.float32 if self.device.type == "mps" else torch.float64).to(self.device))
        # -1: no index was given
        index = torch.full((len(samples),), -1) if index is None else index
        self.indices.append(index.to(self.device, torch.int64))

    def per_case(self) -> Tensor:
        """(N, K): the values this process holds, or of all processes inside `compute` and `sync_context`."""
        values, indices = _joined(self.values), _joined(self.indices)
        if values is None or indices is None or len(values) == 0:
            raise InputError(f"{type(self).__name__}: expected at least one case before compute, found none")
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


def _joined(state: list[Tensor] | Tensor) -> Tensor | None:
    """A list before the processes have met, one tensor after."""
    if isinstance(state, Tensor):
        return state
    return torch.cat(state) if state else None


class GED(PerCase):
    """Squared generalised energy distance, all pairs."""

    function = staticmethod(pairs.ged)
    higher_is_better = False


class UnbiasedGED(PerCase):
    """GED with the samples' own term over distinct pairs."""

    function = staticmethod(pairs.ged_unbiased)
    higher_is_better = False


class HMIoU(PerCase):
    """Hungarian-matched IoU with lcm repetition."""

    function = staticmethod(pairs.hm_iou)
    higher_is_better = True


class DMax(PerCase):
    """Each reader's best Dice among the samples."""

    function = staticmethod(pairs.d_max)
    higher_is_better = True


class Dice(PerCase):
    """Dice by slice of the saliency above 0.5 against the readers' majority."""

    function = staticmethod(votes.dice)
    higher_is_better = True


class SoftDice(PerCase):
    """Mean Dice of saliency and reader mean over five thresholds."""

    function = staticmethod(votes.soft_dice)
    higher_is_better = True


class ECE(PerCase):
    """Expected calibration error, 10 bins, by case."""

    function = staticmethod(votes.ece)
    higher_is_better = False


class Brier(PerCase):
    """Squared difference of saliency and reader mean."""

    function = staticmethod(votes.brier)
    higher_is_better = False


class NLL(PerCase):
    """Cross-entropy of the readers under the saliency, nats a pixel."""

    function = staticmethod(votes.nll)
    higher_is_better = False
