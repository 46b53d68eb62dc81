"""A network by the name of its preset, as a configuration gives it. Other packages join by `berdiff.networks`."""

from typing import Any

from berdiff.networks.denoiser import Denoiser
from berdiff.plugins import Registry

_PAPER, _ENCODE_ONCE = "berdiff.networks.paper:PaperUNet", "berdiff.networks.encode_once:EncodeOnce"
# preset -> a callable (preset, image_channels, targets) -> Denoiser
NETWORKS = Registry(
    "berdiff.networks",
    {
        **dict.fromkeys(("paper-128", "paper-224", "small", "tiny"), _PAPER),
        **dict.fromkeys(("fast", "fast-tiny"), _ENCODE_ONCE),
    },
)


def make_network(preset: str, image_channels: int = 1, targets: int = 1) -> Denoiser[Any]:
    return NETWORKS.load(preset)(preset, image_channels, targets)
