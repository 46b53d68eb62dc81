"""Methods that read the image once and then draw many masks from what was read: the sampling that they share."""

from abc import abstractmethod
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from berdiff.diffusion.random import uniform
from berdiff.methods.base import PerSample, SampleRequest, Segmenter, fillers
from berdiff.methods.families.views import callback_of, mirrored, mirrored_back, take

Shape = tuple[int, ...]
"""(B, n, K, *S)"""


class EncodedSegmenter(Segmenter):
    """A method adds `draw`, and `encode` where no `network` does it."""

    network: Any

    def encode(self, image: Tensor) -> Any:
        """image `(B, C, *S)` -> what `draw` needs of it: a tensor, or nested tuples of tensors, batch first."""
        return self.network.encode(image)

    @abstractmethod
    def draw(self, features: Any, shape: Shape, request: SampleRequest) -> Tensor:
        """Masks of 0 and 1 of this shape, n per image; one generator per mask, image-major."""

    def _sample(self, image: Tensor, n: int, request: SampleRequest) -> Tensor:
        """The images are encoded together, once; `masks_per_pass` masks of each are drawn together."""
        views = 1 if request.sampler is None else request.sampler.views
        features = self.encode(mirrored(image, views))
        at_once = min(n, self.masks_per_pass)  # of each image; more than one image only if all n fit
        parts: list[Tensor] = []
        for first in range(0, n, at_once):
            part = request.generators if at_once == n else request.generators[first : first + at_once]
            part = part + fillers(len(image) * at_once - len(part), image)
            shape = (len(image), at_once, self.targets, *image.shape[2:])
            draw = self.draw if views == 1 else self._draw_views
            parts.append(draw(features, shape, replace(request, generators=part)).to(torch.uint8))
        return torch.cat(parts, 1)[:, :n]

    def _draw_views(self, features: Any, shape: Shape, request: SampleRequest) -> Tensor:
        """Each mask from a random one of the views that `features` hold, view by view."""
        assert request.sampler is not None  # it says how many views there are
        B, n, *rest = shape
        view, place = pick_views(B, n, request.sampler.views, request.generators)
        by_view = replace(request, callback=callback_of(request.callback, view))
        return mirrored_back(self.draw(take(features, place), (B * n, 1, *rest), by_view).reshape(shape), view)


def pick_views(B: int, n: int, views: int, generators: PerSample) -> tuple[Tensor, Tensor]:
    """A random view for each mask `(B, n)`, and its place `(B * n,)` among features that are view by view."""
    device = generators[0].device
    view = (uniform((B, n), generators, torch.empty(0, device=device)) * views).long()
    return view, (view * B + torch.arange(B, device=device).unsqueeze(1)).flatten()
