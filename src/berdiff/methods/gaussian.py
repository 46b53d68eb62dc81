"""Gaussian diffusion on the same network: the other row of table 2, and what SegDiff is at heart."""

from dataclasses import asdict
from typing import Literal

import torch
from torch import Tensor

from berdiff.diffusion import gaussian
from berdiff.diffusion.random import Generators, normal
from berdiff.diffusion.sampling import Callback, Sampler
from berdiff.diffusion.schedule import NoiseSchedule
from berdiff.methods.diffusing import Diffusing, Estimate, TimeSampling
from berdiff.networks.denoiser import Denoiser

GaussianTarget = Literal["noise", "mask"]


class GaussianDiff(Diffusing):
    """A `Segmenter` on any `Denoiser`: masks as -1 and 1, Gaussian noise, the squared error of the estimate.

    `Sampler.sigma` is DDIM's eta here: 0, the default, is DDIM as it is usually run, where all chance lies in y_T;
    1 has DDPM's variance. The network sees y_t itself, not a mask of 0 and 1.
    """

    def __init__(
        self,
        network: Denoiser,
        schedule: NoiseSchedule,
        *,
        target: GaussianTarget = "noise",
        time_sampling: TimeSampling = "uniform",
        masks_per_image: int = 1,
        sampler: Sampler | None = None,
        masks_per_pass: int = 16,
    ) -> None:
        """`target`: what the network estimates, the noise or the mask as -1 and 1; the rest as in `Diffusing`."""
        super().__init__(
            network,
            schedule,
            time_sampling=time_sampling,
            masks_per_image=masks_per_image,
            sampler=sampler or Sampler(sigma=0.0),
            masks_per_pass=masks_per_pass,
        )
        if target not in ("noise", "mask"):
            raise ValueError(f"target: expected one of noise, mask for Gaussian diffusion, found {target!r}")
        _check_sampler(self.sampler)
        self.target: GaussianTarget = target

    def _score(self, image: Tensor, y0: Tensor, t: Tensor, generator: Generators) -> dict[str, Tensor]:
        signal = gaussian.to_signal(y0)
        y_t, eps = gaussian.q_sample(self.schedule, signal, t, generator)
        estimate = self.network.denoise(y_t, t, self.network.encode(image)).float()
        mse = (estimate - (eps if self.target == "noise" else signal)).square().mean()
        return {"loss": mse, "mse": mse}

    def _walk(
        self,
        estimate: Estimate,
        shape: tuple[int, ...],
        like: Tensor,
        generators: list[torch.Generator],
        sampler: Sampler,
        callback: Callback | None,
    ) -> Tensor:
        _check_sampler(sampler)

        def predict_eps(y_t: Tensor, t: int) -> Tensor:
            said = estimate(y_t, t)
            return said if self.target == "noise" else gaussian.predict_eps(self.schedule, y_t, said, t)

        y_T = normal(shape, generators, like)
        return gaussian.sample(self.schedule, sampler, predict_eps, y_T, generators, callback)

    def config(self) -> dict[str, object]:
        """What `config.json` holds; `methods.folder.build` makes the model from it."""
        return {
            "method": "gaussian",
            "network": self.network.config(),
            "schedule": {"name": self.schedule.name, "T": self.schedule.T},
            "target": self.target,
            "time_sampling": self.time_sampling,
            "masks_per_image": self.masks_per_image,
            "sampler": asdict(self.sampler),
        }


def _check_sampler(sampler: Sampler) -> None:
    """Some choices of a sampler are the Bernoulli kernel's alone."""
    for name, only in (("posterior", "soft"), ("last_step", "threshold"), ("latent", "pixel")):
        if getattr(sampler, name) != only:
            raise ValueError(f"{name}: expected {only!r} for Gaussian diffusion, found {getattr(sampler, name)!r}")
