"""The segmenter of PixelSeg: teacher forcing in training, the fixed point of masked convolutions in sampling."""

import torch
import torch.nn.functional as F
from torch import Tensor

from berdiff.data.input_spec import InputSpec
from berdiff.diffusion.random import Generators, uniform
from berdiff.methods.base import SampleRequest, Terms, pick_raters
from berdiff.methods.families.encoded import EncodedSegmenter, Shape
from berdiff.methods.pixelseg import PixelSeg
from berdiff.methods.pixelseg.masked import fixed_point
from berdiff.methods.pixelseg.network import Logits
from berdiff.methods.pixelseg.network import PixelSeg as Network


class AutoregressiveSegmenter(EncodedSegmenter):
    config: PixelSeg

    def __init__(self, config: PixelSeg, input_spec: InputSpec, network: Network) -> None:
        super().__init__(config, input_spec, network.stride)
        self.network = network
        self.raters = "one" if config.masks_per_image == 1 else "all"

    def loss(self, image: Tensor, masks: Tensor, generators: Generators) -> Terms:
        """Cross-entropy at both resolutions; each half-size pixel is given the true ones before it."""
        self.check_batch(image, masks)
        y = pick_raters(masks, self.config.masks_per_image, generators).to(image.dtype)
        y_half = halve(y)
        logits = self.network.encode(image)
        next_pixel = self.network.next_pixel(logits, y_half)
        weight = next_pixel.new_tensor(self.config.foreground_weight, dtype=torch.float32)
        half = F.binary_cross_entropy_with_logits(next_pixel.float(), y_half, pos_weight=weight)
        full = F.binary_cross_entropy_with_logits(self.network.whole(logits, next_pixel).float(), y)
        return {"loss": full + half, "bce": full, "bce_half": half}

    def draw(self, features: Logits, shape: Shape, request: SampleRequest) -> Tensor:
        """Of a sample: one number per half-size pixel, then one per pixel."""
        *leading, H, W = shape
        u_half = uniform((*leading, H // 2, W // 2), request.generators, features[0])
        u = uniform(shape, request.generators, features[0])
        y_half = fixed_point(lambda y: self.network.next_pixel(features, y), u_half)
        next_pixel = self.network.next_pixel(features, y_half)
        y = u < self.network.whole(features, next_pixel).float().sigmoid()
        return smooth(y) if self.config.smooth else y


def halve(y: Tensor) -> Tensor:
    """Masks `(..., H, W)` at half the resolution: marked where more than half of 2x2 pixels is."""
    *before, H, W = y.shape
    return (F.avg_pool2d(y.flatten(0, -4), 2) > 0.5).to(y.dtype).reshape(*before, H // 2, W // 2)


def smooth(y: Tensor) -> Tensor:
    """3x3 closing, then the median of 3x3 (of 0 and 1: the majority), of masks `(..., K, H, W)`."""
    flat = y.flatten(0, -4).float()
    dilated = F.max_pool2d(flat, 3, stride=1, padding=1)
    closed = -F.max_pool2d(-dilated, 3, stride=1, padding=1)
    return (F.avg_pool2d(closed, 3, stride=1, padding=1) > 0.5).reshape(y.shape)
