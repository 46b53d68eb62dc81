"""BerDiff: a network, a schedule, the loss of algorithm 1 and the sampler of algorithm 2."""

from dataclasses import asdict
from typing import Any, Literal

import torch
from torch import Tensor, nn

from berdiff.diffusion.bernoulli import Posterior, check_mask, q_sample
from berdiff.diffusion.losses import TARGETS, Target, estimate_logits, total_loss
from berdiff.diffusion.random import Generators, uniform
from berdiff.diffusion.sampling import Callback, Sampler, initial_noise, sample, spawn_generators
from berdiff.diffusion.schedule import NoiseSchedule
from berdiff.networks.denoiser import Denoiser

TimeSampling = Literal["uniform", "stratified"]


class BerDiff(nn.Module):
    """A `Segmenter` on any `Denoiser`. The defaults are the paper's."""

    network: Any  # an nn.Module that keeps the Denoiser protocol

    def __init__(
        self,
        network: Denoiser,
        schedule: NoiseSchedule,
        *,
        target: Target = "noise",
        lambda_kl: float = 1.0,
        lambda_bce: float = 1.0,
        posterior: Posterior = "soft",
        time_sampling: TimeSampling = "uniform",
        masks_per_image: int = 1,
        sampler: Sampler | None = None,
        masks_per_pass: int = 16,
    ) -> None:
        """`posterior` is the form of eq. 7 in L_KL; `masks_per_image` how many pairs of a reader and a step learn from
        one encoding; `sampler` the default of `sample`; `masks_per_pass` bounds its memory: no more go through the
        network at once."""
        super().__init__()
        if target not in TARGETS:
            raise ValueError(f"target: expected one of {', '.join(TARGETS)}, found {target!r}")
        if posterior not in ("soft", "marginal"):
            raise ValueError(f"posterior: expected 'soft' or 'marginal', found {posterior!r}")
        if time_sampling not in ("uniform", "stratified"):
            raise ValueError(f"time_sampling: expected 'uniform' or 'stratified', found {time_sampling!r}")
        if min(lambda_kl, lambda_bce) < 0 or lambda_kl + lambda_bce == 0:
            raise ValueError(
                f"lambda_kl, lambda_bce: expected two weights >= 0, not both 0, found {lambda_kl} and {lambda_bce}"
            )
        for name, count in (("masks_per_image", masks_per_image), ("masks_per_pass", masks_per_pass)):
            if count < 1:
                raise ValueError(f"{name}: expected at least 1, found {count}")
        self.network = network
        self.schedule = schedule
        self.target: Target = target
        self.lambda_kl, self.lambda_bce = lambda_kl, lambda_bce
        self.posterior: Posterior = posterior
        self.time_sampling: TimeSampling = time_sampling
        self.masks_per_image = masks_per_image
        self.sampler = sampler or Sampler()
        self.masks_per_pass = masks_per_pass

    # --- algorithm 1 -------------------------------------------------------------------------------------------------

    def loss(self, image: Tensor, masks: Tensor, generator: Generators) -> dict[str, Tensor]:
        """One step of algorithm 1 on image `(B, C, H, W)`, masks `(B, R, K, H, W)`: a random reader, t and noise for
        each of the N = `masks_per_image` masks that share the encoding of an image. With N a multiple of R every reader
        counts the same.

        With B generators, one an image, an image's draws do not depend on the batch it is in (stratified steps: on its
        place there alone).
        """
        _check_shapes(image, masks, self.network.targets)
        if masks.device.type == "cpu":  # on an accelerator, looking would stall the queue
            check_mask(masks)
        y0 = self._pick_readers(masks, generator).to(image.dtype)
        t = self._pick_times(image, generator)
        y_t, eps = q_sample(self.schedule, y0, t, generator)
        logits = self.network.denoise(y_t, t, self.network.encode(image)).float()
        return total_loss(
            self.schedule, logits, y0, y_t, eps, t, self.target, self.lambda_kl, self.lambda_bce, self.posterior
        )

    def _pick_readers(self, masks: Tensor, generator: Generators) -> Tensor:
        """masks `(B, R, K, H, W)` -> `(B, N, K, H, W)`: the readers in turn, from a random one on."""
        B, R = masks.shape[:2]
        like = torch.empty(0, device=masks.device)
        first = (uniform((B, 1), generator, like) * R).long()
        reader = (first + torch.arange(self.masks_per_image, device=masks.device)) % R
        return masks[torch.arange(B, device=masks.device).unsqueeze(1), reader]

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
        if image.ndim != 4:
            raise ValueError(f"image: expected (B, C, H, W), found {tuple(image.shape)}")
        if n < 1:
            raise ValueError(f"n: expected at least 1 sample, found {n}")
        B = len(image)
        same_shape = not isinstance(generator, torch.Generator)
        generators = list(generator) if same_shape else spawn_generators(generator, B * n)
        if len(generators) != B * n:
            raise ValueError(f"generator: expected one, or one for each of {B} x {n} samples, found {len(generators)}")
        images_at_once = max(1, self.masks_per_pass // n)
        rows = []
        for first in range(0, B, images_at_once):
            part = image[first : first + images_at_once]
            own = generators[first * n : (first + len(part)) * n]
            missing = images_at_once - len(part) if same_shape else 0
            part = torch.cat([part, part[:1].expand(missing, -1, -1, -1)])
            masks = self._sample_encoded(part, n, own + _fillers(missing * n, image), sampler or self.sampler, callback)
            rows.append(masks[: len(masks) - missing])
        return torch.cat(rows)

    def _sample_encoded(
        self, image: Tensor, n: int, generators: list[torch.Generator], sampler: Sampler, callback: Callback | None
    ) -> Tensor:
        """As `sample`, for images whose masks fit in few passes: they are encoded together, once."""
        B, _, H, W = image.shape
        K = self.network.targets
        features = self.network.encode(image)

        def predict(y_t: Tensor, t: int) -> Tensor:
            steps = torch.full(y_t.shape[:2], t, device=y_t.device)
            logits = self.network.denoise(y_t, steps, features).float()
            return estimate_logits(self.schedule, self.target, logits, y_t, t).sigmoid()

        masks_at_once = min(n, self.masks_per_pass)  # of each image; more than one image only if all n fit
        parts = []
        for first in range(0, n, masks_at_once):
            own = generators if masks_at_once == n else generators[first : first + masks_at_once]
            own = own + _fillers(B * masks_at_once - len(own), image)
            y_T = initial_noise((B, masks_at_once, K, H, W), own, image)
            parts.append(sample(self.schedule, sampler, predict, y_T, own, callback).to(torch.uint8))
        return torch.cat(parts, 1)[:, :n]

    # --- save --------------------------------------------------------------------------------------------------------

    def config(self) -> dict[str, object]:
        """What `config.json` holds; `methods.folder.build` makes the model from it."""
        return {
            "method": "berdiff",
            "network": self.network.config(),
            "schedule": {"name": self.schedule.name, "T": self.schedule.T},
            "target": self.target,
            "lambda_kl": self.lambda_kl,
            "lambda_bce": self.lambda_bce,
            "posterior": self.posterior,
            "time_sampling": self.time_sampling,
            "masks_per_image": self.masks_per_image,
            "sampler": asdict(self.sampler),
        }


def _fillers(count: int, image: Tensor) -> list[torch.Generator]:
    """Generators for masks that only fill up a pass and are thrown away."""
    return [torch.Generator(image.device) for _ in range(count)]


def _check_shapes(image: Tensor, masks: Tensor, targets: int) -> None:
    if image.ndim != 4:
        raise ValueError(f"image: expected (B, C, H, W), found {tuple(image.shape)}")
    fits = masks.ndim == 5 and masks.shape[0] == image.shape[0] and masks.shape[-2:] == image.shape[-2:]
    if not fits or not masks.shape[1] or masks.shape[2] != targets:
        raise ValueError(
            f"masks: expected (B, R, K, H, W) with at least one reader and {targets} target(s) for images of shape "
            f"{tuple(image.shape)}, found {tuple(masks.shape)}"
        )
