"""TransU-Net (Chen et al. 2021, arXiv 2102.04306): a vision transformer between an encoder and a decoder with skips."""

from dataclasses import dataclass
from typing import ClassVar

from berdiff.methods.families.deterministic_config import DeterministicConfig, Preset


@dataclass(frozen=True)
class TransUNet(DeterministicConfig):
    """From fresh weights, not from ImageNet's. Dice and cross-entropy in equal parts."""

    method: ClassVar[str] = "transunet"
    architecture: ClassVar[str] = "berdiff.methods.transunet.network:TransUNet"
    spatial_dims: ClassVar[tuple[int, ...]] = (2,)

    preset: Preset = "small"
    """sizes of the network: ResNet-50 and ViT-B/16 (105.3 M weights), for two cores (6 M), for tests"""
