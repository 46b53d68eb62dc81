"""BerDiff, the paper's method: Bernoulli noise on masks, L_KL + L_BCE (eqs. 8-10), DDPM's or DDIM's rule."""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt

from berdiff.data.input_spec import InputSpec, Kind
from berdiff.errors import InputError
from berdiff.methods.families.diffusion_config import DiffusionConfig


@dataclass(frozen=True)
class BerDiff(DiffusionConfig):
    """The paper's method. Defaults shown are the recipe's; without a recipe they are the paper's."""

    method: ClassVar[str] = "berdiff"
    kinds: ClassVar[tuple[Kind, ...]] = ("independent", "nested", "exclusive")

    prediction: Literal["noise", "mask", "prior"] = "noise"
    """what the network predicts: the noise (paper), the mask, or the mask before its own noisy pixel was seen"""
    lambda_kl: Annotated[float, Ge(0)] = 1.0  # weight of the KL divergence
    lambda_bce: Annotated[float, Ge(0)] = 1.0  # weight of the cross-entropy
    posterior: Literal["soft", "marginal"] = "soft"
    """the reverse step inside the KL divergence: the paper's, or the exact one"""
    hurdle: Annotated[float, Ge(0)] = 0.0
    """weight of a head that decides first whether anything is marked; the diffusion then draws what. 0: none (paper)"""
    energy: Annotated[float, Ge(0)] = 0.0
    """with a hurdle: weight of the energy score of level sets of the first step's estimate. 0: none (paper)"""

    inner_weight: Annotated[float, Gt(0)] = 1.0
    """of nested targets: how much more a target's loss counts than that of the target around it"""

    def check(self) -> None:
        super().check()
        if not self.lambda_kl + self.lambda_bce > 0:
            raise InputError("lambda_bce: expected a weight above 0 where lambda_kl is 0, found 0", "conflict")
        if self.energy and not (self.hurdle and self.prediction == "mask"):
            raise InputError("energy: needs a hurdle and prediction mask", "conflict")

    def kernel(self, kind: Kind = "independent"):
        from berdiff.diffusion.kernels.bernoulli import Bernoulli
        from berdiff.diffusion.kernels.categorical import Categorical
        from berdiff.diffusion.nested import Nested
        from berdiff.diffusion.schedule import make_schedule

        if kind != "independent" and self.prediction != "mask":  # flips of one target say nothing of the others
            raise InputError(f"prediction: expected mask for {kind} targets, found {self.prediction}", "conflict")
        if kind != "nested" and self.inner_weight != 1:
            raise InputError(f"inner_weight: expected 1 for {kind} targets, found {self.inner_weight:g}", "conflict")
        schedule, nonempty = make_schedule(self.schedule, self.T), self.hurdle > 0
        if kind == "exclusive":
            if nonempty:  # one level does not cut classes that exclude each other
                raise InputError(f"hurdle: expected 0 for exclusive targets, found {self.hurdle:g}", "unsupported")
            return Categorical(schedule, self.lambda_kl, self.lambda_bce, self.posterior)
        if kind == "nested":
            kernel = Nested(schedule, "mask", inner_weight=self.inner_weight)
        else:
            kernel = Bernoulli(schedule, self.prediction)
        return replace(
            kernel, lambda_kl=self.lambda_kl, lambda_bce=self.lambda_bce, posterior=self.posterior, nonempty=nonempty
        )

    def build(self, spec: InputSpec):
        from berdiff.diffusion.kernels.bernoulli import Bernoulli
        from berdiff.methods.berdiff.hurdle import GatedDenoiser, HurdleSegmenter
        from berdiff.methods.families.diffusion import DiffusionSegmenter

        kernel = self.kernel(self.kind_of(spec))
        network = self.network(spec)
        if isinstance(kernel, Bernoulli) and kernel.nonempty:
            return HurdleSegmenter(self, spec, GatedDenoiser(network, kernel), kernel)
        return DiffusionSegmenter(self, spec, network, kernel)
