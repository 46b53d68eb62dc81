"""The plain U-net of the paper's tables: the same network without diffusion, one answer per image."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from berdiff.data.input_spec import InputSpec
from berdiff.methods.config import MethodConfig

if TYPE_CHECKING:
    from berdiff.methods.deterministic import Deterministic


@dataclass(frozen=True)
class UNet(MethodConfig):
    """The network sees an empty mask at t = 0, so the image alone, and is asked once."""

    method: ClassVar[str] = "unet"

    preset: str = "small"
    """network: fast or fast-tiny (encode once), or the paper's U-Net: paper-128, paper-224, small, tiny"""

    def build(self, spec: InputSpec) -> "Deterministic":
        from berdiff.methods.deterministic import Deterministic
        from berdiff.networks.build import make_network

        return Deterministic(self, spec, make_network(self.preset, len(spec.channels), len(spec.targets)))
