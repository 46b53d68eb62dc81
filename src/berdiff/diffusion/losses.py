"""L_KL, L_BCE and L_total (eqs. 8-10), and the ELBO they come from. All from logits, so finite at every probability.

Reductions are per-pixel means, in nats. Both losses come from one estimate, that is one forward pass.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from berdiff.diffusion.bernoulli import (
    predict_y0_logits,
    predict_y0_prior_logits,
    q_sample,
    sigma_ddpm,
    sigma_weights,
    theta_post,
)
from berdiff.diffusion.random import Generators
from berdiff.diffusion.sampler import Posterior
from berdiff.diffusion.schedule import NoiseSchedule, Time, cast

Prediction = Literal["noise", "mask", "prior"]
"""What the network's logits are of: the flips (paper), the mask, or the mask before its own pixel is looked at."""
PREDICTIONS = get_args(Prediction)
Weighted = Mapping[str, tuple[float, Callable[[], Tensor]]]
"""The terms of a loss: the factor of each, and how its value at each pixel is computed."""


def estimate_logits(schedule: NoiseSchedule, prediction: Prediction, logits: Tensor, y_t: Tensor, t: Time) -> Tensor:
    """The logits of the estimated mask, the probability that y0 = 1, from those of the network."""
    if prediction == "noise":
        return predict_y0_logits(y_t, logits)
    if prediction == "prior":
        return predict_y0_prior_logits(schedule, y_t, logits, t)
    if prediction == "mask":
        return logits
    raise ValueError(f"prediction: expected one of {', '.join(PREDICTIONS)}, found {prediction!r}")


def log_reverse(
    schedule: NoiseSchedule, y_t: Tensor, y0_logits: Tensor, t: Time, s: Time, posterior: Posterior = "soft"
) -> tuple[Tensor, Tensor]:
    """(log mu_hat, log(1 - mu_hat)) of the reverse step, eq. 6, from the logits of the estimated mask."""
    t, s = torch.as_tensor(t), torch.as_tensor(s)
    if posterior == "soft":
        a, b, _ = schedule.pair(t, s, y_t)
        a, flip_a, b, flip_b = cast(y_t, a, (1 - a) / 2, b, (1 - b) / 2)
        ones = (a * y_t + flip_a).log() + _log_affine(y0_logits, b, flip_b)
        zeros = (a * (1 - y_t) + flip_a).log() + _log_affine(-y0_logits, b, flip_b)
        norm = torch.logaddexp(ones, zeros)
        return ones - norm, zeros - norm
    if posterior == "marginal":
        weights = sigma_weights(schedule, y_t, t, s, sigma_ddpm(schedule, t, s, y_t))
        of_y_t, of_y0, rest = cast(y_t, *(weight.clamp(min=0) for weight in weights))
        return (
            _log_affine(y0_logits, of_y0, of_y_t * y_t + rest),
            _log_affine(-y0_logits, of_y0, of_y_t * (1 - y_t) + rest),
        )
    raise ValueError(f"posterior: expected 'soft' or 'marginal', found {posterior!r}")


def _log_affine(logits: Tensor, weight: Tensor, offset: Tensor) -> Tensor:
    """log(weight * sigmoid(logits) + offset), stable at both ends; an offset of 0 (s = 0) is allowed."""
    return torch.logaddexp(weight.log() + F.logsigmoid(logits), offset.log())


def kl_loss(
    schedule: NoiseSchedule, y_t: Tensor, y0: Tensor, y0_logits: Tensor, t: Time, s: Time, posterior: Posterior = "soft"
) -> Tensor:
    """Eq. 8, elementwise: KL(q(y_s | y_t, y0) || p_theta(y_s | y_t, x)). At s = 0 it is -log p_theta(y0 | y_1, x)."""
    p = theta_post(schedule, y_t, y0, t, s)
    log_ones, log_zeros = log_reverse(schedule, y_t, y0_logits, t, s, posterior)
    return torch.xlogy(p, p) + torch.xlogy(1 - p, 1 - p) - p * log_ones - (1 - p) * log_zeros


