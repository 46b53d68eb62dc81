"""A network by the name of its preset, as a configuration file gives it."""

from berdiff.networks import encode_once, paper
from berdiff.networks.encode_once import EncodeOnce
from berdiff.networks.paper import PaperUNet

PRESETS = (*paper.PRESETS, *encode_once.PRESETS)


def make_network(preset: str, image_channels: int = 1, targets: int = 1) -> PaperUNet | EncodeOnce:
    if preset not in PRESETS:
        raise ValueError(f"preset: expected one of {', '.join(PRESETS)}, found {preset!r}")
    kind = PaperUNet if preset in paper.PRESETS else EncodeOnce
    return kind(preset, image_channels, targets)
