"""SegDiff (Amit et al. 2021, arXiv 2112.00390): Gaussian diffusion whose network reads the image once, by an RRDB."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from berdiff.methods.gaussian import GaussianDiffusion


@dataclass(frozen=True)
class SegDiff(GaussianDiffusion):
    """All but the network is `gaussian`'s."""

    method: ClassVar[str] = "segdiff"
    networks: ClassVar[str] = "segdiff-"

    preset: Literal["paper-128", "paper-224", "own", "small", "tiny"] = "small"
    """the U-Net behind the RRDB: the paper's for 128x128 or 224x224, SegDiff's own, for two cores, for tests"""
