"""A diffusion on any `Denoiser` and any kernel: the loss of algorithm 1, the sampling of algorithm 2."""

from typing import Any

import torch
from torch import Tensor

from berdiff.data.input_spec import InputSpec
from berdiff.diffusion.kernels.base import Kernel
from berdiff.diffusion.random import Generators, uniform
from berdiff.diffusion.sampler import Sampler, time_grid
from berdiff.diffusion.sampling import sample
from berdiff.methods.base import SampleRequest, Terms, pick_raters
from berdiff.methods.families.diffusion_config import DiffusionConfig
from berdiff.methods.families.encoded import EncodedSegmenter, Shape
from berdiff.networks.check_image import Size
from berdiff.networks.denoiser import Denoiser
from berdiff.networks.tiled import TiledDenoiser


class DiffusionSegmenter(EncodedSegmenter):
    config: DiffusionConfig

    def __init__(self, config: DiffusionConfig, input_spec: InputSpec, network: Denoiser[Any], kernel: Kernel) -> None:
        super().__init__(config, input_spec, network.stride)
        self.network, self.kernel = network, kernel
        self.raters = "one" if config.masks_per_image == 1 else "all"
        self.sampler, self.T = config.sampler, kernel.schedule.T
        kernel.check(config.sampler)

    def estimate(self, y_t: Tensor, t: Tensor, features: Any) -> Tensor:
        """The network's output for y_t `(B, N, K, *S)` and t `(B, N)`, in float32."""
        denoise = self.network.denoise if self.kernel.signed else self.network.denoise_mask
        return denoise(y_t, t, features).float()

    # --- algorithm 1 -------------------------------------------------------------------------------------------------

    def loss(self, image: Tensor, masks: Tensor, generators: Generators) -> Terms:
        """A random rater, t and noise for each of the N = `masks_per_image` masks that share the encoding of an image.

        With N a multiple of R every rater counts the same. Stratified steps depend on an image's place in its batch.
        """
        self.check_batch(image, masks)
        y0 = pick_raters(masks, self.config.masks_per_image, generators).to(image.dtype)
        t = self._pick_times(image, generators)
        y_t, eps = self.kernel.q_sample(y0, t, generators)
        output = self.estimate(y_t, t, self.network.encode(image))
        return self.kernel.loss(output, y0, y_t, eps, t)

    def _pick_times(self, image: Tensor, generators: Generators) -> Tensor:
        """t in 1..T `(B, N)`; stratified: one in each of B * N equal parts, so that a batch, and the masks of each
        image in it, cover all noise levels."""
        B, N = len(image), self.config.masks_per_image
        u = uniform((B, N), generators, image.new_empty(0, dtype=torch.float32))
        if self.config.time_sampling == "stratified":
            u = (torch.arange(B * N, device=u.device).reshape(N, B).T + u) / (B * N)
        T = self.kernel.schedule.T
        return 1 + (u * T).long().clamp(max=T - 1)

    # --- algorithm 2 -------------------------------------------------------------------------------------------------

    def draw(self, features: Any, shape: Shape, request: SampleRequest) -> Tensor:
        sampler, generators = request.sampler, request.generators
        assert sampler is not None  # `sample` hands on the method's own
        self.kernel.check(sampler)

        def estimate(y_t: Tensor, t: int) -> Tensor:
            return self.estimate(y_t, torch.full(y_t.shape[:2], t, device=y_t.device), features)

        y_T = self.kernel.prior(shape, generators, torch.empty(0, device=generators[0].device))
        return sample(self.kernel, sampler, estimate, y_T, generators, request.callback)

    def tiled(self, size: Size, overlap: float) -> "DiffusionSegmenter":
        tiles = TiledDenoiser(self.network, size, overlap, self.kernel.to_mean, self.kernel.from_mean)
        return self.with_changes(network=tiles, stride=1)

    def check_sampler(self, sampler: Sampler) -> None:
        time_grid(self.kernel.schedule.T, sampler.steps, sampler.spacing)
        self.kernel.check(sampler)
