"""The Probabilistic U-Net (Kohl et al. 2018): one vector z for the whole image, joined with a U-Net's last features."""

import torch.nn.functional as F
from torch import Tensor, nn

from berdiff.networks.inject import TileConv
from berdiff.networks.latent import Gaussian, LatentNetwork, Noise, VectorHead, beside, kl
from berdiff.networks.pyramid import Encoder, Sizes, UNet, initialise

PRESETS = {
    "paper": Sizes((32, 64, 128, 192, 192), convs=3),  # for LIDC-IDRI, 128x128
    "small": Sizes((24, 48, 96, 128, 128), convs=2),  # for two cores
    "tiny": Sizes((8, 16), convs=1),
}


class ProbUNet(LatentNetwork[tuple[Tensor, Gaussian]]):
    """Three networks: the U-Net, and for each of prior and posterior a copy of its way down. No normalisation.

    A mask costs four 1x1 convolutions, the rest is done once per image.
    """

    def __init__(self, preset: str, channels: int, targets: int, dims: int) -> None:
        sizes = PRESETS[preset]
        super().__init__(sizes.stride)
        width = sizes.widths[0]
        self.dims = dims
        self.unet = UNet(channels, sizes)
        self.prior = VectorNet(channels, dims, sizes)
        self.posterior = VectorNet(channels + targets, dims, sizes)
        self.inject = TileConv(width, dims, width)
        self.combine = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(2))
        self.logits = nn.Conv2d(width, targets, 1)
        initialise(self, "he")

    def encode(self, image: Tensor) -> tuple[Tensor, Gaussian]:
        """The U-Net's last features `(B, width, H, W)` and p(z | image), of `(B, dims)`."""
        x = image - 0.5
        return self.unet(x)[-1], self.prior(x)

    def infer(
        self, features: tuple[Tensor, Gaussian], image: Tensor, y: Tensor, noise: Noise
    ) -> tuple[Tensor, list[Tensor]]:
        last, prior = features
        shape = (*y.shape[:2], self.dims)
        q = Gaussian(*(part.reshape(shape) for part in self.posterior(beside(image, y) - 0.5)))
        divergence = kl(q, _per_mask(prior)).sum(2)
        return self.decode(last, q.draw(noise(shape))), [divergence]

    def generate(self, features: tuple[Tensor, Gaussian], N: int, noise: Noise) -> Tensor:
        last, prior = features
        return self.decode(last, _per_mask(prior).draw(noise((len(last), N, self.dims))))

    def decode(self, last: Tensor, z: Tensor) -> Tensor:
        """last `(B, width, H, W)`, z `(B, N, dims)` -> logits `(B, N, K, H, W)`."""
        x = F.relu(self.inject(last, z))
        for conv in self.combine:
            x = F.relu(conv(x))
        return self.logits(x).unflatten(0, z.shape[:2])


class VectorNet(nn.Module):
    """Prior or posterior: a way down, and a Gaussian from its last features."""

    def __init__(self, channels: int, dims: int, sizes: Sizes) -> None:
        super().__init__()
        self.encoder, self.head = Encoder(channels, sizes), VectorHead(sizes.widths[-1], dims)

    def forward(self, x: Tensor) -> Gaussian:
        return self.head(self.encoder(x)[-1])


def _per_mask(prior: Gaussian) -> Gaussian:
    """Of `(B, 1, dims)`: all masks of an image have the same prior."""
    return Gaussian(prior.mean.unsqueeze(1), prior.log_sigma.unsqueeze(1))
