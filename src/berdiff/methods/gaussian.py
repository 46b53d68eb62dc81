"""Gaussian diffusion on the same network: the other row of table 2, and what SegDiff is at heart."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from berdiff.diffusion.sampler import GaussianSampler
from berdiff.methods.families.diffusion_config import DiffusionConfig


@dataclass(frozen=True)
class GaussianDiffusion(DiffusionConfig):
    """Masks as -1 and 1, Gaussian noise, the squared error of the estimate."""

    method: ClassVar[str] = "gaussian"

    prediction: Literal["noise", "mask"] = "noise"  # what the network predicts: the noise, or the mask as -1 and 1
    sampler: GaussianSampler = field(default_factory=lambda: GaussianSampler(sigma=0.0))

    def kernel(self):
        from berdiff.diffusion.gaussian import Gaussian
        from berdiff.diffusion.schedule import make_schedule

        return Gaussian(make_schedule(self.schedule, self.T), self.prediction)
