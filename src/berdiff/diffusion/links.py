"""What K logits say of K targets, by their kind, for methods that answer at once and without noise.

Logits, probabilities and masks are `(B, N, K, *S)`; a mask is drawn by one random number, or by one per class where
targets are exclusive. At K = 1 all kinds are the same.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from berdiff.diffusion import categorical, nested
from berdiff.diffusion.bernoulli import draw_level
from berdiff.diffusion.losses import over_masks
from berdiff.diffusion.random import Generators


class Link(ABC):
    """How K logits become the probabilities of K targets, and masks."""

    @abstractmethod
    def probs(self, logits: Tensor) -> Tensor:
        """The probability of each target."""

    @abstractmethod
    def logits(self, probs: Tensor) -> Tensor:
        """The inverse of `probs`."""

    @abstractmethod
    def cross_entropy(self, logits: Tensor, y: Tensor) -> Tensor:
        """-log P(y) per pixel: a mean over targets, of exclusive ones over pixels."""

    def likely(self, logits: Tensor) -> Tensor:
        """The mask of the targets that are more probable than not."""
        return self.probs(logits) > 0.5

    def draw(self, logits: Tensor, generators: Generators) -> Tensor:
        """Masks in which each target is marked as often as it is probable."""
        return draw_level(self.probs(logits), generators)


class Independent(Link):
    """A sigmoid per target: targets may overlap as they like."""

    def probs(self, logits: Tensor) -> Tensor:
        return logits.sigmoid()

    def logits(self, probs: Tensor) -> Tensor:
        return probs.clamp(0, 1).logit()  # rounding leaves it a hair outside at the ends

    def cross_entropy(self, logits: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits, y)

    def likely(self, logits: Tensor) -> Tensor:
        return logits > 0


@dataclass(frozen=True)
class Nested(Link):
    """One level keeps them nested: p_k falls with k."""

    inner_weight: float = 1.0  # of a target's cross-entropy over that of the target around it

    def probs(self, logits: Tensor) -> Tensor:
        return nested.probs(logits.sigmoid())

    def logits(self, probs: Tensor) -> Tensor:
        return nested.inside(probs.clamp(0, 1)).logit()

    def cross_entropy(self, logits: Tensor, y: Tensor) -> Tensor:
        return over_masks(nested.bce_loss(y, logits), None, nested.target_weights(self.inner_weight, logits))


class Exclusive(Link):
    """The background's logit is 0. Of the classes, the background among them, the most probable one is marked."""

    def probs(self, logits: Tensor) -> Tensor:
        return categorical.targets(categorical.probs(logits))

    def logits(self, probs: Tensor) -> Tensor:
        """Log-ratios to the background, which keeps a hair where rounding left it nothing."""
        background = categorical.with_background(probs)[:, :, -1:].clamp(min=torch.finfo(probs.dtype).tiny)
        return probs.clamp(min=0).log() - background.log()

    def cross_entropy(self, logits: Tensor, y: Tensor) -> Tensor:
        return categorical.ce_loss(categorical.with_background(y), categorical.log_probs(logits)).mean()

    def likely(self, logits: Tensor) -> Tensor:
        return categorical.most_likely(categorical.probs(logits))

    def draw(self, logits: Tensor, generators: Generators) -> Tensor:
        return categorical.draw_shared(categorical.probs(logits), generators)


LINKS: dict[str, Link] = {"independent": Independent(), "nested": Nested(), "exclusive": Exclusive()}
