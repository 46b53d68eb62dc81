"""The segmenter of SSN: the likelihood of a mask is a mean over draws of the logits, and a sample is one draw."""

from math import log

import torch
import torch.nn.functional as F
from torch import Tensor

from berdiff.data.input_spec import InputSpec
from berdiff.diffusion.random import Generators, normal
from berdiff.methods.base import SampleRequest, Terms, pick_raters
from berdiff.methods.families.encoded import EncodedSegmenter, Shape
from berdiff.methods.ssn import SSN
from berdiff.methods.ssn.network import SSN as Network
from berdiff.methods.ssn.network import LowRank


def log_likelihood(logits: Tensor, y: Tensor) -> Tensor:
    """log (1/S) sum_s p(y_r | logits_s) with S draws: logits `(B, S, D)`, masks y `(B, R, D)` -> `(B, R)`.

    log p(y | logits) = sum over pixels of y logit - softplus(logit): all raters share the softplus.
    """
    with torch.autocast(logits.device.type, enabled=False):  # sums over thousands of pixels, compared with each other
        each = torch.einsum("bsd,brd->bsr", logits.float(), y.float()) - F.softplus(logits.float()).sum(2, keepdim=True)
    return torch.logsumexp(each, 1) - log(logits.shape[1])


class LowRankSegmenter(EncodedSegmenter):
    average_buffers = True  # BatchNorm's
    training_state = ("steps",)  # of the mean alone
    config: SSN
    steps: Tensor

    def __init__(self, config: SSN, input_spec: InputSpec, network: Network) -> None:
        super().__init__(config, input_spec, network.stride)
        self.network = network
        self.raters = "one" if config.masks_per_image == 1 else "all"
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def loss(self, image: Tensor, masks: Tensor, generators: Generators) -> Terms:
        """- log likelihood per pixel; the raters of an image share its draws.

        While the mean learns alone the noise counts 0 times: that is plain cross-entropy, and no parameter is unused.
        """
        self.check_batch(image, masks)
        y = pick_raters(masks, self.config.masks_per_image, generators)
        distribution = self.network.encode(image)
        shape = (len(image), self.config.draws, *distribution.mean.shape[1:])
        on = (self.steps >= self.config.mean_steps).to(distribution.mean.dtype)
        shared, own = (on * noise for noise in self._noise(shape, generators, distribution))
        logits = distribution.draw(shared, own)
        pixels = distribution.mean[0].numel()
        nll = -log_likelihood(logits.flatten(2), y.flatten(2)).mean() / pixels
        sigma, factor = distribution.log_sigma.detach().exp().mean(), distribution.factor.detach().norm(dim=1).mean()
        return {"loss": nll, "nll": nll, "sigma": sigma, "factor": factor}

    def after_step(self, terms: Terms) -> None:
        self.steps += 1

    def draw(self, features: LowRank, shape: Shape, request: SampleRequest) -> Tensor:
        """A pixel is marked where its logit, drawn with all others, is above 0."""
        return features.draw(*self._noise(shape, request.generators, features)) > 0

    def _noise(self, shape: tuple[int, ...], generators: Generators, like: LowRank) -> tuple[Tensor, Tensor]:
        """Of masks `(B, N, K, H, W)`: the `rank` numbers that all pixels share, then one number per pixel."""
        shared = normal((*shape[:2], self.network.rank), generators, like.mean)
        return shared, normal(shape, generators, like.mean)
