"""BerDiff: a network, a schedule, the loss of algorithm 1 and the sampler of algorithm 2."""

from dataclasses import asdict

import torch
from torch import Tensor

from berdiff.diffusion.bernoulli import Posterior, q_sample
from berdiff.diffusion.losses import TARGETS, Target, estimate_logits, total_loss
from berdiff.diffusion.random import Generators
from berdiff.diffusion.sampling import Callback, Sampler, initial_noise, sample
from berdiff.diffusion.schedule import NoiseSchedule
from berdiff.methods.diffusing import Diffusing, Estimate, TimeSampling
from berdiff.networks.denoiser import Denoiser


class BerDiff(Diffusing):
    """A `Segmenter` on any `Denoiser`. The defaults are the paper's."""

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
        """`posterior` is the form of eq. 7 in L_KL; the rest as in `Diffusing`."""
        super().__init__(
            network,
            schedule,
            time_sampling=time_sampling,
            masks_per_image=masks_per_image,
            sampler=sampler or Sampler(),
            masks_per_pass=masks_per_pass,
        )
        if target not in TARGETS:
            raise ValueError(f"target: expected one of {', '.join(TARGETS)}, found {target!r}")
        if posterior not in ("soft", "marginal"):
            raise ValueError(f"posterior: expected 'soft' or 'marginal', found {posterior!r}")
        if min(lambda_kl, lambda_bce) < 0 or lambda_kl + lambda_bce == 0:
            raise ValueError(
                f"lambda_kl, lambda_bce: expected two weights >= 0, not both 0, found {lambda_kl} and {lambda_bce}"
            )
        self.target: Target = target
        self.lambda_kl, self.lambda_bce = lambda_kl, lambda_bce
        self.posterior: Posterior = posterior

    def _score(self, image: Tensor, y0: Tensor, t: Tensor, generator: Generators) -> dict[str, Tensor]:
        y_t, eps = q_sample(self.schedule, y0, t, generator)
        logits = self.network.denoise(y_t, t, self.network.encode(image)).float()
        return total_loss(
            self.schedule, logits, y0, y_t, eps, t, self.target, self.lambda_kl, self.lambda_bce, self.posterior
        )

    def _walk(
        self,
        estimate: Estimate,
        shape: tuple[int, ...],
        like: Tensor,
        generators: list[torch.Generator],
        sampler: Sampler,
        callback: Callback | None,
    ) -> Tensor:
        def predict(y_t: Tensor, t: int) -> Tensor:
            return estimate_logits(self.schedule, self.target, estimate(y_t, t), y_t, t).sigmoid()

        return sample(self.schedule, sampler, predict, initial_noise(shape, generators, like), generators, callback)

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
