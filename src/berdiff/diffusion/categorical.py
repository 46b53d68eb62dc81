"""The categorical kernel: one of C classes per pixel, eqs. 1-10 with / C where two states have / 2, for any s < t.

Functions take and return probabilities of all classes `(B, N, C, *S)`: the K = C - 1 targets in their order, then the
background. A mask has the targets alone, `(B, N, K, *S)` with at most one 1 per pixel; `with_background` completes it.
At C = 2 everything here equals `bernoulli.py`.

Q_x = x I + (1 - x) / C, a symmetric CxC matrix, keeps a pixel with probability x and otherwise draws any class. With
a = alpha_bar_t / alpha_bar_s and b = alpha_bar_s: Q_a leads from y_s to y_t, Q_b from y_0 to y_s, Q_ab from y_0 to y_t.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from berdiff.diffusion.random import Generators, uniform
from berdiff.diffusion.sampler import Posterior
from berdiff.diffusion.schedule import Coefficient, NoiseSchedule, Time, cast

CLASS = 2
"""The dimension of the classes; behind it come the spatial ones."""

# --- classes ---------------------------------------------------------------------------------------------------------


def with_background(y: Tensor) -> Tensor:
    """Targets `(B, N, K, *S)`, 0/1 or probabilities, and what they leave for the background."""
    return torch.cat([y, 1 - y.sum(CLASS, keepdim=True)], CLASS)


def targets(y: Tensor) -> Tensor:
    """All classes but the background."""
    return y.narrow(CLASS, 0, y.shape[CLASS] - 1)


def log_probs(logits: Tensor) -> Tensor:
    """log P(y0) of all classes from the network's K logits; that of the background is 0. At K = 1 the sigmoid."""
    return F.log_softmax(_background_zero(logits), CLASS)


def probs(logits: Tensor) -> Tensor:
    """P(y0) of all classes; a logit of -inf is a target that cannot be."""
    return F.softmax(_background_zero(logits), CLASS)


def _background_zero(logits: Tensor) -> Tensor:
    return torch.cat([logits, torch.zeros_like(logits.narrow(CLASS, 0, 1))], CLASS)


# --- forward process -------------------------------------------------------------------------------------------------


def q_marginal(schedule: NoiseSchedule, y0: Tensor, t: Time) -> Tensor:
    """Eq. 3: q(y_t | y0) = Cat(alpha_bar_t y0 + (1 - alpha_bar_t) / C)."""
    schedule.check(t)
    return _times_Q(y0, schedule.at(t, y0))


def _times_Q(v: Tensor, x: Coefficient) -> Tensor:
    """Q_x v = x v + (1 - x) / C times the sum of v, its coefficients rounded last."""
    keep, other = cast(v, x, (1 - x) / v.shape[CLASS])
    return keep * v + other * v.sum(CLASS, keepdim=True)


# --- posterior -------------------------------------------------------------------------------------------------------


def theta_post(schedule: NoiseSchedule, y_t: Tensor, y0: Tensor, t: Time, s: Time) -> Tensor:
    """Eq. 4: q(y_s = j | y_t, y0), in proportion to Q_a[j, y_t] Q_b[y0, j].

    A soft y0 is allowed, as the paper does; it is then NOT the marginal over y0 (see `marginal_post`).
    """
    a, b, _ = schedule.pair(t, s, y_t)
    joint = _times_Q(y_t, a) * _times_Q(y0, b)
    return joint / joint.sum(CLASS, keepdim=True)


def marginal_post(schedule: NoiseSchedule, y_t: Tensor, y0_hat: Tensor, t: Time, s: Time) -> Tensor:
    """P(y_s = j) = Q_a[j, y_t] sum_k Q_b[k, j] p_k / Q_ab[k, y_t]: eq. 4 when y0 is not known but has probabilities p.

    From C = 3 on no sigma of `sigma_post` gives it: what a third class gets depends on whether y_t is y0.
    """
    a, b, alpha_bar_t = schedule.pair(t, s, y_t)
    return _times_Q(y_t, a) * _times_Q(y0_hat / _times_Q(y_t, alpha_bar_t), b)


# --- the family with the same marginals (DDIM, appendix A of that paper); `sigma_max` is that of two states -----------


def sigma_post(schedule: NoiseSchedule, y_t: Tensor, y0_hat: Tensor, t: Time, s: Time, sigma: Coefficient) -> Tensor:
    """Algorithm 2, DDIM: P(y_s | y_t, y0) that keeps the marginal of y_s for every 0 <= sigma <= sigma_max."""
    _, b, alpha_bar_t = schedule.pair(t, s, y_t)
    rest = ((1 - b) - (1 - alpha_bar_t) * sigma) / y_t.shape[CLASS]
    of_y_t, of_y0, rest = cast(y_t, sigma, b - sigma * alpha_bar_t, rest)
    return (of_y_t * y_t + of_y0 * y0_hat + rest).clamp(0, 1)  # rounding leaves it a hair outside at the ends


