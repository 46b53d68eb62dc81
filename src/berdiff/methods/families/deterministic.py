"""Methods that give one answer per image: the probability of each pixel, learnt from a random rater, and its mask."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from berdiff.data.input_spec import InputSpec
from berdiff.diffusion.links import LINKS, Nested
from berdiff.diffusion.random import Generators
from berdiff.methods.base import SampleRequest, Segmenter, Terms, pick_raters
from berdiff.methods.families.deterministic_config import DeterministicConfig
from berdiff.networks.check_image import Size
from berdiff.networks.denoiser import Denoiser
from berdiff.networks.tiled import TiledDenoiser
from berdiff.networks.whole import Whole

SMOOTH = 1.0  # pixels: two empty masks then have Dice 1, and a few wrong pixels of an empty one a gradient


class Deterministic(Segmenter):
    """On any `Denoiser`, which sees an empty mask at t = 0. On a diffusion's network the architecture is the diffusion
    methods' to the last weight; those on the mask's channel have nothing to do. There are no steps."""

    config: DeterministicConfig

    def __init__(self, config: DeterministicConfig, input_spec: InputSpec, network: Denoiser[Any]) -> None:
        super().__init__(config, input_spec, network.stride)
        self.network = network
        self.link = Nested(config.inner_weight) if self.kind == "nested" else LINKS[self.kind]

    def logits(self, image: Tensor) -> Tensor:
        """image `(B, C, *S)` -> `(B, 1, K, *S)`."""
        t = torch.zeros(len(image), 1, dtype=torch.long, device=image.device)
        empty = image.new_zeros(len(image), 1, self.targets, *image.shape[2:])
        return self.network.denoise_mask(empty, t, self.network.encode(image)).float()

    def loss(self, image: Tensor, masks: Tensor, generators: Generators) -> Terms:
        """The weighted mean over the levels of a network with deep supervision, else of the one there is."""
        self.check_batch(image, masks)
        y = pick_raters(masks, 1, generators).float()
        whole = self.network.levels(image) if isinstance(self.network, Whole) else None
        levels = [logits.unsqueeze(1) for logits in whole] if whole else [self.logits(image)]
        bce, dice = y.new_zeros(()), y.new_zeros(())
        for weight, logits in zip(level_weights(len(levels)), levels, strict=True):
            # the nearest pixel, as nnU-Net's: a mask stays a mask
            target = F.interpolate(y[:, 0], logits.shape[3:], mode="nearest-exact").unsqueeze(1)
            bce = bce + weight * self.link.cross_entropy(logits.float(), target)
            dice = dice + weight * soft_dice_loss(self.link.probs(logits.float()), target)
        weights = self.config.lambda_bce, self.config.lambda_dice
        return {"loss": weights[0] * bce + weights[1] * dice, "bce": bce, "dice": dice}

    def _sample(self, image: Tensor, n: int, request: SampleRequest) -> Tensor:
        logits = self.logits(image)
        logits = logits.expand(-1, n, *logits.shape[2:])
        if self.config.answer == "level-sets":
            return self.link.draw(logits, request.generators)
        return self.link.likely(logits).contiguous()

    def images_per_pass(self, n: int) -> int:
        return self.masks_per_pass

    def tiled(self, size: Size, overlap: float) -> "Deterministic":
        tiles = TiledDenoiser(self.network, size, overlap, self.link.probs, self.link.logits)
        return self.with_changes(network=tiles, stride=1)


def soft_dice_loss(p: Tensor, y: Tensor) -> Tensor:
    """1 - Dice of probabilities and a mask `(B, 1, K, *S)`, of each image and target by itself: nnU-Net sums over the
    batch, and then a batch cut into parts is another loss."""
    space = tuple(range(3, p.ndim))
    both, either = (p * y).sum(space), (p + y).sum(space)
    return (1 - (2 * both + SMOOTH) / (either + SMOOTH)).mean()


def level_weights(count: int) -> list[float]:
    """nnU-Net's deep supervision: each level half as much as the finer one, 1 in all."""
    return [2.0 ** (count - 1 - i) / (2**count - 1) for i in range(count)]
