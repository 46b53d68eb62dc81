"""The Bernoulli kernel: forward process, posterior and reverse step (eqs. 1-7), for any pair s < t.

Every function returns the probability that a pixel is 1, elementwise; `draw` turns it into a mask. Masks are float
tensors of 0 and 1. `y0_hat`, the estimate of the mask, may be soft: the probability that y0 = 1.
"""

from typing import Any

import torch
from torch import Tensor

from berdiff.diffusion.random import Generators, uniform
from berdiff.diffusion.sampler import Posterior
from berdiff.diffusion.schedule import Coefficient, NoiseSchedule, Time, cast, log1p

# --- forward process -------------------------------------------------------------------------------------------------


def q_marginal(schedule: NoiseSchedule, y0: Tensor, t: Time) -> Tensor:
    """Eq. 3: q(y_t = 1 | y0)."""
    schedule.check(t)
    alpha_bar_t = schedule.at(t, y0)
    keep, flip = cast(y0, alpha_bar_t, (1 - alpha_bar_t) / 2)
    return keep * y0 + flip


def q_sample(schedule: NoiseSchedule, y0: Tensor, t: Time, generators: Generators) -> tuple[Tensor, Tensor]:
    """Eq. 3 by flips: (y_t, eps) with eps ~ B((1 - alpha_bar_t) / 2) and y_t = y0 XOR eps."""
    schedule.check(t)
    (flip,) = cast(y0, (1 - schedule.at(torch.as_tensor(t), y0)) / 2)
    eps = draw(flip.expand(y0.shape), generators).to(y0.dtype)
    return xor(y0, eps), eps


def xor(y: Tensor, eps: Tensor) -> Tensor:
    """Exclusive or of 0/1 masks; of probabilities, |y - eps| as the paper writes it."""
    return (y - eps).abs()


# --- posterior -------------------------------------------------------------------------------------------------------


def theta_post(schedule: NoiseSchedule, y_t: Tensor, y0: Tensor, t: Time, s: Time) -> Tensor:
    """Eq. 4: q(y_s = 1 | y_t, y0) for any s < t, with alpha_t -> a and alpha_bar_{t-1} -> b.

    A soft y0 is allowed, as the paper does; it is then NOT the marginal over y0 (see `marginal_post`).
    """
    a, b, _ = schedule.pair(t, s, y_t)
    a, flip_a, b, flip_b = cast(y_t, a, (1 - a) / 2, b, (1 - b) / 2)
    ones = (a * y_t + flip_a) * (b * y0 + flip_b)
    zeros = (a * (1 - y_t) + flip_a) * (b * (1 - y0) + flip_b)
    return ones / (ones + zeros)


def marginal_post(schedule: NoiseSchedule, y_t: Tensor, y0_hat: Tensor, t: Time, s: Time) -> Tensor:
    """sum over y0 of q(y_s = 1 | y_t, y0) P(y0): what eq. 4 becomes when y0 is not known but has a probability.

    The posterior of a hard y0 is linear in y0, so this is `sigma_post` at one particular sigma.
    """
    return sigma_post(schedule, y_t, y0_hat, t, s, sigma_ddpm(schedule, t, s, y_t))


# --- the family with the same marginals (DDIM, appendix A of that paper, for two states) -----------------------------


def sigma_max(schedule: NoiseSchedule, t: Time, s: Time, like: Tensor) -> Any:
    """The largest sigma for which `sigma_post` is a probability, a `Coefficient`."""
    _, b, alpha_bar_t = schedule.pair(t, s, like)
    return (1 - b) / (1 - alpha_bar_t)


def sigma_ddpm(schedule: NoiseSchedule, t: Time, s: Time, like: Tensor) -> Any:
    """The sigma at which `sigma_post` is the posterior of the Markov chain, eq. 4."""
    a, b, alpha_bar_t = schedule.pair(t, s, like)
    return a * (1 - b * b) / (1 - alpha_bar_t * alpha_bar_t)


def sigma_post(schedule: NoiseSchedule, y_t: Tensor, y0_hat: Tensor, t: Time, s: Time, sigma: Coefficient) -> Tensor:
    """Algorithm 2, DDIM: P(y_s = 1 | y_t, y0) that keeps the marginal of y_s for every 0 <= sigma <= sigma_max."""
    of_y_t, of_y0, rest = cast(y_t, *sigma_weights(schedule, y_t, t, s, sigma))
    return (of_y_t * y_t + of_y0 * y0_hat + rest).clamp(0, 1)  # rounding leaves it a hair outside at the ends


