"""PixelSeg (Zhang et al. 2022, ACM Multimedia): a mask pixel by pixel, each given those before it."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt

from berdiff.data.input_spec import InputSpec
from berdiff.methods.config import MethodConfig


@dataclass(frozen=True)
class PixelSeg(MethodConfig):
    """Masked convolutions draw the mask at half the resolution, a 1x1 convolution with a U-Net's logits finishes it."""

    method: ClassVar[str] = "pixelseg"

    preset: Literal["paper", "small", "tiny"] = "small"
    """sizes of U-Net and masked convolutions: the authors', for two cores, for tests"""
    foreground_weight: Annotated[float, Gt(0)] = 1.0
    """weight of marked pixels in the loss of the half-size mask; 3 in the authors' code, which then marks too much"""
    smooth: bool = True
    """close (3x3) each mask and take the median of 3x3, as the authors do: the last step draws pixel by pixel"""
    masks_per_image: Annotated[int, Ge(1)] = 1
    """masks that share the U-Net's pass in training: the raters in turn, from a random one on"""

    def build(self, spec: InputSpec):
        from berdiff.methods.pixelseg.network import PixelSeg as Network
        from berdiff.methods.pixelseg.segmenter import AutoregressiveSegmenter

        network = Network(self.preset, len(spec.channels), len(spec.targets))
        return AutoregressiveSegmenter(self, spec, network)
