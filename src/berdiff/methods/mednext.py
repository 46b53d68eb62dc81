"""MedNeXt (Roy et al. 2023, arXiv 2303.09975): a U-Net of ConvNeXt blocks, taught as nnU-Net is."""

from dataclasses import dataclass
from typing import ClassVar

from berdiff.data.input_spec import InputSpec
from berdiff.methods.families.deterministic_config import DeterministicConfig, Preset


@dataclass(frozen=True)
class MedNeXt(DeterministicConfig):
    """Not in the paper's table. Dice and cross-entropy at every resolution."""

    method: ClassVar[str] = "mednext"

    preset: Preset = "small"
    """sizes of the network: its authors' S (5.5 M weights), for two cores (3.1 M), for tests"""

    def network(self, spec: InputSpec):
        from berdiff.networks.whole import MedNeXt as Network

        return Network(self.preset, len(spec.channels), len(spec.targets), spec.size)
