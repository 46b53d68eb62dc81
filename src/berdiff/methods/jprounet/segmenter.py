"""The loss of JPro. U-net: latents that must explain the image and the mask together."""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from berdiff.data.input_spec import InputSpec
from berdiff.diffusion.random import Generators
from berdiff.methods.base import Terms, pick_raters
from berdiff.methods.families.latent import Elbo, LatentSegmenter
from berdiff.methods.jprounet.network import JProUNet as Network

if TYPE_CHECKING:
    from berdiff.methods.jprounet import JProUNet


class JointSegmenter(LatentSegmenter):
    network: Network

    def __init__(self, config: "JProUNet", input_spec: InputSpec) -> None:
        sizes = len(input_spec.channels), len(input_spec.targets)
        network = Network(config.preset, *sizes, config.dims, config.couplings)
        objective = Elbo(config.beta, config.beta_warmup)
        super().__init__(config, input_spec, network, objective, config.masks_per_image)

    def loss(self, image: Tensor, masks: Tensor, generators: Generators) -> Terms:
        """|image - given back| + cross-entropy, both summed over pixels, + beta x mean over levels of KL(q || p).

        All per pixel, as `Objective` says. Of an image: the first rater, then the latents, the coarsest first.
        """
        self.check_batch(image, masks)
        y = pick_raters(masks, self.masks_per_image, generators).to(image.dtype)
        features = self.network.encode(image)
        logits, picture, kls = self.network.infer_jointly(features, image, y, self._noise(generators))
        bce = F.binary_cross_entropy_with_logits(logits.float(), y.float(), reduction="none")
        terms = self.objective(bce, torch.stack(kls).mean(0), generators)
        distance = (picture.float() - image.unsqueeze(1)).abs().sum((2, 3, 4)).mean() / y[0, 0].numel()
        levels = {f"kl_{level}": kl.mean() for level, kl in enumerate(kls, 1)}
        return {**terms, "loss": terms["loss"] + distance, "image": distance, **levels}
