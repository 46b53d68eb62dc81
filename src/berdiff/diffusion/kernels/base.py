"""What every kernel offers: noise, the loss of one output, the reverse step, and how outputs of tiles are joined."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from berdiff.diffusion.random import Generators
from berdiff.diffusion.sampler import Sampler
from berdiff.diffusion.schedule import NoiseSchedule, Time


@dataclass(frozen=True, eq=False)
class Kernel(ABC):
    """Masks y0 are 0 and 1; `output` is the network's, shaped like y_t."""

    schedule: NoiseSchedule
    options: ClassVar[type[Sampler]] = Sampler
    signed: ClassVar[bool] = False  # whether noise is added to masks as -1 and 1, not as 0 and 1

    @abstractmethod
    def prior(self, shape: Sequence[int], generators: Generators, like: Tensor) -> Tensor:
        """y_T, pure noise."""

    @abstractmethod
    def q_sample(self, y0: Tensor, t: Time, generators: Generators) -> tuple[Tensor, Tensor]:
        """(y_t, eps) from a mask."""

    @abstractmethod
    def loss(
        self, output: Tensor, y0: Tensor, y_t: Tensor, eps: Tensor, t: Time, weight: Tensor | None = None
    ) -> dict[str, Tensor]:
        """The terms of the loss from one output; "loss" is their weighted sum.

        A mean over masks, or the sum with a `weight` `(B, N)` per mask.
        """

    @abstractmethod
    def step(
        self, sampler: Sampler, output: Tensor, y_t: Tensor, t: int, s: int, generators: Generators
    ) -> tuple[Tensor, Tensor]:
        """(y_s, y0_hat): the reverse step t -> s, and the estimate of the mask behind it."""

    def to_mask(self, y_0: Tensor) -> Tensor:
        """The end of the reverse chain as 0 and 1."""
        return y_0

    def to_mean(self, output: Tensor) -> Tensor:
        """An output as something whose mean over overlapping tiles makes sense; `from_mean` takes it back."""
        return output

    def from_mean(self, mean: Tensor) -> Tensor:
        """The output that a mean stands for."""
        return mean

    def check(self, sampler: Sampler) -> None:
        """Raise ValueError for a choice that this kernel does not have."""
        self.options(**vars(sampler))