def sigma_weights(schedule: NoiseSchedule, like: Tensor, t: Time, s: Time, sigma: Coefficient) -> tuple[Any, Any, Any]:
    """What `sigma_post` gives to y_t, to y0 and to neither."""
    _, b, alpha_bar_t = schedule.pair(t, s, like)
    return sigma, b - sigma * alpha_bar_t, (((1 - b) - (1 - alpha_bar_t) * sigma) / 2)


# --- reverse process -------------------------------------------------------------------------------------------------


def predict_y0_logits(y_t: Tensor, eps_logits: Tensor) -> Tensor:
    """|y_t - eps_hat| of eq. 7 on logits: where y_t is 1, "flipped" means that y0 is 0, so the sign turns."""
    return (1 - 2 * y_t) * eps_logits


def evidence(schedule: NoiseSchedule, y_t: Tensor, t: Time) -> Tensor:
    """What a pixel of y_t itself says of y0, as a log-likelihood ratio: log q(y_t | 1) - log q(y_t | 0)."""
    schedule.check(t)
    alpha_bar_t = schedule.at(t, y_t)
    (ratio,) = cast(y_t, log1p(alpha_bar_t) - log1p(-alpha_bar_t))
    return (2 * y_t - 1) * ratio


def predict_y0_prior_logits(schedule: NoiseSchedule, y_t: Tensor, prior_logits: Tensor, t: Time) -> Tensor:
    """Bayes for one pixel: what the image and the OTHER pixels say (the prior), and what the pixel says itself.

    The noise is known exactly, so a network that estimates the prior need not learn to undo it.
    """
    return prior_logits + evidence(schedule, y_t, t)


def reverse_mean(
    schedule: NoiseSchedule, y_t: Tensor, y0_hat: Tensor, t: Time, s: Time, posterior: Posterior = "soft"
) -> Tensor:
    """Eqs. 6, 7: mu_hat = F_C, the probability of the reverse step t -> s, from the estimated mask |y_t - eps_hat|.

    "soft" is the paper's. It expects what the image and the OTHER pixels say of a pixel, and adds the pixel's own
    evidence itself; "marginal" expects P(y0 | y_t, x), as cross-entropy learns it (docs/deviations.md).
    """
    if posterior == "soft":
        return theta_post(schedule, y_t, y0_hat, t, s)
    if posterior == "marginal":
        return marginal_post(schedule, y_t, y0_hat, t, s)
    raise ValueError(f"posterior: expected 'soft' or 'marginal', found {posterior!r}")


# --- drawing ---------------------------------------------------------------------------------------------------------


def draw(p: Tensor, generators: Generators) -> Tensor:
    """A mask of 0 and 1 from probabilities; exact at p = 0 and p = 1."""
    return (uniform(p.shape, generators, p) < p).to(p.dtype)


def draw_level(p: Tensor, generators: Generators, smallest: int = 1) -> Tensor:
    """A mask `(B, N, ...)` of all pixels whose probability is above one random level per mask.

    Each pixel is 1 with its probability, as in `draw`, but the masks are nested level sets and not speckles. A level
    just below the largest probability leaves a speck; one that would leave fewer than `smallest` pixels, but not none,
    is moved to the same place among the levels below. With `smallest` p is `(B, N, K, *S)`.
    """
    level = uniform(p.shape[:2], generators, p)
    if smallest > 1:
        of_pixels = p.amax(2).flatten(2)  # a pixel counts once, in however many targets it is
        top = of_pixels.topk(min(smallest, of_pixels.shape[2]), dim=2).values
        first, last = top[..., 0], top[..., -1]
        level = torch.where((level < first) & (level >= last), (level - last) / (first - last) * last, level)
    return (level.reshape(*level.shape, *[1] * (p.ndim - 2)) < p).to(p.dtype)


def check_mask(y: Tensor, name: str = "masks") -> None:
    """Raise unless y holds only 0 and 1: where data enters, not in the hot loop."""
    if not bool(((y == 0) | (y == 1)).all()):
        low, high = float(y.min()), float(y.max())
        raise ValueError(f"{name}: expected only the values 0 and 1, found values in [{low:g}, {high:g}]")
