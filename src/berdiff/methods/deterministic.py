"""Methods that give one answer per image: the probability of each pixel, learnt from a random rater, and its mask."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from berdiff.data.input_spec import InputSpec
from berdiff.diffusion.links import LINKS, Nested
from berdiff.diffusion.random import Generators
from berdiff.diffusion.sampler import Sampler
from berdiff.diffusion.sampling import Callback
from berdiff.methods.base import PerSample, Segmenter, Terms, pick_raters
from berdiff.methods.deterministic_config import DeterministicConfig
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
        """image `(B, C, H, W)` -> `(B, 1, K, H, W)`."""
        B, _, H, W = image.shape
        t = torch.zeros(B, 1, dtype=torch.long, device=image.device)
        empty = image.new_zeros(B, 1, self.targets, H, W)
        return self.network.denoise(empty, t, self.network.encode(image)).float()

    def loss(self, image: Tensor, masks: Tensor, generators: Generators) -> Terms:
        """The weighted mean over the levels of a network with deep supervision, else of the one there is."""
        self.check_batch(image, masks)
        y = pick_raters(masks, 1, generators)[:, 0].float()
        levels = self.network.levels(image) if isinstance(self.network, Whole) else (self.logits(image)[:, 0],)
        bce, dice = y.new_zeros(()), y.new_zeros(())
        for weight, logits in zip(level_weights(len(levels)), levels, strict=True):
            # the nearest pixel, as nnU-Net's: a mask stays a mask
            target = y if logits.shape == y.shape else F.interpolate(y, logits.shape[-2:], mode="nearest-exact")
            bce = bce + weight * self.link.cross_entropy(logits.float(), target)
            dice = dice + weight * soft_dice_loss(self.link.probs(logits.float()), target)
        weights = self.config.lambda_bce, self.config.lambda_dice
        return {"loss": weights[0] * bce + weights[1] * dice, "bce": bce, "dice": dice}

    def _sample(
        self, image: Tensor, n: int, generators: PerSample, sampler: Sampler | None, callback: Callback | None
    ) -> Tensor:
        logits = self.logits(image).expand(-1, n, -1, -1, -1)
        if self.config.answer == "level-sets":
            return self.link.draw(logits, generators)
        return self.link.likely(logits).contiguous()

    def images_per_pass(self, n: int) -> int:
        return self.masks_per_pass

    def tiled(self, size: tuple[int, ...], overlap: float) -> "Deterministic":
        tiles = TiledDenoiser(self.network, size, overlap, self.link.probs, self.link.logits)
        twin = Deterministic(self.config, self.input_spec, tiles)
        twin.masks_per_pass = self.masks_per_pass
        return twin


def soft_dice_loss(p: Tensor, y: Tensor) -> Tensor:
    """1 - Dice of probabilities and a mask `(B, K, H, W)`, of each image and target by itself: nnU-Net sums over the
    batch, and then a batch cut into parts is another loss."""
    both, either = (p * y).sum((-2, -1)), (p + y).sum((-2, -1))
    return (1 - (2 * both + SMOOTH) / (either + SMOOTH)).mean()


def level_weights(count: int) -> list[float]:
    """nnU-Net's deep supervision: each level half as much as the finer one, 1 in all."""
    return [2.0 ** (count - 1 - i) / (2**count - 1) for i in range(count)]
