"""The networks of two small diffusion models for LIDC-IDRI, both with the image beside the noisy mask, as the paper's:
CCDM's (Zbinden et al. 2023, arXiv 2303.08888) and MedFM's, for flow matching."""

from dataclasses import dataclass

from berdiff.networks.paper import PaperUNet, UNetPreset
from berdiff.networks.split_unet import SplitUNet


@dataclass(frozen=True)
class NarrowPreset:
    unet: UNetPreset
    head_channels: int | None = None  # of the attention; None for one head


PRESETS = {
    # the paper's multipliers for 128x128 at a quarter of its width; attention also at 8x8, in heads of 32 channels
    "ccdm": NarrowPreset(UNetPreset((32, 32, 64, 96, 128), attention=(3, 4)), head_channels=32),
    # multipliers (1, 2, 2, 4, 5)
    "medfm": NarrowPreset(UNetPreset((32, 64, 64, 128, 160), attention=(3, 4))),
}


class NarrowUNet(PaperUNet):
    """`PaperUNet` with another U-Net in it."""

    def __init__(self, preset: str, image_channels: int = 1, targets: int = 1) -> None:
        super(PaperUNet, self).__init__(preset, image_channels, targets)  # not the paper's own U-Net
        sizes = PRESETS[preset]
        widths = sizes.unet.channels
        self.stride = 2 ** (len(widths) - 1)
        heads = None if sizes.head_channels is None else [sizes.head_channels] * len(widths)
        self.unet = SplitUNet(sizes.unet, image_channels + targets, targets, heads)
