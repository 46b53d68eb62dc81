"""Networks that answer in one look at the image: nnU-Net's, Swin UNETR and MedNeXt, by MONAI.

Each is MONAI's network as it is; here are only the presets and the interface around it.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from berdiff.networks.check_image import Size, check_multiples, check_size
from berdiff.networks.denoiser import Denoiser


class Whole(Denoiser[Tensor]):
    """A `Denoiser` with nothing left to do for `denoise`: `encode` gives the logits of the mask."""

    def __init__(self, preset: str, image_channels: int, targets: int, size: Size, stride: int) -> None:
        """`size`: (H, W) or (Z, H, W) of the images that it is made for."""
        super().__init__(preset, image_channels, targets)
        self.stride = stride
        check_multiples(size, stride)
        check_size(size, stride)

    @abstractmethod
    def levels(self, image: Tensor) -> tuple[Tensor, ...]:
        """image `(B, C, *S)` -> logits `(B, K, *S)`, and of half, a quarter ... of the resolution where the network
        is also taught there (deep supervision)."""

    def encode(self, image: Tensor) -> Tensor:
        return self.levels(image)[0]

    def denoise(self, y_t: Tensor, t: Tensor, features: Tensor) -> Tensor:
        return features.unsqueeze(1).expand(y_t.shape)


# --- nnU-Net ---------------------------------------------------------------------------------------------------------

NNUNET = {
    # what its planner makes of 128x128 and of 224x224 alike: halved down to 4x4 or 7x7, widths doubled up to 512
    "paper": (32, 64, 128, 256, 512, 512),
    "small": (24, 48, 96, 192, 256),
    "tiny": (8, 16, 24, 32),
}


class NNUNet(Whole):
    """MONAI's DynUNet: two convolutions per stage, instance norm, LeakyReLU, strided down, transposed up."""

    def __init__(self, preset: str, image_channels: int, targets: int, size: Size) -> None:
        widths = NNUNET[preset]
        super().__init__(preset, image_channels, targets, size, stride=2 ** (len(widths) - 1))
        from monai.networks.nets.dynunet import DynUNet  # seconds to import

        strides = [1] + [2] * (len(widths) - 1)
        net: Any = DynUNet(
            spatial_dims=len(size),
            in_channels=image_channels,
            out_channels=targets,
            kernel_size=[3] * len(widths),
            strides=strides,
            upsample_kernel_size=strides[1:],
            filters=widths,
            deep_supervision=True,
            deep_supr_num=len(widths) - 3,  # every stage of the decoder but the coarsest, whose weight would be 0
        )
        # the two parts that hold every weight once: DynUNet itself has most of them under two names
        self.layers: nn.Module = net.skip_layers
        self.out: nn.Module = net.output_block
        self._coarse: list[Tensor] = net.heads  # where the layers leave their logits, from half the resolution down

    def levels(self, image: Tensor) -> tuple[Tensor, ...]:
        self.check(image)
        logits = self.out(self.layers(image))
        coarse = tuple(self._coarse)
        self._coarse[:] = [torch.empty(0)] * len(coarse)  # else they would live on until the next image
        return logits, *coarse


# --- Swin UNETR ------------------------------------------------------------------------------------------------------

SWIN_UNETR = {"paper": 48, "small": 24, "tiny": 12}  # width of the first stage


class SwinUNETR(Whole):
    """Windowed attention down, convolutions up; at least 64x64."""

    def __init__(self, preset: str, image_channels: int, targets: int, size: Size) -> None:
        super().__init__(preset, image_channels, targets, size, stride=32)
        from monai.networks.nets.swin_unetr import SwinUNETR

        self.net = SwinUNETR(image_channels, targets, feature_size=SWIN_UNETR[preset], spatial_dims=len(size))

    def levels(self, image: Tensor) -> tuple[Tensor, ...]:
        self.check(image)
        return (self.net(image),)


# --- MedNeXt ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MedNeXtPreset:
    width: int
    blocks: tuple[int, ...]  # of each level on the way down, and on the way up


MEDNEXT = {
    "paper": MedNeXtPreset(32, (2, 2, 2, 2)),  # its authors' S
    "small": MedNeXtPreset(24, (2, 2, 2, 2)),
    "tiny": MedNeXtPreset(8, (1, 1)),
}


class MedNeXt(Whole):
    """ConvNeXt blocks (depthwise convolution, wide 1x1 convolutions) in the shape of a U-Net."""

    def __init__(self, preset: str, image_channels: int, targets: int, size: Size) -> None:
        sizes = MEDNEXT[preset]
        super().__init__(preset, image_channels, targets, size, stride=2 ** len(sizes.blocks))
        from monai.networks.nets.mednext import MedNeXt

        self.net = MedNeXt(
            spatial_dims=len(size),
            init_filters=sizes.width,
            in_channels=image_channels,
            out_channels=targets,
            kernel_size=3,
            deep_supervision=True,
            use_residual_connection=True,
            blocks_down=sizes.blocks,
            blocks_bottleneck=sizes.blocks[-1],
            blocks_up=sizes.blocks,
        )

    def levels(self, image: Tensor) -> tuple[Tensor, ...]:
        """Coarser ones only while it trains: MONAI's network leaves them out otherwise."""
        self.check(image)
        logits: Tensor | tuple[Tensor, ...] = self.net(image)
        return (logits,) if isinstance(logits, Tensor) else logits
