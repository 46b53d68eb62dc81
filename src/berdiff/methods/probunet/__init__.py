"""Probabilistic U-Net (Kohl et al. 2018, arXiv 1806.05034): a conditional VAE whose decoder is a U-Net."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge

from berdiff.data.input_spec import InputSpec
from berdiff.methods.config import MethodConfig


@dataclass(frozen=True)
class ProbUNet(MethodConfig):
    """A vector z per mask, from a prior given the image; in training from a posterior that also sees the mask."""

    method: ClassVar[str] = "probunet"

    preset: Literal["paper", "small", "tiny"] = "small"
    """sizes of the three networks: the authors' for LIDC-IDRI, for two cores, for tests"""
    dims: Annotated[int, Ge(1)] = 6
    """length of the vector z"""
    beta: Annotated[float, Ge(0)] = 1.0
    """weight of the KL divergence against the cross-entropy summed over pixels"""
    beta_warmup: Annotated[int, Ge(0)] = 0
    """steps over which beta rises from 0"""
    masks_per_image: Annotated[int, Ge(1)] = 1
    """masks that share the encoding of an image in training: the raters in turn, from a random one on"""

    def build(self, spec: InputSpec):
        from berdiff.methods.families.latent import Elbo, LatentSegmenter
        from berdiff.methods.probunet.network import ProbUNet as Network

        network = Network(self.preset, len(spec.channels), len(spec.targets), self.dims)
        return LatentSegmenter(self, spec, network, Elbo(self.beta, self.beta_warmup), self.masks_per_image)
