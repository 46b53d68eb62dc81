"""Methods that give one answer per image: cross-entropy to a random rater, and the pixels more probable than not."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from berdiff.data.input_spec import InputSpec
from berdiff.diffusion.random import Generators
from berdiff.diffusion.sampler import Sampler
from berdiff.diffusion.sampling import Callback
from berdiff.methods.base import PerSample, Segmenter, Terms, pick_raters
from berdiff.methods.config import MethodConfig
from berdiff.networks.denoiser import Denoiser
from berdiff.networks.tiled import TiledDenoiser


class Deterministic(Segmenter):
    """On any `Denoiser`: the architecture is the diffusion methods' to the last weight; those on the mask's channel
    have nothing to do. Nothing is random in its masks and there are no steps."""

    def __init__(self, config: MethodConfig, input_spec: InputSpec, network: Denoiser[Any]) -> None:
        super().__init__(config, input_spec, network.stride)
        self.network = network

    def logits(self, image: Tensor) -> Tensor:
        """image `(B, C, H, W)` -> `(B, 1, K, H, W)`."""
        B, _, H, W = image.shape
        t = torch.zeros(B, 1, dtype=torch.long, device=image.device)
        empty = image.new_zeros(B, 1, self.targets, H, W)
        return self.network.denoise(empty, t, self.network.encode(image)).float()

    def loss(self, image: Tensor, masks: Tensor, generators: Generators) -> Terms:
        self.check_batch(image, masks)
        bce = F.binary_cross_entropy_with_logits(self.logits(image), pick_raters(masks, 1, generators).float())
        return {"loss": bce, "bce": bce}

    def _sample(
        self, image: Tensor, n: int, generators: PerSample, sampler: Sampler | None, callback: Callback | None
    ) -> Tensor:
        """One mask, n times over."""
        return (self.logits(image) > 0).expand(-1, n, -1, -1, -1).contiguous()

    def _images_per_pass(self, n: int) -> int:
        return self.masks_per_pass

    def tiled(self, size: tuple[int, int], overlap: float) -> "Deterministic":
        tiles = TiledDenoiser(self.network, size, overlap, torch.sigmoid, lambda mean: mean.clamp(0, 1).logit())
        twin = Deterministic(self.config, self.input_spec, tiles)
        twin.masks_per_pass = self.masks_per_pass
        return twin
