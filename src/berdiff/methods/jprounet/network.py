"""The joint probabilistic U-Net (Zhang et al. 2022): a vector z at each level, and two decoders that share them.

One decoder gives the image back and one the mask, so z must hold what both depend on. The z of a level is drawn given
that of the next coarser one. In training both chains, prior and posterior, are given the posterior's (teacher forcing).
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from berdiff.networks.inject import tile
from berdiff.networks.latent import Couplings, Gaussian, LatentNetwork, Noise, VectorHead, beside
from berdiff.networks.pyramid import Encoder, Sizes, make_norm


def _dense(widths: tuple[int, ...], growth: int) -> Sizes:
    return Sizes(widths, convs=2, kind="dense", norm="group", growth=growth)


PRESETS = {
    "paper": _dense((32, 64, 128, 192, 192), 32),
    "small": _dense((24, 48, 96, 128, 128), 24),
    "tiny": _dense((8, 16, 16), 8),
}

Maps = tuple[Tensor, ...]
"""Features of every level, the finest first, and at the end the coarsest once more, through the trunk."""


class JProUNet(LatentNetwork[Maps]):
    def __init__(self, preset: str, channels: int, targets: int, dims: int, couplings: int) -> None:
        sizes = PRESETS[preset]
        super().__init__(sizes.stride)
        self.dims, self.levels = dims, len(sizes.widths)
        self.image_encoder, self.mask_encoder = (LevelEncoder(c, sizes) for c in (channels, channels + targets))
        self.prior, self.posterior = (Chain(sizes.widths, dims, couplings) for _ in range(2))
        self.image_decoder, self.mask_decoder = (LevelDecoder(sizes, dims, skips) for skips in (False, True))
        width = sizes.widths[0]
        self.picture = nn.Conv2d(width, channels, 3, padding=1)
        self.logits = nn.Conv2d(2 * width, targets, 3, padding=1)

    def encode(self, image: Tensor) -> Maps:
        return self.image_encoder(2 * image - 1)

    def infer(self, features: Maps, image: Tensor, y: Tensor, noise: Noise) -> tuple[Tensor, list[Tensor]]:
        logits, _, divergences = self.infer_jointly(features, image, y, noise)
        return logits, divergences

    def infer_jointly(
        self, features: Maps, image: Tensor, y: Tensor, noise: Noise
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """As `infer`, with the image given back `(B, N, C, H, W)` in the middle.

        KL(q || p) of a level is the one-sample estimate log q(z) - log p(z): through a flow there is no closed form.
        """
        of_masks = y.shape[:2]
        of_y = self.mask_encoder(2 * beside(image, y) - 1)
        zs: list[Tensor] = []
        divergences: list[Tensor] = []
        for level in range(self.levels):
            given = zs[-1].flatten(0, 1).unsqueeze(1) if zs else None
            q = self.posterior.at(level, of_y, given)
            z, log_q = self.posterior.draw(level, q, noise((*of_masks, self.dims)).flatten(0, 1).unsqueeze(1))
            z = z.reshape(*of_masks, self.dims)
            p = self.prior.at(level, features, zs[-1] if zs else None)
            divergences.append(log_q.reshape(of_masks) - self.prior.log_density(level, p, z))
            zs.append(z)
        logits, picture = self.decode(features, zs)
        return logits, picture, divergences

    def generate(self, features: Maps, N: int, noise: Noise) -> Tensor:
        return self.decode(features, self.draw_prior(features, N, noise))[0]

    def draw_prior(self, features: Maps, N: int, noise: Noise) -> list[Tensor]:
        """z of each level `(B, N, dims)`, the coarsest first, each given the one before: what `decode` gets."""
        zs: list[Tensor] = []
        for level in range(self.levels):
            p = self.prior.at(level, features, zs[-1] if zs else None)
            zs.append(self.prior.draw(level, p, noise((len(features[0]), N, self.dims)))[0])
        return zs

    def decode(self, features: Maps, zs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """z of each level, the coarsest first -> logits `(B, N, K, H, W)` and the image `(B, N, C, H, W)`."""
        of_masks = zs[0].shape[:2]
        of_image = self.image_decoder(features, zs)
        of_mask = self.mask_decoder(features, zs)
        logits = self.logits(torch.cat([of_mask, of_image], 1))
        return logits.unflatten(0, of_masks), self.picture(of_image).unflatten(0, of_masks)


class LevelEncoder(nn.Module):
    """A stem, dense blocks on every level, and a residual trunk on the coarsest."""

    def __init__(self, channels: int, sizes: Sizes) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, sizes.widths[0], 3, padding=1)
        self.encoder = Encoder(sizes.widths[0], sizes)
        self.trunk = Trunk(sizes.widths[-1])

    def forward(self, x: Tensor) -> Maps:
        features = self.encoder(self.stem(x))
        return (*features, self.trunk(features[-1]))


class Trunk(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        inner = width // 2
        self.norms = nn.ModuleList(make_norm(c, "group") for c in (width, inner, width))
        self.convs = nn.ModuleList(
            nn.Conv2d(i, o, 3, padding=1) for i, o in ((width, inner), (inner, width), (width, width))
        )

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norms[0](x))
        h = self.convs[0](x)
        h = self.convs[1](F.relu(self.norms[1](h)))
        return self.convs[2](F.relu(x + self.norms[2](h)))


class Chain(nn.Module):
    """A distribution of one vector per level, the coarsest first: a Gaussian given the coarser vector, and a flow.

    z = flow(e) with e of the Gaussian. The coarsest level's Gaussian is made of the trunk; any other of the features
    and the z of the next coarser level.
    """

    def __init__(self, widths: tuple[int, ...], dims: int, couplings: int) -> None:
        super().__init__()
        below = widths[:0:-1]  # the coarsest first, without the finest
        self.norms = nn.ModuleList(make_norm(width, "group") for width in below)
        self.convs = nn.ModuleList(nn.Conv2d(width + dims, width, 3, padding=1, bias=False) for width in below)
        ends = (widths[-1], *below)
        self.last_norms = nn.ModuleList(make_norm(width, "group") for width in ends)
        self.heads = nn.ModuleList(VectorHead(width, dims) for width in ends)
        self.flows = nn.ModuleList(Couplings(dims, couplings=couplings, layers=3) for _ in ends)

    def at(self, level: int, features: Maps, z: Tensor | None) -> Gaussian:
        """The Gaussian `(B, N, dims)` of a level (0 is the coarsest) given z of the one before, `(B, N, dims)`."""
        *finer, trunk = features
        if z is None:
            x, of_masks = trunk, (len(trunk), 1)
        else:
            known, of_masks = finer[-level], z.shape[:2]
            x = self.convs[level - 1](tile(F.relu(self.norms[level - 1](known)), z))
        x = F.relu(self.last_norms[level](x))
        return Gaussian(*(part.reshape(*of_masks, -1) for part in self.heads[level](x)))

    def draw(self, level: int, base: Gaussian, noise: Tensor) -> tuple[Tensor, Tensor]:
        """noise `(B, N, dims)` ~ N(0, 1) -> z `(B, N, dims)` and log q(z) `(B, N)`."""
        e = base.draw(noise)
        z, log_det = self.flows[level](e)
        return z, _log_normal(base, e) - log_det

    def log_density(self, level: int, base: Gaussian, z: Tensor) -> Tensor:
        """log p(z) `(B, N)`."""
        flow = self.flows[level]
        assert isinstance(flow, Couplings)
        e, log_det = flow.inverse(z)
        return _log_normal(base, e) + log_det


def _log_normal(base: Gaussian, e: Tensor) -> Tensor:
    """log N(e; base), summed over the dimensions."""
    standard = (e - base.mean) * torch.exp(-base.log_sigma)
    return -(standard**2 / 2 + base.log_sigma + math.log(2 * math.pi) / 2).sum(-1)


class LevelDecoder(nn.Module):
    """The way up from the trunk, with z of each level, and with the encoder's features where `skips`."""

    def __init__(self, sizes: Sizes, dims: int, skips: bool) -> None:
        super().__init__()
        self.skips = skips
        widths = sizes.widths
        outs = (*widths[-2::-1], widths[0])
        self.blocks = nn.ModuleList(
            JoinedBlock(width * (1 + skips), dims, out, sizes) for width, out in zip(widths[::-1], outs, strict=True)
        )

    def forward(self, features: Maps, zs: Sequence[Tensor]) -> Tensor:
        """Features of B images and z `(B, N, dims)` of each level, the coarsest first -> `(B * N, widths[0], H, W)`."""
        N = zs[0].shape[1]
        *finer, trunk = features
        x = trunk.repeat_interleave(N, 0)
        for place, (block, z) in enumerate(zip(self.blocks, zs, strict=True)):
            if place:
                x = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
            if self.skips:
                x = torch.cat([x, finer[-1 - place].repeat_interleave(N, 0)], 1)
            x = block(x, z.flatten(0, 1))
        return x


class JoinedBlock(nn.Module):
    """A dense block whose convolutions all see z beside the features: z is not normalised, its size means something."""

    def __init__(self, channels: int, dims: int, width: int, sizes: Sizes) -> None:
        super().__init__()
        ins = [channels + i * sizes.growth for i in range(sizes.convs + 1)]
        self.norms = nn.ModuleList(make_norm(c, "group") for c in ins)
        self.convs = nn.ModuleList(nn.Conv2d(c + dims, sizes.growth, 3, padding=1, bias=False) for c in ins[:-1])
        self.out = nn.Conv2d(ins[-1] + dims, width, 1, bias=False)

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """x `(B, channels, h, w)`, z `(B, dims)` -> `(B, width, h, w)`."""
        *norms, last = self.norms
        z = z.unsqueeze(1)
        for norm, conv in zip(norms, self.convs, strict=True):
            x = torch.cat([x, conv(tile(F.relu(norm(x)), z))], 1)
        return self.out(tile(F.relu(last(x)), z))
