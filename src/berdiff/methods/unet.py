"""The plain U-net of the paper's tables: the same network without diffusion, one answer an image."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from berdiff.diffusion.random import Generators
from berdiff.diffusion.sampling import Sampler
from berdiff.methods.diffusing import check_batch, own_generators, passes, pick_readers
from berdiff.networks.denoiser import Denoiser


class PlainUNet(nn.Module):
    """A `Segmenter` on any `Denoiser`: it sees an empty mask at t = 0, so the image alone, and is asked once.

    The architecture is the diffusion methods' to the last weight; those on the mask's channel have nothing to do.
    """

    def __init__(self, network: Denoiser, *, images_per_pass: int = 16) -> None:
        super().__init__()
        if images_per_pass < 1:
            raise ValueError(f"images_per_pass: expected at least 1, found {images_per_pass}")
        self.network = network
        self.images_per_pass = images_per_pass

    def _logits(self, image: Tensor) -> Tensor:
        """image `(B, C, H, W)` -> `(B, 1, K, H, W)`."""
        B, _, H, W = image.shape
        features = self.network.encode(image)
        nothing = image.new_zeros(B, 1, self.network.targets, H, W)  # type: ignore[attr-defined]
        t = torch.zeros(B, 1, dtype=torch.long, device=image.device)
        return self.network.denoise(nothing, t, features).float()

    def loss(self, image: Tensor, masks: Tensor, generator: Generators) -> dict[str, Tensor]:
        """Cross-entropy to a random reader: image `(B, C, H, W)`, masks `(B, R, K, H, W)`."""
        check_batch(image, masks, self.network.targets)  # type: ignore[attr-defined]
        y0 = pick_readers(masks, 1, generator).float()
        bce = F.binary_cross_entropy_with_logits(self._logits(image), y0)
        return {"loss": bce, "bce": bce}

    @torch.no_grad()
    def sample(self, image: Tensor, n: int, generator: Generators, sampler: Sampler | None = None) -> Tensor:
        """`(B, n, K, H, W)` uint8: one mask, the pixels more probable than not, n times over.

        Nothing is random in it and there are no steps, so generators and `sampler` change nothing.
        """
        own_generators(image, n, generator)  # refuses what the other methods refuse
        same_shape = not isinstance(generator, torch.Generator)
        parts = [self._logits(part)[:count] for _, count, part in passes(image, self.images_per_pass, same_shape)]
        return (torch.cat(parts) > 0).to(torch.uint8).expand(-1, n, -1, -1, -1).contiguous()

    def config(self) -> dict[str, object]:
        return {"method": "unet", "network": self.network.config()}  # type: ignore[attr-defined]
