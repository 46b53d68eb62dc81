"""The plain U-net of the paper's tables: the same network without diffusion, one answer per image."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge

from berdiff.data.input_spec import InputSpec
from berdiff.methods.families.deterministic_config import DeterministicConfig


@dataclass(frozen=True)
class UNet(DeterministicConfig):
    """The network sees an empty mask at t = 0, so the image alone, and is asked once."""

    method: ClassVar[str] = "unet"

    preset: str = "small"
    """network: fast or fast-tiny (encode once), or the paper's U-Net: paper-128, paper-224, small, tiny"""
    lambda_dice: Annotated[float, Ge(0)] = 0.0  # weight of the soft Dice loss, of each image by itself

    def network(self, spec: InputSpec):
        from berdiff.networks.build import make_network

        return make_network(self.preset, len(spec.channels), len(spec.targets), len(spec.size))
