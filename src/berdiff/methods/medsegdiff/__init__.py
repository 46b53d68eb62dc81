"""MedSegDiff (Wu et al. 2022, arXiv 2211.00611): Gaussian diffusion, a condition net that follows the noisy mask."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Gt

from berdiff.data.input_spec import InputSpec
from berdiff.methods.gaussian import GaussianDiffusion


@dataclass(frozen=True)
class MedSegDiff(GaussianDiffusion):
    """In training the condition net also learns to guess the mask by itself."""

    method: ClassVar[str] = "medsegdiff"
    networks: ClassVar[str] = "medsegdiff-"

    preset: Literal["paper-128", "own", "small", "tiny"] = "small"
    """the U-Net beside the condition net: the paper's for 128x128, MedSegDiff's own, for two cores, for tests"""
    lambda_guess: Annotated[float, Gt(0)] = 10.0  # weight of the squared error of the condition net's own mask

    def build(self, spec: InputSpec):
        from berdiff.methods.medsegdiff.segmenter import GuessingDiffusion

        return GuessingDiffusion(self, spec, self.network(spec), self.kernel())
