"""The paper's network: improved-diffusion's U-Net on the noisy mask and the image, concatenated.

MONAI's `DiffusionModelUNet` equals it weight for weight, so it is used as it is. Here are only the presets and the
`Denoiser` interface around it; two small models for LIDC-IDRI have the same network in other sizes. The memory format
follows the weights': the default one to train, channels_last to sample (`methods.folder.load`), each the faster there
on a CPU (docs/results.md).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from berdiff.networks.denoiser import Denoiser


@dataclass(frozen=True)
class UNetPreset:
    """Sizes of the U-Net; no dropout, no scale-shift, as in the paper's release."""

    channels: tuple[int, ...]
    attention: tuple[int, ...]  # at these levels; level i works at 1 / 2^i of the resolution
    groups: int = 32
    res_blocks: int = 2
    head_channels: tuple[int, ...] | None = None  # of the attention at each level; None: one head


PRESETS = {
    # 128x128: base 128, multipliers (1, 1, 2, 3, 4), attention at 16x16
    "paper-128": UNetPreset((128, 128, 256, 384, 512), attention=(3,)),
    # 224x224: the multipliers of 256x256, (1, 1, 2, 2, 4, 4); attention at 14x14, the level nearest to 16x16
    "paper-224": UNetPreset((128, 128, 256, 256, 512, 512), attention=(4,)),
    # for two cores: the same shape, narrow
    "small": UNetPreset((32, 32, 64, 96), attention=(3,), groups=16, res_blocks=1),
    "tiny": UNetPreset((16, 32, 32), attention=(2,), groups=8, res_blocks=1),
    # CCDM (Zbinden et al. 2023, arXiv 2303.08888): a quarter of the width for 128x128, attention also at 8x8
    "ccdm": UNetPreset((32, 32, 64, 96, 128), attention=(3, 4), head_channels=(32,) * 5),
    # MedFM, for flow matching: multipliers (1, 2, 2, 4, 5)
    "medfm": UNetPreset((32, 64, 64, 128, 160), attention=(3, 4)),
}


class PaperUNet(Denoiser[Tensor]):
    """`encode` returns the image: this network reads it again at every step, as the paper's does."""

    def __init__(self, preset: str, image_channels: int = 1, targets: int = 1) -> None:
        super().__init__(preset, image_channels, targets)
        from berdiff.networks.split_unet import SplitUNet  # MONAI takes seconds to import

        sizes = PRESETS[preset]
        self.stride = 2 ** (len(sizes.channels) - 1)
        self.unet = SplitUNet(sizes, image_channels + targets, targets)

    def encode(self, image: Tensor) -> Tensor:
        self.check(image)
        return image

    def denoise(self, y_t: Tensor, t: Tensor, features: Tensor) -> Tensor:
        """The features are the images `(B, C, H, W)`."""
        N = y_t.shape[1]
        image = features.unsqueeze(1).expand(-1, N, -1, -1, -1)
        return self.unet(torch.cat([y_t, image], 2).flatten(0, 1), t.flatten()).reshape(y_t.shape)
