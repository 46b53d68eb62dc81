"""SSN, stochastic segmentation networks (Monteiro et al. 2020, arXiv 2006.06015): the logits are one Gaussian."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge

from berdiff.data.input_spec import InputSpec
from berdiff.methods.config import MethodConfig


@dataclass(frozen=True)
class SSN(MethodConfig):
    """Mean, diagonal and low-rank factor of the logits' covariance from one pass; a sample costs a sum."""

    method: ClassVar[str] = "ssn"

    preset: Literal["paper", "small", "tiny"] = "small"
    """sizes of the U-Net: the authors' for LIDC-IDRI (128x128), for two cores (64x64), for tests"""
    rank: Annotated[int, Ge(1)] = 10
    """columns of the factor: directions in which the logits of all pixels move together"""
    draws: Annotated[int, Ge(1)] = 20
    """draws of the logits over which the likelihood of a mask is averaged"""
    mean_steps: Annotated[int, Ge(0)] = 0
    """steps in which the mean learns alone, by plain cross-entropy"""
    masks_per_image: Annotated[int, Ge(1)] = 1
    """masks that share the draws of an image in training: the raters in turn, from a random one on"""

    def build(self, spec: InputSpec):
        from berdiff.methods.ssn.network import SSN as Network
        from berdiff.methods.ssn.segmenter import LowRankSegmenter

        network = Network(self.preset, len(spec.channels), len(spec.targets), spec.size, self.rank)
        return LowRankSegmenter(self, spec, network)
