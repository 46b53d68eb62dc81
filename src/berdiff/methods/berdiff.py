"""BerDiff, the paper's method: Bernoulli noise on masks, L_KL + L_BCE (eqs. 8-10), DDPM's or DDIM's rule."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge

from berdiff.data.input_spec import InputSpec
from berdiff.errors import InputError
from berdiff.methods.diffusion_config import DiffusionConfig

if TYPE_CHECKING:
    from berdiff.diffusion.kernels.bernoulli import Bernoulli
    from berdiff.methods.diffusion import DiffusionSegmenter


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
    hurdle: Annotated[float, Ge(0)] = 0.0
    """weight of a head that decides first whether anything is marked; the diffusion then draws what. 0: none (paper)"""

    def check(self) -> None:
        super().check()
        if not self.lambda_kl + self.lambda_bce > 0:
            raise InputError("lambda_bce: expected a weight above 0 where lambda_kl is 0, found 0")

    def kernel(self) -> "Bernoulli":
        from berdiff.diffusion.kernels.bernoulli import Bernoulli
        from berdiff.diffusion.schedule import make_schedule

        schedule, nonempty = make_schedule(self.schedule, self.T), self.hurdle > 0
        return Bernoulli(schedule, self.prediction, self.lambda_kl, self.lambda_bce, self.posterior, nonempty)

    def build(self, spec: InputSpec) -> "DiffusionSegmenter":
        if not self.hurdle:
            return super().build(spec)
        from berdiff.methods.hurdle import GatedDenoiser, HurdleSegmenter
        from berdiff.networks.build import make_network

        kernel = self.kernel()
        network = make_network(self.preset, len(spec.channels), len(spec.targets))
        return HurdleSegmenter(self, spec, GatedDenoiser(network, kernel), kernel)
