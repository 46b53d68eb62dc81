"""GECO (Rezende and Viola 2018): as little KL as a given reconstruction allows, judged by the hardest pixels.

minimise lambda (R - kappa k) + KL, where R is the cross-entropy of k pixels and lambda > 0 rises while R > kappa k.
"""

import math

import torch
from torch import Tensor

from berdiff.diffusion.random import Generators, uniform
from berdiff.methods.base import Terms
from berdiff.methods.families.latent import Objective

LARGEST = math.log(100.0)
"""|log lambda| is at most this: a constraint that cannot be met must not end in a model without a prior."""


class Geco(Objective):
    log_lambda: Tensor
    average: Tensor
    updates: Tensor

    def __init__(self, kappa: float, nu: float, decay: float, top_k: float) -> None:
        """`kappa` nats per pixel; `nu` the rate of log lambda; `decay` of the moving average of R; `top_k` a share."""
        super().__init__()
        self.kappa, self.nu, self.decay, self.top_k = kappa, nu, decay, top_k
        self.register_buffer("log_lambda", torch.zeros(()))
        self.register_buffer("average", torch.zeros(()))  # of R / k
        self.register_buffer("updates", torch.zeros((), dtype=torch.long))

    def forward(self, bce: Tensor, kl: Tensor, generators: Generators) -> dict[str, Tensor]:
        pixels = bce.flatten(2)
        k = max(1, int(self.top_k * pixels.shape[2]))
        chosen = stochastic_top_k(pixels.detach(), k, generators)
        rec = (pixels * chosen).sum(2).mean() / k
        weight = self.log_lambda.exp()
        loss = weight * (rec - self.kappa) + kl.mean() / k
        return {"loss": loss, "bce": bce.mean(), "rec": rec, "kl": kl.mean(), "lambda": weight}

    def update(self, terms: Terms) -> None:
        """log lambda moves by nu times the violation relative to kappa, at most 1 either way.

        The moving average is a plain mean until it is as long as `decay` says.
        """
        self.updates += 1
        self.average.lerp_(terms["rec"], (1 / self.updates).clamp(min=1 - self.decay))
        violation = (self.average / self.kappa - 1).clamp(max=1)
        self.log_lambda.add_(self.nu * violation).clamp_(-LARGEST, LARGEST)


def stochastic_top_k(weights: Tensor, k: int, generators: Generators) -> Tensor:
    """weights `(B, N, P)`, not negative -> the same shape with k ones per mask: drawn without replacement, each with
    probability proportional to its weight, as the k largest of log weight + Gumbel noise."""
    gumbel = -torch.log(-torch.log(uniform(weights.shape, generators, weights)))
    places = (weights.log() + gumbel).topk(k, -1).indices
    return torch.zeros_like(weights).scatter_(-1, places, 1.0)
