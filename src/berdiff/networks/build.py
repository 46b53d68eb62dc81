"""A network by the name of its preset, as a configuration gives it. Other packages join by `berdiff.networks`."""

from typing import Any

from berdiff.errors import InputError
from berdiff.networks.denoiser import Denoiser
from berdiff.plugins import Registry

_PAPER, _ENCODE_ONCE = "berdiff.networks.paper:PaperUNet", "berdiff.networks.encode_once:EncodeOnce"
_SEGDIFF, _MEDSEGDIFF = "berdiff.networks.rrdb:SegDiffNet", "berdiff.networks.medsegdiff:MedSegDiffNet"
# preset -> a callable (preset, image_channels, targets[, dims]) -> Denoiser
NETWORKS = Registry(
    "berdiff.networks",
    {
        **dict.fromkeys(("paper-128", "paper-224", "small", "tiny", "ccdm", "medfm"), _PAPER),
        **dict.fromkeys(("fast", "fast-tiny"), _ENCODE_ONCE),
        **dict.fromkeys((f"segdiff-{name}" for name in ("paper-128", "paper-224", "own", "small", "tiny")), _SEGDIFF),
        **dict.fromkeys((f"medsegdiff-{name}" for name in ("paper-128", "own", "small", "tiny")), _MEDSEGDIFF),
    },
)


def make_network(preset: str, image_channels: int = 1, targets: int = 1, dims: int = 2) -> Denoiser[Any]:
    """The network of a preset, ours or a plug-in's, for so many channels, targets and spatial dimensions."""
    network = NETWORKS.load(preset)
    if dims == 2:
        return network(preset, image_channels, targets)
    if dims not in getattr(network, "spatial_dims", ()):
        sentence = f"preset: expected a network for images of {dims} dimensions, such as fast, found {preset}"
        raise InputError(sentence, "unsupported")
    return network(preset, image_channels, targets, dims)
