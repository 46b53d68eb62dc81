"""Flow matching: straight lines from noise to the mask, and the velocity along them (docs/methods/flow.md).

y_t = a_t y0 + (1 - a_t) eps, with a_t = alpha_bar_t of a schedule as the weight of the mask: 1 at t = 0, 0 at T. Masks
are -1 and 1, as for the Gaussian kernel. A line is passed at the pace of a_t, so its velocity is meant per unit of a:
y0 - eps, the same at every t; the schedule decides only which weights training and sampling stop at.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor

from berdiff.diffusion.gaussian import SignedKernel, to_signal
from berdiff.diffusion.losses import over_masks
from berdiff.diffusion.random import Generators, normal
from berdiff.diffusion.sampler import FlowSampler, Sampler
from berdiff.diffusion.schedule import NoiseSchedule, Time, cast


def q_sample(schedule: NoiseSchedule, y0: Tensor, t: Time, generators: Generators) -> tuple[Tensor, Tensor]:
    """(y_t, eps) with y_t = a_t y0 + (1 - a_t) eps and eps ~ N(0, 1)."""
    schedule.check(t)
    a = schedule.at(t, y0)
    of_y0, of_eps = cast(y0, a, 1 - a)
    eps = normal(y0.shape, generators, y0)
    return of_y0 * y0 + of_eps * eps, eps


def velocity(y0: Tensor, eps: Tensor) -> Tensor:
    """dy / da along the line from eps to y0: what a network that predicts the velocity learns."""
    return y0 - eps


def predict_y0(schedule: NoiseSchedule, y_t: Tensor, v: Tensor, t: Time) -> Tensor:
    """The mask that a velocity leads to: y_t + (1 - a_t) v."""
    (left,) = cast(y_t, 1 - schedule.at(t, y_t))
    return y_t + left * v


def predict_velocity(schedule: NoiseSchedule, y_t: Tensor, y0_hat: Tensor, t: Time) -> Tensor:
    """The velocity that leads to an estimated mask: (y0_hat - y_t) / (1 - a_t); t >= 1, so there is a way left."""
    (left,) = cast(y_t, 1 - schedule.at(t, y_t))
    return (y0_hat - y_t) / left


def euler(schedule: NoiseSchedule, y_t: Tensor, v: Tensor, t: Time, s: Time) -> Tensor:
    """y_s = y_t + (a_s - a_t) v: Euler's step, exact where the velocity does not change on the way."""
    _, a_s, a_t = schedule.pair(t, s, y_t)
    (way,) = cast(y_t, a_s - a_t)
    return y_t + way * v


# --- the kernel ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Flow(SignedKernel):
    """The squared error of the velocity, or the cross-entropy of the mask: both are least at E[y0 | y_t, x].

    The schedule's alpha_bar is the weight of the mask on the line.
    """

    options: ClassVar[type[Sampler]] = FlowSampler
    prediction: Literal["velocity", "mask"] = "velocity"  # the output: the velocity, or the logits of the mask

    def q_sample(self, y0: Tensor, t: Time, generators: Generators) -> tuple[Tensor, Tensor]:
        return q_sample(self.schedule, to_signal(y0), t, generators)

    def loss(
        self, output: Tensor, y0: Tensor, y_t: Tensor, eps: Tensor, t: Time, weight: Tensor | None = None
    ) -> dict[str, Tensor]:
        if self.prediction == "velocity":
            name, error = "mse", (output - velocity(to_signal(y0), eps)).square()
        else:
            name, error = "bce", F.binary_cross_entropy_with_logits(output, y0.to(output.dtype), reduction="none")
        loss = over_masks(error, weight)
        return {"loss": loss, name: loss}

    def step(
        self, sampler: Sampler, output: Tensor, y_t: Tensor, t: int, s: int, generators: Generators
    ) -> tuple[Tensor, Tensor]:
        if self.prediction == "velocity":
            v, y0_hat = output, predict_y0(self.schedule, y_t, output, t)
        else:
            y0_hat = to_signal(output.sigmoid())
            v = predict_velocity(self.schedule, y_t, y0_hat, t)
        return euler(self.schedule, y_t, v, t, s), y0_hat

    def to_mean(self, output: Tensor) -> Tensor:
        """Velocities as they are; of logits the probabilities. Both are linear in the estimated mask."""
        return output if self.prediction == "velocity" else output.sigmoid()

    def from_mean(self, mean: Tensor) -> Tensor:
        return mean if self.prediction == "velocity" else mean.clamp(0, 1).logit()
