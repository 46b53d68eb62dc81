"""Swin UNETR (Hatamizadeh et al. 2022, arXiv 2201.01266): a U-Net whose encoder attends within shifted windows."""

from dataclasses import dataclass
from typing import ClassVar

from berdiff.methods.families.deterministic_config import DeterministicConfig, Preset


@dataclass(frozen=True)
class SwinUNETR(DeterministicConfig):
    """Images of at least 64x64, height and width multiples of 32."""

    method: ClassVar[str] = "swinunetr"
    architecture: ClassVar[str] = "berdiff.networks.whole:SwinUNETR"

    preset: Preset = "small"
    """sizes of the network: its authors' widths (25.1 M weights), for two cores (6.3 M), for tests"""
