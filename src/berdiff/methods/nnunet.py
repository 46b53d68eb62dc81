"""nnU-Net (Isensee et al. 2021): the network its planner makes for 2D images, its loss, its deep supervision."""

from dataclasses import dataclass
from typing import ClassVar

from berdiff.methods.families.deterministic_config import DeterministicConfig, Preset


@dataclass(frozen=True)
class NNUNet(DeterministicConfig):
    """Dice and cross-entropy at every resolution of the decoder but the coarsest."""

    method: ClassVar[str] = "nnunet"
    architecture: ClassVar[str] = "berdiff.networks.whole:NNUNet"

    preset: Preset = "small"
    """sizes of the network: its planner's for 128x128 and 224x224 (20.6 M weights), for two cores (3.3 M), for tests"""
