"""MedNeXt (Roy et al. 2023, arXiv 2303.09975): a U-Net of ConvNeXt blocks, taught as nnU-Net is."""

from dataclasses import dataclass
from typing import ClassVar

from berdiff.methods.families.deterministic_config import DeterministicConfig, Preset


@dataclass(frozen=True)
class MedNeXt(DeterministicConfig):
    """Not in the paper's table. Dice and cross-entropy at every resolution."""

    method: ClassVar[str] = "mednext"
    architecture: ClassVar[str] = "berdiff.networks.whole:MedNeXt"

    preset: Preset = "small"
    """sizes of the network: its authors' S (5.5 M weights), for two cores (3.1 M), for tests"""
