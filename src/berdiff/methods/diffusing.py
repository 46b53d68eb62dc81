"""What every diffusion method shares, whatever its noise: readers and steps for the loss, passes for `sample`.

A kernel (Bernoulli, Gaussian) says only how a noisy mask is scored and how one walks back from noise.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn

from berdiff.diffusion.bernoulli import check_mask
from berdiff.diffusion.random import Generators, uniform
from berdiff.diffusion.sampling import Callback, Sampler, spawn_generators
from berdiff.diffusion.schedule import NoiseSchedule
from berdiff.networks.denoiser import Denoiser

TimeSampling = Literal["uniform", "stratified"]
Estimate = Callable[[Tensor, int], Tensor]
"""(y_t `(B, n, K, H, W)`, t) -> what the network says, float32, like y_t."""


class Diffusing(nn.Module, ABC):
    """A `Segmenter` on any `Denoiser`; a kernel adds `_score`, `_walk` and `config`."""

    network: Any  # an nn.Module that keeps the Denoiser protocol

    def __init__(
        self,
        network: Denoiser,
        schedule: NoiseSchedule,
        *,
        time_sampling: TimeSampling,
        masks_per_image: int,
        sampler: Sampler,
        masks_per_pass: int,
    ) -> None:
        """`masks_per_image`: how many pairs of a reader and a step learn from one encoding; `sampler`: the default of
        `sample`; `masks_per_pass` bounds its memory: no more go through the network at once."""
        super().__init__()
        if time_sampling not in ("uniform", "stratified"):
            raise ValueError(f"time_sampling: expected 'uniform' or 'stratified', found {time_sampling!r}")
        for name, count in (("masks_per_image", masks_per_image), ("masks_per_pass", masks_per_pass)):
            if count < 1:
                raise ValueError(f"{name}: expected at least 1, found {count}")
        self.network = network
        self.schedule = schedule
        self.time_sampling: TimeSampling = time_sampling
        self.masks_per_image = masks_per_image
        self.sampler = sampler
        self.masks_per_pass = masks_per_pass

    # --- what a kernel adds ------------------------------------------------------------------------------------------

    @abstractmethod
    def _score(self, image: Tensor, y0: Tensor, t: Tensor, generator: Generators) -> dict[str, Tensor]:
        """The terms of the loss at y0 `(B, N, K, H, W)` of 0/1 and t `(B, N)`."""

    @abstractmethod
    def _walk(
        self,
        estimate: Estimate,
        shape: tuple[int, ...],
        like: Tensor,
        generators: list[torch.Generator],
        sampler: Sampler,
        callback: Callback | None,
    ) -> Tensor:
        """From noise of `shape` `(B, n, K, H, W)`, one generator a mask, to masks of 0 and 1."""

    # --- algorithm 1 -------------------------------------------------------------------------------------------------

    def loss(self, image: Tensor, masks: Tensor, generator: Generators) -> dict[str, Tensor]:
        """One step of algorithm 1 on image `(B, C, H, W)`, masks `(B, R, K, H, W)`: a random reader, t and noise for
        each of the N = `masks_per_image` masks that share the encoding of an image. With N a multiple of R every reader
        counts the same.

        With B generators, one an image, an image's draws do not depend on the batch it is in (stratified steps: on its
        place there alone).
        """
        check_batch(image, masks, self.network.targets)
        y0 = pick_readers(masks, self.masks_per_image, generator).to(image.dtype)
        return self._score(image, y0, self._pick_times(image, generator), generator)

    def _pick_times(self, image: Tensor, generator: Generators) -> Tensor:
        """t in 1..T `(B, N)`; stratified: one in each of B * N equal parts, so that a batch, and the masks of each
        image in it, cover all noise levels."""
        B, N = len(image), self.masks_per_image
        u = uniform((B, N), generator, image.new_empty(0, dtype=torch.float32))
        if self.time_sampling == "stratified":
            u = (torch.arange(B * N, device=u.device).reshape(N, B).T + u) / (B * N)
        return 1 + (u * self.schedule.T).long().clamp(max=self.schedule.T - 1)

    # --- algorithm 2 -------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def sample(
        self,
        image: Tensor,
        n: int,
        generator: Generators,
        sampler: Sampler | None = None,
        callback: Callback | None = None,
    ) -> Tensor:
        """n masks an image: image `(B, C, H, W)` -> `(B, n, K, H, W)` uint8. Each image is encoded once.

        With B * n generators, one a sample, a sample does not depend on the batch it is drawn in. Convolutions round
        differently for different batch sizes, so every pass then has the same shape: the last one is filled up.
        """
        same_shape = not isinstance(generator, torch.Generator)
        generators = own_generators(image, n, generator)
        rows = []
        for first, count, part in passes(image, max(1, self.masks_per_pass // n), same_shape):
            own = generators[first * n : (first + count) * n]
            own = own + _fillers((len(part) - count) * n, image)
            rows.append(self._sample_encoded(part, n, own, sampler or self.sampler, callback)[:count])
        return torch.cat(rows)

    def _sample_encoded(
        self, image: Tensor, n: int, generators: list[torch.Generator], sampler: Sampler, callback: Callback | None
    ) -> Tensor:
        """As `sample`, for images whose masks fit in few passes: they are encoded together, once."""
        B, _, H, W = image.shape
        features = self.network.encode(image)

        def estimate(y_t: Tensor, t: int) -> Tensor:
            steps = torch.full(y_t.shape[:2], t, device=y_t.device)
            return self.network.denoise(y_t, steps, features).float()

        masks_at_once = min(n, self.masks_per_pass)  # of each image; more than one image only if all n fit
        shape = (B, masks_at_once, self.network.targets, H, W)
        parts = []
        for first in range(0, n, masks_at_once):
            own = generators if masks_at_once == n else generators[first : first + masks_at_once]
            own = own + _fillers(B * masks_at_once - len(own), image)
            parts.append(self._walk(estimate, shape, image, own, sampler, callback).to(torch.uint8))
        return torch.cat(parts, 1)[:, :n]


# --- for methods without diffusion too -------------------------------------------------------------------------------


def pick_readers(masks: Tensor, count: int, generator: Generators) -> Tensor:
    """masks `(B, R, K, H, W)` -> `(B, count, K, H, W)`: the readers in turn, from a random one on."""
    B, R = masks.shape[:2]
    like = torch.empty(0, device=masks.device)
    first = (uniform((B, 1), generator, like) * R).long()
    reader = (first + torch.arange(count, device=masks.device)) % R
    return masks[torch.arange(B, device=masks.device).unsqueeze(1), reader]


def passes(image: Tensor, at_once: int, same_shape: bool) -> Iterator[tuple[int, int, Tensor]]:
    """(first, count, images) in parts of `at_once`; with `same_shape` the last is filled up beyond its count."""
    for first in range(0, len(image), at_once):
        part = image[first : first + at_once]
        count = len(part)
        missing = at_once - count if same_shape else 0
        yield first, count, torch.cat([part, part[:1].expand(missing, -1, -1, -1)])


def own_generators(image: Tensor, n: int, generator: Generators) -> list[torch.Generator]:
    """One generator for each of n samples of each image, after a look at what `sample` was given."""
    if image.ndim != 4:
        raise ValueError(f"image: expected (B, C, H, W), found {tuple(image.shape)}")
    if n < 1:
        raise ValueError(f"n: expected at least 1 sample, found {n}")
    B = len(image)
    generators = spawn_generators(generator, B * n) if isinstance(generator, torch.Generator) else list(generator)
    if len(generators) != B * n:
        raise ValueError(f"generator: expected one, or one for each of {B} x {n} samples, found {len(generators)}")
    return generators


def check_batch(image: Tensor, masks: Tensor, targets: int) -> None:
    """What `loss` is given: ValueError where shapes do not fit or masks hold other values than 0 and 1."""
    if image.ndim != 4:
        raise ValueError(f"image: expected (B, C, H, W), found {tuple(image.shape)}")
    fits = masks.ndim == 5 and masks.shape[0] == image.shape[0] and masks.shape[-2:] == image.shape[-2:]
    if not fits or not masks.shape[1] or masks.shape[2] != targets:
        raise ValueError(
            f"masks: expected (B, R, K, H, W) with at least one reader and {targets} target(s) for images of shape "
            f"{tuple(image.shape)}, found {tuple(masks.shape)}"
        )
    if masks.device.type == "cpu":  # on an accelerator, looking would stall the queue
        check_mask(masks)


def _fillers(count: int, image: Tensor) -> list[torch.Generator]:
    """Generators for masks that only fill up a pass and are thrown away."""
    return [torch.Generator(image.device) for _ in range(count)]
