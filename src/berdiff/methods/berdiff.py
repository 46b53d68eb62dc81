"""BerDiff, the paper's method: Bernoulli noise on masks, L_KL + L_BCE (eqs. 8-10), DDPM's or DDIM's rule."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge

from berdiff.errors import InputError
from berdiff.methods.diffusion_config import DiffusionConfig

if TYPE_CHECKING:
    from berdiff.diffusion.kernels.bernoulli import Bernoulli


@dataclass(frozen=True)
class BerDiff(DiffusionConfig):
    """The defaults are the paper's."""

    method: ClassVar[str] = "berdiff"

    prediction: Literal["noise", "mask", "prior"] = "noise"
    """what the network predicts: the noise (paper), the mask, or the mask before its own noisy pixel was seen"""
    lambda_kl: Annotated[float, Ge(0)] = 1.0  # weight of the KL divergence
    lambda_bce: Annotated[float, Ge(0)] = 1.0  # weight of the cross-entropy
    posterior: Literal["soft", "marginal"] = "soft"
    """the reverse step inside the KL divergence: the paper's, or the exact one"""

    def check(self) -> None:
        super().check()
        if not self.lambda_kl + self.lambda_bce > 0:
            raise InputError("lambda_bce: expected a weight above 0 where lambda_kl is 0, found 0")

    def kernel(self) -> "Bernoulli":
        from berdiff.diffusion.kernels.bernoulli import Bernoulli
        from berdiff.diffusion.schedule import make_schedule

        schedule = make_schedule(self.schedule, self.T)
        return Bernoulli(schedule, self.prediction, self.lambda_kl, self.lambda_bce, self.posterior)
