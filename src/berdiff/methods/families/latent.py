"""Methods whose masks differ by latent variables: a network with a prior and a posterior, and an objective for both."""

from abc import ABC, abstractmethod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from berdiff.data.input_spec import InputSpec
from berdiff.diffusion.random import Generators, normal
from berdiff.methods.base import SampleRequest, Terms, pick_raters
from berdiff.methods.config import MethodConfig
from berdiff.methods.families.encoded import EncodedSegmenter, Shape
from berdiff.networks.latent import LatentNetwork, Noise


class Objective(nn.Module, ABC):
    """How reconstruction and KL become one loss. State that moves is in buffers, and moves in `update` alone."""

    @abstractmethod
    def forward(self, bce: Tensor, kl: Tensor, generators: Generators) -> dict[str, Tensor]:
        """Cross-entropy of each pixel `(B, N, K, H, W)` and KL of each mask `(B, N)` -> the terms of the loss.

        The loss is per pixel: AdamW does not see a constant factor, but the clipping of gradients does.
        """

    @abstractmethod
    def update(self, terms: Terms) -> None:
        """After each optimiser step, with the terms of the whole batch."""


class Elbo(Objective):
    """Cross-entropy summed over pixels + beta KL(q || p), mean over masks; beta rises over the first steps."""

    steps: Tensor

    def __init__(self, beta: float, warmup: int) -> None:
        super().__init__()
        self.beta, self.warmup = beta, warmup
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, bce: Tensor, kl: Tensor, generators: Generators) -> dict[str, Tensor]:
        beta = self.beta * ((self.steps + 1) / max(self.warmup, 1)).clamp(max=1)
        pixels = bce[0, 0].numel()
        return {"loss": bce.mean() + beta * kl.mean() / pixels, "bce": bce.mean(), "kl": kl.mean()}

    def update(self, terms: Terms) -> None:
        self.steps += 1


class LatentSegmenter(EncodedSegmenter):
    """The N masks of an image share its encoding and its prior; the posterior runs for each."""

    training_state = ("objective.",)  # beta's warm-up, GECO's lambda

    def __init__(
        self,
        config: MethodConfig,
        input_spec: InputSpec,
        network: LatentNetwork[Any],
        objective: Objective,
        masks_per_image: int,
    ) -> None:
        super().__init__(config, input_spec, network.stride)
        self.network, self.objective, self.masks_per_image = network, objective, masks_per_image
        self.raters = "one" if masks_per_image == 1 else "all"

    def loss(self, image: Tensor, masks: Tensor, generators: Generators) -> Terms:
        """Of an image: the first rater, then its latents, then whatever the objective draws."""
        self.check_batch(image, masks)
        y = pick_raters(masks, self.masks_per_image, generators).to(image.dtype)
        logits, kls = self.network.infer(self.network.encode(image), image, y, self._noise(generators))
        bce = F.binary_cross_entropy_with_logits(logits.float(), y.float(), reduction="none")
        terms = self.objective(bce, torch.stack(kls).sum(0), generators)
        if len(kls) > 1:
            terms |= {f"kl_{level}": kl.mean() for level, kl in enumerate(kls, 1)}
        return terms

    def after_step(self, terms: Terms) -> None:
        self.objective.update(terms)

    def draw(self, features: Any, shape: Shape, request: SampleRequest) -> Tensor:
        """A pixel is marked where it is more probable than not, given z."""
        return self.network.generate(features, shape[1], self._noise(request.generators)) > 0

    def _noise(self, generators: Generators) -> Noise:
        like = next(self.parameters())
        return lambda shape: normal(shape, generators, like)