# --- reverse process -------------------------------------------------------------------------------------------------


def reverse_mean(
    schedule: NoiseSchedule, y_t: Tensor, y0_hat: Tensor, t: Time, s: Time, posterior: Posterior = "soft"
) -> Tensor:
    """Eqs. 6, 7: the probabilities of the reverse step t -> s, in the paper's soft form or as the exact marginal.

    As with two states: "soft" expects what the image and the OTHER pixels say of a pixel, "marginal" P(y0 | y_t, x).
    """
    if posterior == "soft":
        return theta_post(schedule, y_t, y0_hat, t, s)
    if posterior == "marginal":
        return marginal_post(schedule, y_t, y0_hat, t, s)
    raise ValueError(f"posterior: expected 'soft' or 'marginal', found {posterior!r}")


def log_reverse(
    schedule: NoiseSchedule, y_t: Tensor, log_p: Tensor, t: Time, s: Time, posterior: Posterior = "soft"
) -> Tensor:
    """The logarithm of `reverse_mean`, from log P(y0): finite wherever log_p is."""
    a, b, alpha_bar_t = schedule.pair(torch.as_tensor(t), torch.as_tensor(s), y_t)
    log_a = _times_Q(y_t, a).log()
    keep, other = (value.log() for value in cast(y_t, b, (1 - b) / y_t.shape[CLASS]))
    if posterior == "soft":
        return F.log_softmax(log_a + torch.logaddexp(keep + log_p, other), CLASS)
    if posterior == "marginal":
        log_w = log_p - _times_Q(y_t, alpha_bar_t).log()
        return log_a + torch.logaddexp(keep + log_w, other + log_w.logsumexp(CLASS, keepdim=True))
    raise ValueError(f"posterior: expected 'soft' or 'marginal', found {posterior!r}")


# --- losses, per pixel `(B, N, 1, *S)` in nats ----------------------------------------------------------------------


def kl_loss(
    schedule: NoiseSchedule, y_t: Tensor, y0: Tensor, log_p: Tensor, t: Time, s: Time, posterior: Posterior = "soft"
) -> Tensor:
    """Eq. 8: KL(q(y_s | y_t, y0) || p_theta(y_s | y_t, x)). At s = 0 it is -log p_theta(y0 | y_1, x)."""
    q = theta_post(schedule, y_t, y0, t, s)
    return (torch.xlogy(q, q) - q * log_reverse(schedule, y_t, log_p, t, s, posterior)).sum(CLASS, keepdim=True)


def ce_loss(y0: Tensor, log_p: Tensor) -> Tensor:
    """Eq. 9: the cross-entropy of the estimate."""
    return -(y0 * log_p).sum(CLASS, keepdim=True)


# --- drawing: probabilities of all classes -> masks, the targets alone -----------------------------------------------


def draw(p: Tensor, generators: Generators) -> Tensor:
    """A class per pixel, by one uniform number each; p need not sum to 1. Where all p are 0, the background."""
    upper = p.cumsum(CLASS)
    u = uniform(upper[:, :, :1].shape, generators, p) * upper[:, :, -1:]
    return _one_hot((u >= targets(upper)).sum(CLASS, keepdim=True), p)


def most_likely(p: Tensor) -> Tensor:
    """The most probable class of each pixel; of equals the first, so that the background comes last."""
    return _one_hot(p.argmax(CLASS, keepdim=True), p)


def draw_shared(p: Tensor, generators: Generators) -> Tensor:
    """A class per pixel of masks `(B, N, C, *S)`, argmax_c(log p_c + G_c) by one Gumbel number per class and mask.

    Each pixel has its law, as in `draw`, but pixels that doubt between the same classes decide alike. At C = 2 it is
    `bernoulli.draw_level` with level = sigmoid(G_background - G_target), which is uniform.
    """
    return race(p, exponential((*p.shape[:3], *[1] * (p.ndim - 3)), generators, p))


def race(p: Tensor, clock: Tensor) -> Tensor:
    """The class whose exponential `clock` rings first at the rate p_c: argmin_c clock_c / p_c, with G = -log clock."""
    return most_likely(p.to(clock.dtype).log() - clock.log()).to(p.dtype)


def exponential(shape: tuple[int, ...], generators: Generators, like: Tensor) -> Tensor:
    """Exp(1), never exactly 0."""
    u = uniform(shape, generators, like)
    return -torch.log1p(-u).clamp(max=-torch.finfo(u.dtype).tiny)


def _one_hot(classes: Tensor, p: Tensor) -> Tensor:
    """Masks in the precision of p from the numbers of classes `(B, N, 1, *S)`."""
    numbers = torch.arange(p.shape[CLASS] - 1, device=p.device).reshape(-1, *[1] * (p.ndim - 3))
    return (classes == numbers).to(p.dtype)