def bce_loss(target: Tensor, logits: Tensor) -> Tensor:
    """Eq. 9, elementwise: the cross-entropy of the estimate. Its value is the same for the noise and for the mask."""
    return F.binary_cross_entropy_with_logits(logits, target, reduction="none")


def total_loss(
    schedule: NoiseSchedule,
    logits: Tensor,
    y0: Tensor,
    y_t: Tensor,
    eps: Tensor,
    t: Time,
    prediction: Prediction = "noise",
    lambda_kl: float = 1.0,
    lambda_bce: float = 1.0,
    posterior: Posterior = "soft",
    weight: Tensor | None = None,
) -> dict[str, Tensor]:
    """Eq. 10 from one estimate, the network's `logits` of what it predicts; s = t - 1.

    The soft form inside L_KL adds a pixel's own evidence itself (`reverse_mean`), so it gets the prior's logits where
    the network predicts the prior.
    """
    y0_logits = estimate_logits(schedule, prediction, logits, y_t, t)
    of_kl = logits if prediction == "prior" and posterior == "soft" else y0_logits
    of_bce = (eps, logits) if prediction == "noise" else (y0, y0_logits)
    terms: Weighted = {
        "kl": (lambda_kl, lambda: kl_loss(schedule, y_t, y0, of_kl, t, t - 1, posterior)),
        "bce": (lambda_bce, lambda: bce_loss(*of_bce)),
    }
    return weighted_sum(terms, weight)


def weighted_sum(terms: Weighted, weight: Tensor | None, of_targets: Tensor | None = None) -> dict[str, Tensor]:
    """ "loss", the sum of the terms times their factors, and the terms. One with factor 0 is left out: an ablation pays
    only for what it uses."""
    used = {name: (factor, over_masks(loss(), weight, of_targets)) for name, (factor, loss) in terms.items() if factor}
    total = sum(factor * term for factor, term in used.values())
    return {"loss": torch.as_tensor(total), **{name: term for name, (_, term) in used.items()}}


def over_masks(loss: Tensor, weight: Tensor | None, of_targets: Tensor | None = None) -> Tensor:
    """The mean over pixels, and over masks the mean, or the sum by the `weight` `(B, N)` of each.

    `of_targets` `(K, 1, ...)` is the weight of each target.
    """
    if of_targets is not None:
        loss = loss * of_targets
    return loss.mean() if weight is None else (loss.flatten(2).mean(2) * weight).sum()


def prior_kl(schedule: NoiseSchedule, y0: Tensor) -> Tensor:
    """KL(q(y_T | y0) || B(1/2)), elementwise: what is still known at T, about alpha_bar_T^2 / 2 and alike for both y0.

    With p = (1 + c) / 2 it is ((1 + c) log(1 + c) + (1 - c) log(1 - c)) / 2: no logarithm of 1/2 to subtract.
    """
    c = schedule.alpha_bar[-1]
    return torch.full_like(y0, float(((1 + c) * torch.log1p(c) + (1 - c) * torch.log1p(-c)) / 2))


@torch.no_grad()
def elbo_bits(
    schedule: NoiseSchedule,
    predict_logits: Callable[[Tensor, int], Tensor],
    y0: Tensor,
    generators: Generators,
    posterior: Posterior = "soft",
    timesteps: Iterable[int] | None = None,
) -> Tensor:
    """The bound on -log2 p_theta(y0 | x) in bits per pixel, one value for each mask of the first dimension.

    predict_logits(y_t, t) gives the logits of the estimated mask. All T terms by default, each with one draw of y_t; a
    subset of uniformly drawn `timesteps` gives an unbiased estimate for less.
    """
    steps = list(range(1, schedule.T + 1) if timesteps is None else timesteps)
    if not steps:
        raise ValueError("timesteps: expected at least one step, found none")
    total = torch.zeros_like(y0)
    for t in steps:
        y_t, _ = q_sample(schedule, y0, t, generators)
        total += kl_loss(schedule, y_t, y0, predict_logits(y_t, t), t, t - 1, posterior)
    total = prior_kl(schedule, y0) + total * (schedule.T / len(steps))
    return total.flatten(1).mean(1) / math.log(2)
