"""The Hierarchical Probabilistic U-Net (Kohl et al. 2019): maps of latents at the coarsest levels of a U-Net's way up.

The latents of each level are drawn given the coarser ones: what the masks of an image differ in is decided from the
whole to the detail.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from berdiff.networks.latent import Gaussian, LatentNetwork, MapHead, Noise, beside, kl
from berdiff.networks.pyramid import Encoder, Sizes, Up, initialise

Maps = tuple[Tensor, ...]
Choose = Callable[[int, Gaussian], Tensor]
"""(the place of the level, its Gaussian) -> the latents that the levels above go on with."""


@dataclass(frozen=True)
class HierarchyPreset:
    sizes: Sizes
    latents: int  # how many levels have latents, from the coarsest on
    dims: int = 1  # of the latents at each pixel


def _residual(widths: tuple[int, ...], blocks: int, convs: int) -> Sizes:
    return Sizes(widths, convs, blocks, kind="residual", up="nearest")


PRESETS = {
    # 128x128: latents at 1x1, 2x2, 4x4 and 8x8
    "paper": HierarchyPreset(_residual((24, 48, 96, 192, 192, 192, 192, 192), blocks=3, convs=3), latents=4),
    # for two cores, 64x64: latents at the same places
    "small": HierarchyPreset(_residual((24, 48, 96, 128, 128, 128, 128), blocks=2, convs=2), latents=4),
    "tiny": HierarchyPreset(_residual((8, 8, 8, 8, 8), blocks=1, convs=1), latents=2),
}


class HierarchicalProbUNet(LatentNetwork[Maps]):
    """The prior is the U-Net itself; the posterior is a second one on image and mask, up to its last latents."""

    def __init__(self, preset: str, channels: int, targets: int) -> None:
        sizes, latents, dims = PRESETS[preset].sizes, PRESETS[preset].latents, PRESETS[preset].dims
        super().__init__(sizes.stride)
        self.prior = Ladder(channels, sizes, latents, dims, ups=len(sizes.widths) - 1)
        self.posterior = Ladder(channels + targets, sizes, latents, dims, ups=latents - 1)
        self.logits = nn.Conv2d(sizes.widths[0], targets, 1)
        initialise(self, "orthogonal")

    def encode(self, image: Tensor) -> Maps:
        """The features of the way down, the finest first."""
        return tuple(self.prior.encoder(image))

    def infer(self, features: Maps, image: Tensor, y: Tensor, noise: Noise) -> tuple[Tensor, list[Tensor]]:
        """The posterior's latents go into the prior's way up as well, so at each level q and p know the same z."""
        of_masks = y.shape[:2]
        drawn: list[Tensor] = []

        def draw(place: int, q: Gaussian) -> Tensor:
            drawn.append(_draw(q, of_masks, noise))
            return drawn[-1]

        _, qs = self.posterior.climb(self.posterior.encoder(beside(image, y)), 1, draw)
        last, ps = self.prior.climb(features, of_masks[1], lambda place, p: drawn[place])
        divergences = [kl(q, p).sum((1, 2, 3)).reshape(of_masks) for q, p in zip(qs, ps, strict=True)]
        return self.logits(last).unflatten(0, of_masks), divergences

    def generate(self, features: Maps, N: int, noise: Noise) -> Tensor:
        of_masks = (len(features[0]), N)
        last, _ = self.prior.climb(features, N, lambda place, p: _draw(p, of_masks, noise))
        return self.logits(last).unflatten(0, of_masks)


class Ladder(nn.Module):
    """A way down, and a way up with latents at its first levels."""

    def __init__(self, channels: int, sizes: Sizes, latents: int, dims: int, ups: int) -> None:
        """`ups`: steps of the way up."""
        super().__init__()
        below = sizes.widths[::-1]  # the coarsest first
        self.encoder = Encoder(channels, sizes)
        self.heads = nn.ModuleList(MapHead(below[i], dims) for i in range(latents))
        joined = [width + dims * (i < latents) for i, width in enumerate(below)]
        self.ups = nn.ModuleList(Up(joined[i], below[i + 1], below[i + 1], sizes) for i in range(ups))

    def climb(self, features: Sequence[Tensor], N: int, choose: Choose) -> tuple[Tensor, list[Gaussian]]:
        """Features of B images, the finest first -> the last features of B * N masks, and each level's Gaussian."""
        x = features[-1].repeat_interleave(N, 0)
        found: list[Gaussian] = []
        for place in range(max(len(self.heads), len(self.ups))):
            if place < len(self.heads):
                found.append(self.heads[place](x))
                x = torch.cat([x, choose(place, found[-1]).to(x.dtype)], 1)
            if place < len(self.ups):
                x = self.ups[place](x, features[-2 - place].repeat_interleave(N, 0))
        return x, found


def _draw(given: Gaussian, of_masks: tuple[int, ...], noise: Noise) -> Tensor:
    """z of a Gaussian of `(B * N, dims, h, w)`."""
    return given.draw(noise((*of_masks, *given.mean.shape[1:])).flatten(0, 1))
