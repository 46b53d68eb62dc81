"""The hurdle: whether there is a finding at all is decided first, and only then what it looks like.

p(y | x) = pi(x) [y is empty] + (1 - pi(x)) p_theta(y | x, y is not empty): a mixture (docs/equations.md). A head on the
encoder estimates pi from all raters, one number per image, where a pixel-wise loss gives a small finding almost no
weight. The diffusion learns from masks that mark something, and draws only such masks.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from berdiff.data.input_spec import InputSpec
from berdiff.diffusion.along_z import Along
from berdiff.diffusion.energy import energy_score, soft_level_sets, stratified_levels
from berdiff.diffusion.kernels.base import Kernel
from berdiff.diffusion.kernels.bernoulli import Bernoulli
from berdiff.diffusion.random import Generators, Source, uniform
from berdiff.errors import InputError
from berdiff.methods.base import SampleRequest, Terms, fillers
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.families.diffusion import DiffusionSegmenter
from berdiff.methods.families.encoded import Shape, pick_views
from berdiff.methods.families.views import mirrored, mirrored_back, take
from berdiff.networks.denoiser import Denoiser
from berdiff.networks.tiled import TiledDenoiser

DROPOUT = 0.2  # of the head's inputs: it sees each image many times and has one number to learn from it
HIDDEN = 64
CPU_PASS = 8  # masks at once on a CPU: fewer places to fill up than in 16, and as fast per mask
LEVELS = 3  # masks in each of the two sets that the energy score compares with each other and with the raters


class Encoded(NamedTuple):
    """What the gated network keeps of an image: the features, pi as a logit, and each mask's level u where drawn."""

    features: Any
    empty: Tensor  # (B,) the logit of pi(x)
    summary: Tensor  # (B, D) that it follows from
    level: Tensor | None = None  # (B, N) in [0, 1): a mask is empty where pi is above its level


class GatedDenoiser(Denoiser[Encoded]):
    """A `Denoiser` with a head for pi(x). Its estimate of a mask whose level lies below pi is: nothing is marked."""

    def __init__(self, network: Denoiser[Any], kernel: Bernoulli) -> None:
        super().__init__(network.preset, network.image_channels, network.targets)
        self.stride = network.stride
        self.network, self.empty_output = network, kernel.empty_output
        D = network.summary_width
        if not D:
            sentence = f"hurdle: expected a network that encodes the image (fast, fast-tiny), found {self.preset}"
            raise InputError(sentence, "conflict")
        self.head = nn.Sequential(nn.LayerNorm(D), nn.Linear(D, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, 1))

    def encode(self, image: Tensor) -> Encoded:
        features, summary = self.network.encode_and_summarise(image)
        return Encoded(features, self.empty_logit(summary), summary)

    def denoise(self, y_t: Tensor, t: Tensor, features: Encoded) -> Tensor:
        output = self.network.denoise_mask(y_t, t, features.features)
        if features.level is None:
            return output
        empty = features.level < features.empty.sigmoid().unsqueeze(1)
        return torch.where(
            empty.reshape(*empty.shape, *[1] * (y_t.ndim - 2)), self.empty_output(y_t).to(output.dtype), output
        )

    def empty_logit(self, summary: Tensor, keep: Tensor | None = None) -> Tensor:
        """(B,) from summaries `(B, D)`, of which `keep` (0 or 1) takes part."""
        x = self.head[0](summary)
        return self.head[1:](x if keep is None else x * keep / (1 - DROPOUT)).squeeze(1)


def at_level(features: Any, level: Tensor) -> Any:
    """What was encoded, of one image or of its tiles, for masks with these levels `(B, N)`.

    All tiles of an image see one level, so a mask is one opinion everywhere, and each tile keeps its own pi.
    """
    if isinstance(features, Encoded):
        return features._replace(level=level)
    return tuple(at_level(of_tile, level) for of_tile in features)


