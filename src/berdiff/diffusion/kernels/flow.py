"""Flow matching as a kernel: noise and mask joined by straight lines, sampled by Euler's rule."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor

from berdiff.diffusion import flow
from berdiff.diffusion.gaussian import to_mask, to_signal
from berdiff.diffusion.kernels.base import Kernel
from berdiff.diffusion.losses import over_masks
from berdiff.diffusion.random import Generators, normal
from berdiff.diffusion.sampler import FlowSampler, Sampler
from berdiff.diffusion.schedule import Time


@dataclass(frozen=True, eq=False)
class Flow(Kernel):
    """The squared error of the velocity, or the cross-entropy of the mask: both are least at E[y0 | y_t, x].

    The schedule's alpha_bar is the weight of the mask on the line (`diffusion/flow.py`).
    """

    options: ClassVar[type[Sampler]] = FlowSampler
    signed: ClassVar[bool] = True
    prediction: Literal["velocity", "mask"] = "velocity"  # the output: the velocity, or the logits of the mask

    def prior(self, shape: Sequence[int], generators: Generators, like: Tensor) -> Tensor:
        """y_T ~ N(0, 1)."""
        return normal(shape, generators, like)

    def q_sample(self, y0: Tensor, t: Time, generators: Generators) -> tuple[Tensor, Tensor]:
        return flow.q_sample(self.schedule, to_signal(y0), t, generators)

    def loss(
        self, output: Tensor, y0: Tensor, y_t: Tensor, eps: Tensor, t: Time, weight: Tensor | None = None
    ) -> dict[str, Tensor]:
        if self.prediction == "velocity":
            name, error = "mse", (output - flow.velocity(to_signal(y0), eps)).square()
        else:
            name, error = "bce", F.binary_cross_entropy_with_logits(output, y0.to(output.dtype), reduction="none")
        loss = over_masks(error, weight)
        return {"loss": loss, name: loss}

    def step(
        self, sampler: Sampler, output: Tensor, y_t: Tensor, t: int, s: int, generators: Generators
    ) -> tuple[Tensor, Tensor]:
        if self.prediction == "velocity":
            v, y0_hat = output, flow.predict_y0(self.schedule, y_t, output, t)
        else:
            y0_hat = to_signal(output.sigmoid())
            v = flow.predict_velocity(self.schedule, y_t, y0_hat, t)
        return flow.euler(self.schedule, y_t, v, t, s), y0_hat

    def to_mask(self, y_0: Tensor) -> Tensor:
        return to_mask(y_0)

    def to_mean(self, output: Tensor) -> Tensor:
        """Velocities as they are; of logits the probabilities. Both are linear in the estimated mask."""
        return output if self.prediction == "velocity" else output.sigmoid()

    def from_mean(self, mean: Tensor) -> Tensor:
        return mean if self.prediction == "velocity" else mean.clamp(0, 1).logit()
