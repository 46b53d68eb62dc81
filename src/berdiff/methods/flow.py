"""Flow matching on any network: straight lines from noise to the mask (Lipman et al. 2022, arXiv 2210.02747)."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from berdiff.diffusion.sampler import FlowSampler
from berdiff.methods.families.diffusion_config import DiffusionConfig


@dataclass(frozen=True)
class FlowMatching(DiffusionConfig):
    """Masks as -1 and 1; the sampler's steps are Euler's, and nothing is random after y_T."""

    method: ClassVar[str] = "flow"

    prediction: Literal["velocity", "mask"] = "velocity"
    """what the network predicts: the velocity (squared error), or the mask (cross-entropy)"""
    schedule: Literal["power1", "power1.5", "power2.5", "power4"] = "power1"  # pyright: ignore[reportIncompatibleVariableOverride]
    """weight of the mask at t: 1 - t / T to this power; power1 is the usual even pace, others stay longer in noise"""
    sampler: FlowSampler = field(default_factory=FlowSampler)

    def kernel(self):
        from berdiff.diffusion.flow import Flow
        from berdiff.diffusion.schedule import power

        return Flow(power(self.T, float(self.schedule.removeprefix("power"))), self.prediction)