class HurdleSegmenter(DiffusionSegmenter):
    def __init__(self, config: BerDiff, input_spec: InputSpec, network: Denoiser[Any], kernel: Kernel) -> None:
        """`network` is gated, or made of gated tiles."""
        super().__init__(config, input_spec, network, kernel)
        self.raters, self.weight, self.energy = "all", config.hurdle, config.energy

    def loss(self, image: Tensor, masks: Tensor, generators: Generators) -> Terms:
        """Algorithm 1 on masks that mark something, and the cross-entropy of pi with the raters' share of empty ones.

        An image that no rater marked teaches pi alone.
        """
        assert isinstance(self.network, GatedDenoiser)  # tiles are for sampling
        self.check_batch(image, masks)
        marked = masks.flatten(2).any(2)  # (B, R)
        y0 = pick_marked(masks, marked, self.config.masks_per_image, generators).to(image.dtype)
        t = self._pick_times(image, generators)
        y_t, eps = self.kernel.q_sample(y0, t, generators)
        encoded = self.network.encode(image)
        output = self.estimate(y_t, t, encoded)
        some = marked.any(1, keepdim=True).expand(y0.shape[:2]).float()
        terms = self.kernel.loss(output, y0, y_t, eps, t, some / some.numel())
        keep = (uniform(encoded.summary.shape, generators, image) >= DROPOUT).to(encoded.summary.dtype)
        empty = self.network.empty_logit(encoded.summary, keep).float()
        terms["empty"] = F.binary_cross_entropy_with_logits(empty, 1 - marked.float().mean(1))
        loss = terms["loss"] + self.weight * terms["empty"]
        if self.energy:
            terms["energy"] = self._energy(encoded, masks, marked, generators).mean()
            loss = loss + self.energy * terms["energy"]
        return {**terms, "loss": loss}

    def _energy(self, encoded: Encoded, masks: Tensor, marked: Tensor, generators: Generators) -> Tensor:
        """(B,): the score of two stratified sets of level sets of the estimate at t = T against who marked."""
        B = len(masks)
        like = torch.empty(0, device=masks.device)
        y_T = self.kernel.prior((B, 1, *masks.shape[2:]), generators, like)
        t = torch.full((B, 1), self.kernel.schedule.T, device=masks.device)
        p = self.kernel.to_mean(self.estimate(y_T, t, encoded))[:, 0]
        levels = stratified_levels(uniform((B, 2, LEVELS), generators, like))
        S = soft_level_sets(p, levels.flatten(1))
        return energy_score(S[:, :LEVELS], S[:, LEVELS:], masks.flatten(3).to(p.dtype), marked.to(p.dtype))

    def _sample(self, image: Tensor, n: int, request: SampleRequest) -> Tensor:
        """By views, each mask has features of its own, so those that are empty by their level can be left out of the
        passes through the network. Each pass is filled up to the same number of masks."""
        sampler, generators = request.sampler, request.generators
        needed = request.callback is not None or any(map(_is_followed, generators))  # also the steps of empty masks
        tiles = isinstance(self.network, TiledDenoiser)  # each has a pi of its own
        if sampler is None or sampler.views == 1 or needed or tiles:
            return super()._sample(image, n, request)
        B, shape = len(image), (self.targets, *image.shape[2:])
        encoded: Encoded = self.network.encode(mirrored(image, sampler.views))
        view, place = pick_views(B, n, sampler.views, generators)
        level = uniform((B * n, 1), generators, encoded.empty.new_empty(0, dtype=torch.float32))
        marked = (level >= encoded.empty.sigmoid()[place].unsqueeze(1)).nonzero()[:, 0]
        masks = torch.zeros(B * n, 1, *shape, dtype=torch.uint8, device=image.device)
        at_once = B * min(n, self.masks_per_pass)
        if image.device.type == "cpu":
            at_once = min(at_once, CPU_PASS)
        for first in range(0, len(marked), at_once):
            chosen = marked[first : first + at_once]
            missing = at_once - len(chosen)
            own = [generators[int(i)] for i in chosen] + fillers(missing, image)
            filled = torch.cat([chosen, chosen[:1].expand(missing)])
            features = take(encoded, place[filled])._replace(level=level[filled])
            drawn = super().draw(features, (at_once, 1, *shape), SampleRequest(own, sampler))
            masks[chosen] = drawn[: len(chosen)].to(torch.uint8)
        return mirrored_back(masks.reshape(B, n, *shape), view)

    def draw(self, features: Any, shape: Shape, request: SampleRequest) -> Tensor:
        level = uniform(shape[:2], request.generators, torch.empty(0, device=request.generators[0].device))
        return super().draw(at_level(features, level), shape, request)


def _is_followed(source: Source) -> bool:
    """Whether the slice after this one needs the random numbers of this one, also those of an empty mask."""
    return isinstance(source, Along) and source.followed


def pick_marked(masks: Tensor, marked: Tensor, count: int, generators: Generators) -> Tensor:
    """masks `(B, R, K, *S)` -> `(B, count, K, *S)`: the raters that marked something in turn, from a random one on.

    Of an image that nobody marked, empty masks.
    """
    B = len(masks)
    of = marked.sum(1, keepdim=True).clamp(min=1)
    first = (uniform((B, 1), generators, torch.empty(0, device=masks.device)) * of).long()
    place = (first + torch.arange(count, device=masks.device)) % of
    rater = marked.int().argsort(dim=1, descending=True, stable=True).gather(1, place)
    return masks[torch.arange(B, device=masks.device).unsqueeze(1), rater]
