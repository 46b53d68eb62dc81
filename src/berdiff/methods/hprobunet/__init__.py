"""Hierarchical Probabilistic U-Net (Kohl et al. 2019, arXiv 1905.13077): latents from coarse to fine, and GECO."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le, Lt

from berdiff.data.input_spec import InputSpec
from berdiff.methods.config import MethodConfig


@dataclass(frozen=True)
class HierarchicalProbUNet(MethodConfig):
    """Maps of latents at four resolutions of a U-Net; as little KL as a given reconstruction allows."""

    method: ClassVar[str] = "hprobunet"

    preset: Literal["paper", "small", "tiny"] = "small"
    """sizes of both networks: the authors' for LIDC-IDRI (128x128), for two cores (64x64), for tests"""
    kappa: Annotated[float, Gt(0)] = 0.05
    """cross-entropy to reach, in nats per chosen pixel"""
    top_k: Annotated[float, Gt(0), Le(1)] = 0.02
    """share of an image's pixels that count for it, drawn in proportion to their cross-entropy; 1: all of them"""
    nu: Annotated[float, Ge(0)] = 0.01
    """rate of log lambda, the weight of the cross-entropy; 0 keeps lambda at 1, which is the ELBO"""
    average_decay: Annotated[float, Ge(0), Lt(1)] = 0.99
    """of the moving average of the cross-entropy that lambda follows"""
    masks_per_image: Annotated[int, Ge(1)] = 1
    """masks that share the encoding of an image in training: the raters in turn, from a random one on"""

    def build(self, spec: InputSpec):
        from berdiff.methods.families.latent import LatentSegmenter
        from berdiff.methods.hprobunet.geco import Geco
        from berdiff.methods.hprobunet.network import HierarchicalProbUNet as Network

        network = Network(self.preset, len(spec.channels), len(spec.targets))
        objective = Geco(self.kappa, self.nu, self.average_decay, self.top_k)
        return LatentSegmenter(self, spec, network, objective, self.masks_per_image)
